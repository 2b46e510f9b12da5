"""Tokens in, tokens out, n of them: what a generate request is answered."""

import base64
import io
import json
import math
import re

import numpy as np
import pytest

from umbel_engine import Logprobs
from umbel_engine.mock import MockStep, per_child, sampled, tokens
from umbel_engine.tensors import to_array
from umbel_engine.wire import PrefillStats, RequestFault

from .generating import EOS_ID, GENERATE, PROMPT, generate

COMPLETIONS = "/v1/completions"
PAUSED = {"engine_options": {"paused": True}}


DETAILS_UNKNOWN = '"prompt_tokens_details":null,"completion_tokens_details":null'


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


# Texts and messages


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
