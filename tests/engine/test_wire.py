import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_engine import (
    EngineCoreOutputs,
    EngineCoreRequest,
    FinishReason,
    RepetitionDetection,
    SamplingParams,
    SchedulerStats,
    StructuredOutputs,
)
from umbel_engine.wire import (
    FINISH_REASONS,
    Addresses,
    EncodedRequest,
    EngineCoreOutput,
    Hello,
    Init,
    ReadyResponse,
    RequestFault,
    UtilityOutput,
    UtilityResult,
)

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


def request(params, prompt=(1, 2, 3), **fields):
    return EngineCoreRequest(
        "x", list(prompt), None, params, None, 1.5, external_req_id="chatcmpl-1", **fields
    )


REQUESTS = {
    "plain": request(SamplingParams(max_tokens=16)),
    "seeded": request(SamplingParams(max_tokens=16, seed=7, temperature=0.5)),
    "without parameters": request(None),
    "rich": request(
        SamplingParams(
            max_tokens=3,
            seed=2**63 - 1,
            stop_token_ids=[5],
            logit_bias={3: -1.0},
            structured_outputs=StructuredOutputs(json={"type": "object"}, backend="xgrammar"),
            repetition_detection=RepetitionDetection(3, 1, 2),
            eos_token_id=2,
            all_stop_token_ids=[2, 5],
        ),
        cache_salt="salt",
        data_parallel_rank=1,
        priority=-3,
        trace_headers={"traceparent": "00"},
        reasoning_ended=False,
        reasoning_parser_kwargs={"chat_template_kwargs": {"a": [1, None]}},
        session_id="session",
    ),
    "long": request(SamplingParams(max_tokens=1), prompt=range(70_000)),
}


@pytest.mark.parametrize("name", REQUESTS)
@pytest.mark.parametrize("seed", [None, 0, 8, -1, 2**63 - 1])
def test_the_shared_encoding_is_that_of_the_whole_request(name, seed):
    original = REQUESTS[name]
    params = original.sampling_params
    whole = msgspec.structs.replace(
        original,
        request_id="1_x-abcd",
        sampling_params=params and msgspec.structs.replace(params, seed=seed),
    )
    assert EncodedRequest(original).payload("1_x-abcd", seed) == encode(whole)


@given(
    st.text(max_size=80),
    st.lists(st.integers(0, 2**32), max_size=40),
    st.none() | st.integers(-(2**63), 2**63 - 1),
    st.none() | st.integers(-(2**63), 2**63 - 1),
)
def test_the_shared_encoding_is_right_for_any_id_prompt_and_seed(
    request_id, prompt, own_seed, seed
):
    original = request(SamplingParams(max_tokens=4, seed=own_seed), prompt)
    whole = msgspec.structs.replace(
        original,
        request_id=request_id,
        sampling_params=SamplingParams(max_tokens=4, seed=seed),
    )
    assert EncodedRequest(original).payload(request_id, seed) == encode(whole)


def test_a_request_is_an_array_of_22_elements():
    payload = encode(REQUESTS["rich"])
    assert payload[:3] == b"\xdc\x00\x16"
    assert len(decode(payload)) == 22
    assert decode(payload, type=EngineCoreRequest) == REQUESTS["rich"]


def test_the_places_of_a_request_are_the_engine_s():
    values = decode(encode(REQUESTS["rich"]))
    places = {
        0: "x",
        1: [1, 2, 3],
        5: 1.5,
        7: "salt",
        8: 1,
        11: 0,
        12: 0,
        13: -3,
        14: {"traceparent": "00"},
        15: False,
        16: "chatcmpl-1",
        17: False,
        18: {"chat_template_kwargs": {"a": [1, None]}},
        19: False,
        20: "session",
        21: None,
    }
    assert {place: values[place] for place in places} == places


def test_parameters_are_a_map_of_what_is_not_the_default():
    assert decode(encode(SamplingParams(max_tokens=16, seed=7))) == {"max_tokens": 16, "seed": 7}


