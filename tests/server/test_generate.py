"""Tokens in, tokens out, n of them: what a generate request is answered, and what it may say."""

import asyncio
import base64
import io
import json
import math
import re

import aiohttp
import msgspec
import numpy as np
import pytest

from umbel_engine import Logprobs
from umbel_engine.mock import MockStep, per_child, sampled, tokens
from umbel_engine.tensors import to_array
from umbel_engine.wire import PrefillStats, RequestFault

GENERATE = "/inference/v1/generate"
ABORT = "/inference/v1/abort_requests"
COMPLETIONS = "/v1/completions"
PAUSED = {"engine_options": {"paused": True}}

PROMPT = [300, 301, 302]
EOS_ID = 2

DETAILS_UNKNOWN = '"prompt_tokens_details":null,"completion_tokens_details":null'


@pytest.fixture
def generating(serve):
    """Start a server that is opened for generate requests."""

    async def generating(script=None, **options):
        return await serve(script, enable_scale_out=True, **options)

    return generating


async def generate(served, headers=None, token_ids=PROMPT, stream=None, **rest):
    """Ask for tokens; what is no field of the body is a sampling parameter."""
    fields = {
        name: rest.pop(name)
        for name in (
            "cache_salt",
            "kv_transfer_params",
            "model",
            "priority",
            "request_id",
            "return_token_ids",
            "stream_options",
        )
        if name in rest
    }
    if stream is not None:
        fields["stream"] = stream
    return await served.post(GENERATE, headers, token_ids=token_ids, sampling_params=rest, **fields)


def undated(text):
    return re.sub(r'"created":\d+', '"created":0', text)


def token_ids_of(events):
    """Put the token ids of every choice of a stream together."""
    token_ids = {}
    for event in events:
        for choice in event["choices"]:
            token_ids.setdefault(choice["index"], []).extend(choice["token_ids"])
    return token_ids


def choice(index, token_ids, finish, stop_reason="null", logprobs="null"):
    return (
        f'{{"index":{index},"finish_reason":{finish},"stop_reason":{stop_reason},'
        f'"token_ids":{token_ids},"routed_experts":null,"sampling_mask":null,'
        f'"weight_versions":null,"logprobs":{logprobs}}}'
    )


# The whole answer


async def test_an_answer_with_two_samples_is_vllms(generating):
    served = await generating(per_child(tokens(5, 6), tokens(7, 9, finish="stop", stop_reason=9)))
    answer = await generate(served, request_id="x", n=2, max_tokens=2, model="smollm2")
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert undated(answer.text) == (
        '{"request_id":"generate-tokens-x","model":"smollm2","created":0,'
        '"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4,'
        f'{DETAILS_UNKNOWN}}},"prompt_logprobs":null,"prompt_token_id_logprobs":null,'
        '"prompt_token_ids":null,"mm_placeholders":null,"metrics":null,'
        '"kv_transfer_params":null,"ec_transfer_params":null,"output_mode":"tokens","choices":['
        + choice(0, "[5,6]", '"length"')
        + ","
        + choice(1, "[7,9]", '"stop"', "9")
        + "]}"
    )


async def test_the_samples_of_a_seed_are_those_of_a_completion_streamed_or_not(generating, seeds):
    served = await generating(sampled())
    answer = await generate(served, request_id="x", n=4, seed=7, max_tokens=6)
    whole = {choice["index"]: choice["token_ids"] for choice in answer.json()["choices"]}
    assert seeds(served.engine) == {f"{index}_generate-tokens-x": 7 + index for index in range(4)}
    streamed = await generate(served, n=4, seed=7, max_tokens=6, stream=True)
    completion = await served.complete(
        prompt=PROMPT, n=4, seed=7, max_tokens=6, return_token_ids=True
    )
    direct = {choice["index"]: choice["token_ids"] for choice in completion.json()["choices"]}
    assert len({tuple(token_ids) for token_ids in whole.values()}) == 4
    assert whole == direct == token_ids_of(streamed.events)


async def test_the_prompt_is_given_back_where_it_is_asked_for(generating):
    served = await generating(lambda request: tokens(5, 6))
    answer = await generate(served, return_token_ids=True, n=2)
    assert answer.json()["prompt_token_ids"] == PROMPT
    streamed = await generate(served, return_token_ids=True, n=2, stream=True)
    first, *others = streamed.events
    assert first["prompt_token_ids"] == PROMPT
    assert list(first) == ["request_id", "usage", "prompt_token_ids", "output_mode", "choices"]
    assert all("prompt_token_ids" not in event for event in others)


