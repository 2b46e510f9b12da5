"""What an answer carries beside its text: transfer parameters, weight versions, experts."""

import base64
import io

import numpy as np
import pytest

from umbel_engine.mock import MockStep, child_index

HI, YO = 300, 301


def answer(request):
    """Say "hi", then "yo", and give what a sample can bring along."""
    index = child_index(request)
    yield MockStep(token_ids=(HI,))
    yield MockStep(
        token_ids=(YO,),
        finish="length",
        kv_transfer_params={"blocks": [1, 2], "child": index},
        ec_transfer_params={"cache": "x"},
        routed_experts=np.full((3, 2, 2), index, np.int16),
    )


def span(version, start, end):
    return {"version": version, "start": start, "end": end}


kinds = pytest.mark.parametrize("kind", ["ask", "complete"])


@kinds
async def test_transfer_parameters_of_the_engine_are_in_the_answer(serve, kind):
    served = await serve(answer)
    whole = (await getattr(served, kind)(n=2)).json()
    assert whole["kv_transfer_params"] == {"blocks": [1, 2], "child": 0}
    assert whole["ec_transfer_params"] == {"cache": "x"}


@kinds
async def test_in_a_stream_they_come_with_the_end_of_each_choice(serve, kind):
    served = await serve(answer)
    events = (await getattr(served, kind)(n=2, stream=True)).events
    ends = {}
    for event in events:
        (choice,) = event["choices"]
        if choice["finish_reason"] is None:
            assert event.get("kv_transfer_params") is None
        else:
            ends[choice["index"]] = event["kv_transfer_params"]
    assert ends == {index: {"blocks": [1, 2], "child": index} for index in range(2)}


async def test_those_of_the_first_prompt_stand_for_a_list_of_prompts(serve):
    def script(request):
        prompt = list(request.prompt_token_ids)
        yield MockStep(token_ids=(HI,), finish="length", kv_transfer_params={"prompt": prompt})

    served = await serve(script)
    whole = (await served.complete(prompt=["yo", "hi"])).json()
    assert whole["kv_transfer_params"] == {"prompt": [YO]}


@kinds
async def test_experts_are_a_numpy_file_in_base64(serve, kind):
    served = await serve(answer)
    choices = (await getattr(served, kind)(n=2)).json()["choices"]
    for index, choice in enumerate(choices):
        file = io.BytesIO(base64.b64decode(choice["routed_experts"], validate=True))
        experts = np.load(file, allow_pickle=False)
        np.testing.assert_array_equal(experts, np.full((3, 2, 2), index, np.int16))
        assert experts.dtype == np.int16


@kinds
async def test_weight_versions_are_told_where_they_are_asked_for(serve, kind):
    served = await serve(answer)
    served.engine.weight_version = "step-7"
    for asked, expected in ((True, [span("step-7", 0, 2)]), (False, None)):
        body = {"n": 2, "return_weight_versions": asked}
        choices = (await getattr(served, kind)(**body)).json()["choices"]
        assert [choice["weight_versions"] for choice in choices] == [expected] * 2
        events = (await getattr(served, kind)(stream=True, **body)).events
        parts = [choice for event in events for choice in event["choices"]]
        ends = [choice for choice in parts if choice["finish_reason"] is not None]
        assert [choice["weight_versions"] for choice in ends] == [expected] * 2
        others = [choice for choice in parts if choice["finish_reason"] is None]
        assert all(choice.get("weight_versions") is None for choice in others)


async def test_weights_that_change_in_mid_answer_are_two_spans(serve):
    def script(request):
        yield MockStep(token_ids=(HI, YO))
        yield MockStep(token_ids=(HI,), finish="length")

    served = await serve(script, engine_options={"paused": True})
    served.engine.weight_version = "old"
    body = {"return_weight_versions": True, "n": 2, "prompt": "Hello"}
    async with served.stream("/v1/completions", **body) as stream:
        await served.engine.wait_adds(2)
        await served.step()
        served.engine.weight_version = "new"
        await served.step()
        *events, done = await stream.rest()
    assert done == "[DONE]"
    ends = [event["choices"][0] for event in events if event["choices"][0]["finish_reason"]]
    expected = [span("old", 0, 2), span("new", 2, 3)]
    assert [choice["weight_versions"] for choice in ends] == [expected] * 2