def test_the_private_parameters_have_the_engine_s_names():
    params = SamplingParams(
        max_tokens=1, eos_token_id=2, all_stop_token_ids=[2], bad_words_token_ids=[[1]]
    )
    assert decode(encode(params)) == {
        "max_tokens": 1,
        "_eos_token_id": 2,
        "_all_stop_token_ids": [2],
        "_bad_words_token_ids": [[1]],
    }
    assert decode(encode(StructuredOutputs(regex="a", backend="xgrammar"))) == {
        "regex": "a",
        "_backend": "xgrammar",
    }


def test_a_request_recorded_from_the_protocol_is_read():
    recorded = bytes.fromhex(
        "dc0016ac305f722d316162326333643493010203c0"
        "84ab74656d7065726174757265cb3ff0000000000000aa6d61785f746f6b656e7310a47365656407"
        "ab6f75747075745f6b696e6401"
        "c0cb41d954fc40000000c0c0c0c0c0000000c0c2a172c0"
        "81b4636861745f74656d706c6174655f6b776172677380c2c0c0"
    )
    read = decode(recorded, type=EngineCoreRequest)
    assert (read.request_id, read.prompt_token_ids) == ("0_r-1ab2c3d4", [1, 2, 3])
    assert read.sampling_params == SamplingParams(max_tokens=16, seed=7, output_kind=1)
    assert (read.external_req_id, read.arrival_time) == ("r", 1700000000.0)
    assert read.reasoning_parser_kwargs == {"chat_template_kwargs": {}}


def test_a_hello_recorded_from_the_protocol_is_read():
    recorded = bytes.fromhex("83a6737461747573a548454c4c4fa56c6f63616cc3a8686561646c657373c2")
    assert decode(recorded, type=Hello) == Hello("HELLO", local=True, headless=False)


def test_a_utility_answer_recorded_from_the_protocol_is_read():
    recorded = bytes.fromhex("990090c0cb3ff80000000000009301c092c0c2c0c0c0c0")
    outputs = decode(recorded, type=EngineCoreOutputs)
    assert outputs.utility_output == UtilityOutput(1, None, UtilityResult(None, False))
    assert (outputs.timestamp, outputs.outputs) == (1.5, [])


def test_an_output_of_18_fields_is_read_as_that_of_0_32():
    output = EngineCoreOutput("x", [5], finish_reason=3)
    fields = msgspec.structs.astuple(output)[:18]
    assert decode(encode((0, [fields], None, 1.0)), type=EngineCoreOutputs).outputs == [output]


def test_the_last_field_of_an_output_is_its_error():
    output = EngineCoreOutput("x", [], finish_reason=3, error=RequestFault("no", "bad", True))
    fields = decode(encode(output))
    assert len(fields) == 19
    assert fields[18] == {"message": "no", "code": "bad", "retryable": True}


def test_what_a_later_version_adds_is_ignored():
    output = (*msgspec.structs.astuple(EngineCoreOutput("x", [5])), "new", {"more": 1})
    envelope = (0, [output], {"num_running_reqs": 3, "new": [1]}, 1.0, *[None] * 5, "new", 1)
    outputs = decode(encode(envelope), type=EngineCoreOutputs)
    assert outputs.outputs == [EngineCoreOutput("x", [5])]
    assert outputs.scheduler_stats == SchedulerStats(num_running_reqs=3)
    ready = {"max_model_len": 5, "mamba_block_size": None, "coord_store_port": 1}
    assert decode(encode(ready), type=ReadyResponse) == ReadyResponse(5)


def test_finish_codes_are_the_engine_s():
    assert FINISH_REASONS == ("stop", "length", "abort", "error", "repetition")
    assert FinishReason.__args__ == FINISH_REASONS


def test_the_answer_to_hello_has_the_engine_s_keys():
    assert decode(encode(Init(Addresses(["in"], ["out"])))) == {
        "addresses": {
            "inputs": ["in"],
            "outputs": ["out"],
            "coordinator_input": None,
            "coordinator_output": None,
            "frontend_stats_publish_address": None,
        },
        "parallel_config": {},
    }