def scores_of(answer):
    return np.load(io.BytesIO(base64.b64decode(answer.json()["prompt_token_id_logprobs"])))


async def test_named_tokens_are_scored_at_the_positions_of_the_prompt(generating):
    served = await generating(sampled())
    rows = [[7, 14, 3], [9]]
    answer = await generate(served, prompt_logprob_token_ids=rows, n=2, max_tokens=1)
    assert answer.status == 200
    scores = scores_of(answer)
    assert scores.dtype == np.float32
    expected = [[-0.1, -0.1, -0.4], [-0.3, -np.inf, -np.inf]]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)
    sent = to_array(served.engine.adds[0].sampling_params.prompt_logprob_token_ids, ())
    assert sent.tolist() == [[7, 14, 3], [9, -1, -1]]


async def test_scores_may_start_further_on(generating):
    served = await generating(sampled())
    fields = {"prompt_logprob_token_ids": [[7]], "prompt_logprob_start": 1}
    answer = await generate(served, max_tokens=2, **fields)
    assert scores_of(answer).shape == (1, 1)
    (add,) = served.engine.adds
    assert add.sampling_params.prompt_logprob_start == 1


async def test_an_engine_that_does_not_score_is_told_of(generating):
    served = await generating(lambda request: tokens(5, 6))
    answer = await generate(served, prompt_logprob_token_ids=[[7], [8]])
    assert (answer.status, answer.error["param"]) == (400, "prompt_logprob_token_ids")
    assert answer.error["message"].startswith(
        "prompt_logprob_token_ids requires the V2 model runner (VLLM_USE_V2_MODEL_RUNNER=1)."
    )


async def test_scores_have_no_place_in_a_stream(generating):
    served = await generating(sampled())
    answer = await generate(served, prompt_logprob_token_ids=[[7], [8]], stream=True)
    assert answer.status == 400
    message = "prompt_logprob_token_ids are not available when stream=true."
    assert answer.error["message"] == message
    assert served.engine.adds == []


async def test_token_ids_to_score_are_integers_that_are_written_so(generating):
    served = await generating(sampled())
    for bad in ("7", 7.0, True, None):
        answer = await generate(served, prompt_logprob_token_ids=[[7], [8, bad]])
        assert answer.status == 400
        assert "'type': 'int_type'" in answer.error["message"]


async def test_transfer_parameters_go_through_in_both_directions(generating):
    step = MockStep(token_ids=[5], finish="length", kv_transfer_params={"block": 3})
    served = await generating(lambda request: [step])
    answer = await generate(
        served, kv_transfer_params={"do_remote_decode": True}, extra_args={"mine": [1]}
    )
    assert answer.json()["kv_transfer_params"] == {"block": 3}
    assert served.engine.adds[0].sampling_params.extra_args == {
        "mine": [1],
        "kv_transfer_params": {"do_remote_decode": True},
    }


# The stream


async def test_a_stream_with_two_samples_is_vllms(generating, unhurried):
    script = per_child(tokens(5, 6), tokens(7, EOS_ID, finish="stop"))
    served = await generating(script, enable_prompt_tokens_details=True, **PAUSED)
    client = await unhurried(
        served,
        GENERATE,
        [2, 2],
        adds=2,
        request_id="x",
        token_ids=PROMPT,
        sampling_params={"n": 2},
        stream_options={"include_usage": True},
    )

    def event(rest):
        return f'data: {{"request_id":"generate-tokens-x",{rest}}}\n\n'

    def one(*arguments):
        return event(f'"usage":null,"output_mode":"tokens","choices":[{choice(*arguments)}]')

    assert client.text == "".join(
        [
            one(0, "[5]", "null"),
            one(1, "[7]", "null"),
            one(0, "[6]", '"length"'),
            one(1, "[2]", '"stop"'),
            event(
                '"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4,'
                '"prompt_tokens_details":{"cached_tokens":0}},"output_mode":"tokens","choices":[]'
            ),
            "data: [DONE]\n\n",
        ]
    )