@kinds
async def test_an_engine_that_has_none_of_them_leaves_nulls(serve, say, kind):
    served = await serve(lambda request: say("hi", "yo"))
    whole = (await getattr(served, kind)(return_weight_versions=True)).json()
    assert (whole["kv_transfer_params"], whole["ec_transfer_params"]) == (None, None)
    (choice,) = whole["choices"]
    assert (choice["routed_experts"], choice["weight_versions"]) == (None, None)


async def test_experts_of_tokens_after_a_stop_string_are_not_told(serve, token):
    experts = np.arange(4, dtype=np.int16).reshape(4, 1, 1)
    step = MockStep(token_ids=(HI, token("b"), YO, HI), routed_experts=experts)
    served = await serve(lambda request: [step])
    whole = (await served.complete(stop="b", return_token_ids=True)).json()
    (choice,) = whole["choices"]
    assert (choice["token_ids"], choice["text"]) == ([HI, token("b")], "hi")
    told = np.load(io.BytesIO(base64.b64decode(choice["routed_experts"])))
    assert told.ravel().tolist() == [0, 1]


# What goes to the engine.


@kinds
async def test_extra_arguments_go_to_the_engine_with_the_transfer_parameters(serve, sent, kind):
    served = await serve()
    extra = {"a": 1, "b": "x", "c": [1, 0.5, "y"]}
    remote = {"do_remote_prefill": True, "blocks": [[1], [2]]}
    body = {"vllm_xargs": extra, "kv_transfer_params": remote, "ec_transfer_params": {"e": None}}
    assert (await getattr(served, kind)(n=2, max_tokens=1, **body)).status == 200
    assert sent(served.engine).extra_args == {
        **extra,
        "kv_transfer_params": remote,
        "ec_transfer_params": {"e": None},
    }


@kinds
@pytest.mark.parametrize("empty", [None, {}])
async def test_empty_ones_are_not_sent(serve, sent, kind, empty):
    served = await serve()
    body = {"vllm_xargs": empty, "kv_transfer_params": empty, "ec_transfer_params": empty}
    assert (await getattr(served, kind)(max_tokens=1, **body)).status == 200
    assert sent(served.engine).extra_args is None


@kinds
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"vllm_xargs": {"a": [2**64]}},
            "extra_args integers must be between -2**63 and 2**64 - 1. (parameter=extra_args)",
        ),
        (
            {"kv_transfer_params": {"a": {"b": -(2**63) - 1}}},
            "extra_args integers must be between -2**63 and 2**64 - 1. (parameter=extra_args)",
        ),
        (
            {"vllm_xargs": {"kv_transfer_params": "x"}},
            "kv_transfer_params must be an object. (parameter=kv_transfer_params)",
        ),
        (
            {"vllm_xargs": {"a": "\ud800"}},
            "extra_args must not contain lone surrogates. (parameter=extra_args)",
        ),
    ],
)
async def test_what_the_engine_could_not_read_is_refused(serve, kind, fields, message):
    served = await serve()
    refused = await getattr(served, kind)(**fields)
    assert (refused.status, refused.error["message"]) == (400, message)
    assert served.engine.adds == []


@kinds
@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        ({}, {}, None),
        ({"vllm_xargs": {"session_id": "x"}}, {}, "x"),
        ({"vllm_xargs": {"session_id": "x"}}, {"X-Session-ID": "h"}, "h"),
        ({"vllm_xargs": {"session_id": "x"}, "session_id": "b"}, {"X-Session-ID": "h"}, "b"),
        ({"vllm_xargs": {"session_id": "x"}, "session_id": ""}, {}, "x"),
        ({"vllm_xargs": {"session_id": ""}}, {}, None),
        ({"vllm_xargs": {"session_id": 5}}, {}, None),
    ],
)
async def test_the_session_is_the_first_that_is_named(serve, kind, body, headers, expected):
    served = await serve()
    assert (await getattr(served, kind)(headers, n=2, max_tokens=1, **body)).status == 200
    assert [add.session_id for add in served.engine.adds] == [expected] * 2