async def test_usage_in_every_chunk_counts_the_tokens_of_its_choice(generating, unhurried):
    served = await generating(per_child(tokens(5, 6), tokens(7, 8)), **PAUSED)
    client = await unhurried(
        served,
        GENERATE,
        [2, 2],
        adds=2,
        token_ids=PROMPT,
        sampling_params={"n": 2},
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )
    *frames, done, _ = client.text.split("\n\n")
    events = [json.loads(frame.removeprefix("data: ")) for frame in frames]
    assert done == "data: [DONE]"
    counts = [event["usage"]["completion_tokens"] for event in events]
    assert counts == [1, 1, 2, 2, 4]
    assert list(events[0]["usage"]) == [
        "prompt_tokens",
        "total_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
    ]
    assert list(events[-1]["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens"]


async def test_usage_is_not_forced_on_a_stream_of_tokens(generating):
    served = await generating(lambda request: tokens(5), enable_force_include_usage=True)
    answer = await generate(served, stream=True)
    assert [event["usage"] for event in answer.events] == [None]


async def test_a_chunk_carries_as_many_tokens_as_the_interval_says(generating, unhurried):
    served = await generating(lambda request: tokens(*range(20, 27)), **PAUSED)
    client = await unhurried(
        served,
        GENERATE,
        [1, 0, 0, 1, 0, 0, 1],
        token_ids=PROMPT,
        sampling_params={"stream_interval": 3},
    )
    lists = re.findall(r'"token_ids":\[([^\]]*)\]', client.text)
    assert lists == ["20", "21,22,23", "24,25,26"]


async def test_an_end_without_tokens_is_a_chunk_of_its_own(generating):
    served = await generating(lambda request: [MockStep(finish="abort")])
    answer = await generate(served, stream=True)
    (event,) = answer.events
    assert event["choices"][0]["token_ids"] == []
    assert event["choices"][0]["finish_reason"] == "abort"


@pytest.mark.parametrize(
    ("fault", "message", "kind", "status"),
    [
        (None, "Internal server error", "InternalServerError", 500),
        (RequestFault("no room"), "no room", "InternalServerError", 500),
        (RequestFault("later", retryable=True), "later", "ServiceUnavailableError", 503),
    ],
)
async def test_an_error_in_mid_stream_is_an_event_and_aborts_the_siblings(
    generating, fault, message, kind, status
):
    failing = [MockStep(token_ids=[5]), MockStep(finish="error", error=fault)]
    served = await generating(per_child(failing, tokens(7, 8, 9)), **PAUSED)
    body = {"token_ids": PROMPT, "sampling_params": {"n": 2}}
    async with served.stream(GENERATE, **body) as stream:
        await served.engine.wait_adds(2)
        await served.step()
        await stream.next()
        await stream.next()
        await served.step()
        *_, failure, done = await stream.rest()
    assert done == "[DONE]"
    assert failure == {"error": {"message": message, "type": kind, "param": None, "code": status}}
    await served.engine.wait_aborts()
    assert served.engine.aborts == [[served.engine.adds[1].request_id]]


async def test_an_error_of_a_sample_fails_an_answer_that_does_not_stream(generating):
    served = await generating(per_child(tokens(5), [MockStep(finish="error")]))
    answer = await generate(served, n=2)
    assert (answer.status, answer.error["message"]) == (500, "Internal server error")


# Log-probabilities


def logprobs(*rows, ranks):
    """Write one row of (token id, logprob) per position."""
    return Logprobs(
        np.array([[token_id for token_id, _ in row] for row in rows]),
        np.array([[value for _, value in row] for row in rows], np.float64),
        np.array(ranks),
    )


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("stop", [None, "never"], ids=["tokens", "with-text"])
async def test_logprobs_name_tokens_by_their_ids(generating, stream, stop):
    rows = logprobs(
        # The sampled token is the second most likely, and the engine sends more than was wanted.
        [(5, -1.0), (6, -0.5), (5, -1.0), (7, -3.0)],
        [(8, -4.0), (6, -0.25), (9, -math.inf), (7, -9.0)],
        ranks=[2, 40],
    )
    step = MockStep(token_ids=[5, 8], logprobs=rows, finish="length")
    served = await generating(lambda request: [step])
    answer = await generate(served, logprobs=2, stop=stop, stream=stream)
    (only,) = answer.events if stream else [answer.json()]
    first, second = only["choices"][0]["logprobs"]["content"]
    own = {"token_id": 5, "logprob": -1.0, "rank": 2}
    assert first == {**own, "top_logprobs": [own, {"token_id": 6, "logprob": -0.5, "rank": 1}]}
    own = {"token_id": 8, "logprob": -4.0, "rank": 40}
    assert second == {
        **own,
        "top_logprobs": [
            own,
            {"token_id": 6, "logprob": -0.25, "rank": 1},
            {"token_id": 9, "logprob": -9999.0, "rank": 2},
        ],
    }


async def test_a_logprob_that_is_none_has_the_lowest_value_and_no_rank(generating):
    step = MockStep(token_ids=[5], logprobs=logprobs([(5, math.nan)], ranks=[0]), finish="length")
    served = await generating(lambda request: [step])
    answer = await generate(served, logprobs=0)
    own = {"token_id": 5, "logprob": -9999.0, "rank": None}
    assert answer.json()["choices"][0]["logprobs"] == {"content": [{**own, "top_logprobs": [own]}]}


async def test_logprobs_of_named_tokens_are_shown_when_they_are_also_counted(generating):
    served = await generating(sampled())
    named = {"max_tokens": 1, "logprob_token_ids": [5, 6]}
    assert (await generate(served, **named)).json()["choices"][0]["logprobs"] is None
    answer = await generate(served, **named, logprobs=2)
    assert len(answer.json()["choices"][0]["logprobs"]["content"]) == 1
    assert [add.sampling_params.logprob_token_ids for add in served.engine.adds] == [[5, 6]] * 2


@pytest.mark.parametrize(("detokenize", "text"), [(True, "hi"), (False, None)])
async def test_prompt_logprobs_have_text_unless_that_is_not_wanted(generating, detokenize, text):
    rows = logprobs([(301, -0.5), (300, -0.25)], [(302, -math.inf), (300, -1.0)], ranks=[2, 9])
    step = MockStep(token_ids=[5], prompt_logprobs=rows, finish="length")
    served = await generating(lambda request: [step])
    answer = await generate(served, prompt_logprobs=1, n=2, detokenize=detokenize)
    nothing, first, second = answer.json()["prompt_logprobs"]
    assert nothing is None
    assert list(first) == ["301", "300"]
    assert first["300"] == {"logprob": -0.25, "rank": 1, "decoded_token": text}
    assert second["302"]["logprob"] == -9999.0
    assert second["302"]["rank"] == 9


# Sampling parameters


async def test_stop_strings_are_found_in_the_text_of_tokens(generating, say):
    endless = [*say("hi", "yo", "hi", finish=None), *say("yo")]
    served = await generating(lambda request: endless)
    for stream in (False, True):
        answer = await generate(served, stop=["yohi"], n=2, stream=stream)
        whole = answer.events if stream else [answer.json()]
        assert token_ids_of(whole) == {0: [300, 301, 300], 1: [300, 301, 300]}
        ends = [
            (choice["finish_reason"], choice["stop_reason"])
            for event in whole
            for choice in event["choices"]
            if choice["finish_reason"]
        ]
        assert ends == [("stop", "yohi")] * 2


async def test_no_text_is_made_where_nobody_looks_for_it(generating, monkeypatch):
    served = await generating(lambda request: tokens(5, 6))
    monkeypatch.setattr("umbel_text.stage.TextStage.feed", None)
    assert (await generate(served, n=2)).json()["choices"][1]["token_ids"] == [5, 6]


async def test_the_defaults_of_the_model_hold_for_max_tokens_alone(generating):
    served = await generating(override={"temperature": 0.5, "top_k": 7, "max_new_tokens": 9})
    for sampling in ({}, {"max_tokens": None}, {"max_tokens": 16}, {"max_tokens": 100_000}):
        assert (await generate(served, **sampling)).status == 200
    params = [add.sampling_params for add in served.engine.adds]
    assert [param.max_tokens for param in params] == [9, 2045, 16, 2045]
    assert {(param.temperature, param.top_k) for param in params} == {(1.0, 0)}


async def test_parameters_reach_the_engine(generating):
    served = await generating()
    answer = await generate(
        served,
        temperature=0.5,
        top_k=4,
        stop_token_ids=[9, 9],
        logit_bias={" 5 ": 200, "6.0": -1},
        bad_words=["hi"],
        max_tokens=3,
        min_tokens=1,
        ignore_eos=True,
        skip_reading_prefix_cache=True,
        thinking_token_budget=-1,
        repetition_detection={"max_pattern_size": 3, "min_count": 2},
        cache_salt="salt",
        priority=4,
    )
    assert answer.status == 200, answer.text
    (add,) = served.engine.adds
    params = add.sampling_params
    assert add.prompt_token_ids == PROMPT
    assert (params.temperature, params.top_k, params.stop_token_ids) == (0.5, 4, [9])
    assert params.logit_bias == {5: 100.0, 6: -1.0}
    assert params.bad_words_token_ids == [[300]]
    assert (params.max_tokens, params.min_tokens, params.ignore_eos) == (3, 1, True)
    assert params.skip_reading_prefix_cache is True
    assert params.thinking_token_budget is None
    assert params.repetition_detection.max_pattern_size == 3
    assert (add.cache_salt, add.priority) == ("salt", 4)


async def test_headers_reach_the_engine(generating):
    served = await generating()
    headers = {
        "X-Request-Id": "42",
        "X-data-parallel-rank": "0",
        "X-Session-ID": "mine",
        "X-Vllm-Priority": "3",
    }
    answer = await generate(served, headers, request_id="x", priority=4)
    assert answer.json()["request_id"] == "generate-tokens-42"
    (add,) = served.engine.adds
    assert add.external_req_id == "generate-tokens-42"
    assert (add.data_parallel_rank, add.session_id, add.priority) == (0, "mine", 3)


async def test_cached_tokens_are_told_where_the_server_tells_them(generating):
    step = MockStep(token_ids=[5], prefill=PrefillStats(num_cached_tokens=2), finish="length")
    served = await generating(lambda request: [step], enable_prompt_tokens_details=True)
    usage = (await generate(served)).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 2


# What is refused

CLASS = (
    "{'type': 'is_instance_of', 'loc': 'body.sampling_params', "
    "'msg': 'must be an object of sampling parameters', 'input': "
)
CONSTRAINT = (
    "'disable_any_whitespace': False, 'disable_additional_properties': False, "
    "'whitespace_pattern': None, 'structural_tag': None, '_backend': None, "
    "'_backend_was_auto': False}"
)


def suffixed(message, name, value=None):
    return message + f" (parameter={name}" + (")" if value is None else f", value={value})"), name


@pytest.mark.parametrize(
    ("sampling", "message", "param"),
    [
        ({"n": 0}, "n must be at least 1, got 0.", None),
        (
            {"n": 20_000},
            "n must be at most 16384, got 20000. To increase this limit, set the "
            "VLLM_MAX_N_SEQUENCES environment variable.",
            None,
        ),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2.", None),
        (
            {"temperature": 9},
            *suffixed("temperature must be in [0, 2], got 9.0.", "temperature", 9.0),
        ),
        ({"top_p": 0}, *suffixed("top_p must be in (0, 1], got 0.0.", "top_p", 0.0)),
        ({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2.", None),
        ({"min_p": 2}, "min_p must be in [0, 1], got 2.0.", None),
        ({"max_tokens": 0}, *suffixed("max_tokens must be at least 1, got 0.", "max_tokens", 0)),
        (
            {"min_tokens": 20},
            "min_tokens must be less than or equal to max_tokens=16, got 20.",
            None,
        ),
        (
            {"min_tokens": 2**31, "max_tokens": None},
            "min_tokens must be less than or equal to max_tokens=2045, got 2147483648.",
            None,
        ),
        (
            {"logprobs": -2},
            *suffixed("logprobs must be non-negative or -1, got -2.", "logprobs", -2),
        ),
        (
            {"stream_interval": 0},
            *suffixed("stream_interval must be at least 1, got 0.", "stream_interval", 0),
        ),
        ({"stop": [""]}, "stop cannot contain an empty string.", None),
        (
            {"stop": ["a"], "detokenize": False},
            "stop strings are only supported when detokenize is True. Set detokenize=True to use "
            "stop.",
            None,
        ),
        (
            {"thinking_token_budget": -2},
            *suffixed(
                "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
                "thinking_token_budget",
                -2,
            ),
        ),
        (
            {"structured_outputs": {}},
            "You must use one kind of structured outputs constraint but none are specified: "
            "{'json': None, 'regex': None, 'choice': None, 'grammar': None, 'json_object': None, "
            + CONSTRAINT,
            None,
        ),
        (
            {"structured_outputs": {"json": "a", "regex": "b"}},
            "You can only use one kind of structured outputs constraint but multiple are specified: "
            "{'json': 'a', 'regex': 'b', 'choice': None, 'grammar': None, 'json_object': None, "
            + CONSTRAINT,
            None,
        ),
        (
            {"extra_args": {"a": 2**64}},
            *suffixed("extra_args integers must be between -2**63 and 2**64 - 1.", "extra_args"),
        ),
        (
            {"logit_bias": {"60000": 1}},
            *suffixed(
                "token_id(s) [60000] in logit_bias contain out-of-vocab token ids. "
                "Vocabulary size: 49152",
                "logit_bias",
                [60000],
            ),
        ),
        (
            {"prompt_logprob_start": 5},
            *suffixed(
                "prompt_logprob_start requires prompt_logprob_token_ids.", "prompt_logprob_start", 5
            ),
        ),
        (
            {"prompt_logprob_token_ids": [[1]]},
            *suffixed(
                "prompt_logprob_token_ids has 1 rows, but the prompt has 2 scored rows (prompt_len "
                "- 1 - prompt_logprob_start).",
                "prompt_logprob_token_ids",
                1,
            ),
        ),
        (
            {"trace_decode_token_ids": [1]},
            "`trace_decode_token_ids` is not supported yet.",
            "trace_decode_token_ids",
        ),
    ],
)
async def test_a_sampling_parameter_out_of_range_is_refused_in_vllms_words(
    generating, sampling, message, param
):
    served = await generating()
    for stream in (False, True):
        answer = await generate(served, **sampling, stream=stream)
        assert answer.status == 400
        if not (stream and param == "prompt_logprob_token_ids"):
            assert answer.error == {
                "message": message,
                "type": "BadRequestError",
                "param": param,
                "code": 400,
            }
    assert served.engine.adds == []


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (None, "{'type': 'dict_type', 'loc': 'body.sampling_params'"),
        ([], "{'type': 'dict_type', 'loc': 'body.sampling_params'"),
        ({"n": None}, "{'type': 'int_type', 'loc': 'body.sampling_params.n'"),
        ({"temperature": None}, "{'type': 'float_type', 'loc': 'body.sampling_params.temperature'"),
        ({"seed": "x"}, "{'type': 'int_parsing', 'loc': 'body.sampling_params.seed'"),
        ({"max_tokens": "q"}, "{'type': 'int_parsing', 'loc': 'body.sampling_params.max_tokens'"),
        ({"stop": [1]}, "{'type': 'string_type', 'loc': 'body.sampling_params.stop'"),
        (
            {"stop_token_ids": 5},
            "{'type': 'list_type', 'loc': 'body.sampling_params.stop_token_ids'",
        ),
        (
            {"output_kind": 7},
            "'loc': 'body.sampling_params.output_kind', 'msg': 'must be 0, 1 or 2'",
        ),
        ({"logit_bias": 5}, "{'type': 'dict_type', 'loc': 'body.sampling_params.logit_bias'"),
        ({"logit_bias": {"x": 1}}, "'int_parsing', 'loc': 'body.sampling_params.logit_bias.x'"),
        ({"logit_bias": {"5": "x"}}, "'float_parsing', 'loc': 'body.sampling_params.logit_bias.5'"),
        ({"extra_args": 5}, "{'type': 'dict_type', 'loc': 'body.sampling_params.extra_args'"),
        (
            {"repetition_detection": {"min_count": "x"}},
            "{'type': 'int_parsing', 'loc': 'body.sampling_params.repetition_detection.min_count'",
        ),
    ],
)
async def test_a_sampling_parameter_of_a_wrong_type_is_found(generating, value, fault):
    served = await generating()
    answer = await served.post(GENERATE, token_ids=PROMPT, sampling_params=value)
    assert answer.status == 400
    error = answer.error
    assert (error["type"], error["param"]) == ("Bad Request", "body.sampling_params")
    _, first, second, *_ = error["message"].split("\n")
    assert first.strip().startswith(CLASS)
    assert first.endswith("'ctx': {'class': 'SamplingParams'}}")
    assert fault in second
    assert served.engine.adds == []


FEATURES = {
    "mm_hashes": {"image": ["a"]},
    "mm_placeholders": {"image": [{"offset": 0, "length": 1}]},
}


@pytest.mark.parametrize(
    ("field", "value", "param", "text"),
    [
        ("token_ids", [], "body.token_ids", "'too_short'"),
        ("token_ids", "x", "body.token_ids", "'list_type'"),
        ("token_ids", [1, "a", 2.5], "body.token_ids.1", "2 validation errors"),
        ("token_ids", [-1], "body.token_ids", "Value error, token_ids must not contain negative"),
        ("token_ids", [49152], None, "Token id 49152 is out of vocabulary"),
        ("token_ids", [2**70], None, "is out of vocabulary"),
        (
            "token_ids",
            [5] * 2049,
            None,
            "Input length (2049) exceeds model's maximum context length",
        ),
        ("token_ids", [5] * 2048, None, "plus the number of requested output tokens (at least 1)"),
        ("request_id", None, "body.request_id", "'string_type'"),
        ("request_id", "\ud800", "body.request_id", "'string_unicode'"),
        ("model", 5, "body.model", "'string_type'"),
        ("token_offsets", 5, "body.token_offsets", "'list_type'"),
        ("token_offsets", [[1]], "body.token_offsets.0.1", "'missing'"),
        ("token_offsets", [["a", 2]], "body.token_offsets.0.0", "'int_parsing'"),
        ("features", 5, "body.features", "'model_attributes_type'"),
        ("features", {}, "body.features.mm_hashes", "'missing'"),
        ("features", FEATURES, "features", "`features` is not supported yet."),
        ("content_parts", [5], "body.content_parts.0", "'dict_type'"),
        ("content_parts", [{}], "content_parts", "`content_parts` is not supported yet."),
        ("reasoning_ended", "x", "body.reasoning_ended", "'bool_parsing'"),
        (
            "reasoning_parser_kwargs",
            {"a": 1},
            "body.reasoning_parser_kwargs.a",
            "'extra_forbidden'",
        ),
        ("return_token_ids", "x", "body.return_token_ids", "'bool_parsing'"),
        ("output_mode", "bogus", "body.output_mode", "'tokens', 'text' or 'derender'"),
        ("output_mode", None, "body.output_mode", "'literal_error'"),
        ("parse_context", 5, "body.parse_context", "'model_attributes_type'"),
        (
            "parse_context",
            {"tool_choice": "x"},
            "body.parse_context.tool_choice",
            "'literal_error'",
        ),
        ("stream", "x", "body.stream", "'bool_parsing'"),
        ("stream_options", 5, "body.stream_options", "'model_attributes_type'"),
        (
            "cache_salt",
            "a/b",
            "cache_salt",
            "Parameter 'cache_salt' must be at most 128 characters",
        ),
        ("priority", 2**63, "body.priority", "'less_than_equal'"),
        ("kv_transfer_params", 5, "body.kv_transfer_params", "'dict_type'"),
        ("kv_transfer_params", {"a": 2**64}, "extra_args", "extra_args integers must be between"),
    ],
)
async def test_a_field_with_a_bad_value_is_refused(generating, field, value, param, text):
    served = await generating()
    answer = await served.post(
        GENERATE, **{"token_ids": PROMPT, "sampling_params": {}, field: value}
    )
    assert answer.status == 400
    assert answer.error["param"] == param
    assert text in answer.error["message"]
    assert served.engine.adds == []


async def test_a_prompt_that_is_too_long_is_refused_in_the_words_of_the_engine(generating):
    served = await generating()
    answer = await generate(served, token_ids=[5] * 2049, max_tokens=1)
    assert answer.error["message"] == (
        "The decoder prompt (length 2049) is longer than the maximum model length of 2048. Make "
        "sure that `max_model_len` is no smaller than the number of text tokens."
    )


async def test_values_out_of_range_come_before_faults_of_other_fields(generating):
    served = await generating()
    answer = await generate(served, token_ids=[-1], model=5, n=0)
    assert answer.error["message"] == "n must be at least 1, got 0."
    answer = await generate(served, model="other", n=2, temperature=0)
    assert answer.status == 400
    assert (await generate(served, model="other")).status == 404


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"output_mode": "text", "sampling_params": {"detokenize": False}},
            "output_mode='text' requires sampling_params.detokenize to be true",
        ),
        (
            {"features": FEATURES, "content_parts": [{}]},
            "content_parts and features are mutually exclusive",
        ),
    ],
)
async def test_fields_that_do_not_go_together_are_a_fault_of_the_body(generating, fields, message):
    served = await generating()
    body = {"token_ids": PROMPT, "sampling_params": {}, **fields}
    answer = await served.post(GENERATE, **body)
    assert answer.error["param"] == "body"
    assert answer.error["message"] == "1 validation error:\n  " + str(
        {
            "type": "value_error",
            "loc": "body",
            "msg": f"Value error, {message}",
            "input": f"<dict of {len(body)} items>",
            "ctx": {"error": ValueError(message)},
        }
    )


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"reasoning_ended": True}, 200),
        ({"reasoning_ended": None}, 200),
        ({"reasoning_ended": False}, 400),
        ({"reasoning_parser_kwargs": {}}, 400),
    ],
)
async def test_where_reasoning_ends_matters_to_what_is_constrained_alone(
    generating, fields, status
):
    served = await generating()
    body = {"token_ids": PROMPT, **fields}
    assert (await served.post(GENERATE, sampling_params={}, **body)).status == 200
    constrained = {"structured_outputs": {"regex": "a+"}}
    answer = await served.post(GENERATE, sampling_params=constrained, **body)
    assert answer.status == status


async def test_what_only_other_output_modes_read_is_ignored(generating):
    served = await generating()
    answer = await served.post(
        GENERATE,
        token_ids=PROMPT,
        sampling_params={"skip_clone": True, "output_kind": 2, "unknown": 1, "_eos_token_id": 7},
        token_offsets=[[0, 1]],
        features={"mm_hashes": {}, "mm_placeholders": {}},
        content_parts=[],
        parse_context={"tool_choise": "auto"},
    )
    assert answer.status == 200
    assert served.engine.adds[0].sampling_params.eos_token_id == EOS_ID


async def test_more_samples_than_the_engine_runs_at_once_are_refused(generating, monkeypatch):
    served = await generating()
    (engine,) = served.client.engines
    ready = msgspec.structs.replace(engine.ready, max_num_seqs=3)
    monkeypatch.setattr(
        type(served.client), "engines", (msgspec.structs.replace(engine, ready=ready),)
    )
    assert (await generate(served, n=3)).status == 200
    answer = await generate(served, n=4)
    assert answer.error["message"] == (
        "sampling_params.n must be at most the server's max_num_seqs (3), got 4."
    )


# Aborting


@pytest.mark.parametrize("as_list", [True, False])
async def test_an_abort_ends_every_sample_of_a_request_with_that_reason(generating, as_list):
    served = await generating(lambda request: [MockStep(token_ids=[5])])
    request_id = "generate-tokens-42"
    async with served.stream(
        GENERATE, token_ids=PROMPT, sampling_params={"n": 3}, request_id="42"
    ) as stream:
        for _ in range(3):
            assert (await stream.next())["choices"][0]["finish_reason"] is None
        ids = [request_id, "unknown"] if as_list else request_id
        answer = await served.post(ABORT, request_ids=ids)
        assert (answer.status, answer.text) == (200, "")
        *ends, done = await stream.rest()
    assert done == "[DONE]"
    assert [end["choices"][0]["finish_reason"] for end in ends] == ["abort"] * 3
    await served.engine.wait_aborts()
    assert len(served.engine.aborts[0]) == 3


async def test_an_aborted_answer_that_does_not_stream_has_what_there_was(generating):
    served = await generating(lambda request: tokens(5, 6), **PAUSED)
    asked = asyncio.ensure_future(generate(served, {"X-Request-Id": "7"}, n=2))
    await served.engine.wait_adds(2)
    await served.step()
    await served.post(ABORT, request_ids=["generate-tokens-7"])
    answer = await asked
    assert answer.status == 200
    ends = [(choice["token_ids"], choice["finish_reason"]) for choice in answer.json()["choices"]]
    assert ends == [([5], "abort")] * 2


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"", "JSON decode error: Expecting value: line 1 column 1 (char 0)", None),
        (b"{}", "Missing 'request_ids' in request body", None),
        (b'{"request_ids": null}', "Missing 'request_ids' in request body", None),
        (b"[]", "Missing 'request_ids' in request body", None),
        (b"\xff", "The body could not be read.", None),
        (
            b'{"request_ids": [1]}',
            "`request_ids` must be a string or an array of strings.",
            "request_ids",
        ),
    ],
)
async def test_an_abort_that_names_no_requests_is_refused(generating, body, message, param):
    served = await generating()
    answer = await served.get(ABORT, "POST", data=aiohttp.BytesPayload(body))
    assert answer.status == 400
    assert answer.error == {"message": message, "type": "Bad Request", "param": param, "code": 400}


async def test_the_routes_are_closed_unless_they_were_opened(serve):
    served = await serve()
    for path in (GENERATE, ABORT):
        answer = await served.get(path, "POST", data=b"")
        assert (answer.status, answer.error["type"]) == (403, "PermissionDeniedError")


async def test_the_routes_ask_for_a_key(generating):
    served = await generating(api_keys=("secret",))
    for path in (GENERATE, ABORT):
        assert (await served.post(path)).status == 401


async def test_texts_come_with_the_tokens_where_they_are_asked_for(generating, say):
    served = await generating(lambda request: say("hi", "yo"))
    body = {"token_ids": PROMPT, "sampling_params": {"n": 2}, "output_mode": "text"}
    whole = (await served.post(GENERATE, **body)).json()
    assert whole["output_mode"] == "text"
    texts = [choice["text"] for choice in whole["choices"]]
    assert texts == ["hiyo", "hiyo"]
    assert all(len(choice["token_ids"]) == 2 for choice in whole["choices"])
    events = (await served.post(GENERATE, **body, stream=True)).events
    assert {event["output_mode"] for event in events} == {"text"}
    streamed = ["", ""]
    for event in events:
        (choice,) = event["choices"]
        streamed[choice["index"]] += choice["text"]
    assert streamed == texts


async def test_or_messages(generating, say):
    served = await generating(lambda request: say("hi", "yo"))
    body = {"token_ids": PROMPT, "sampling_params": {"n": 2}, "output_mode": "derender"}
    whole = (await served.post(GENERATE, **body)).json()
    assert whole["output_mode"] == "derender"
    for choice in whole["choices"]:
        assert (choice["message"]["role"], choice["message"]["content"]) == ("assistant", "hiyo")
