"""Parallel sampling: one prompt, n answers."""

import re

import pytest

from umbel_chat import ContentDelta, PlainTextProcessor
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_server.cli import make_parser, settings_of
from umbel_server.errors import OptionError

EOS = "<|im_end|>"

BARELY_RANDOM = 0.000001
"""A temperature that is raised to 0.01, and so is not greedy."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def two_answers(say):
    """Say "hi" and stop in three tokens, say "yo" and be cut off after two."""
    return per_child(say("h", "i", EOS, finish="stop"), say("y", "o"))


def finishes_of(events):
    """Give the finish reason of every choice, which must come once."""
    finishes = [
        (choice["index"], choice["finish_reason"])
        for event in events
        for choice in event["choices"]
        if choice["finish_reason"] is not None
    ]
    assert len(dict(finishes)) == len(finishes)
    return dict(finishes)


async def test_chat_completions_n_returns_one_choice_per_seeded_sample(serve, two_answers, seeds):
    served = await serve(two_answers)
    answer = await served.ask(n=2, seed=7)
    assert answer.status == 200
    body = answer.json()
    choices = [
        (choice["index"], choice["message"]["content"], choice["finish_reason"])
        for choice in body["choices"]
    ]
    assert choices == [(0, "hi", "stop"), (1, "yo", "length")]

    adds = served.engine.adds
    prompt = len(adds[0].prompt_token_ids)
    usage = body["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (prompt, 5)
    assert usage["total_tokens"] == prompt + 5

    assert seeds(served.engine) == {f"0_{body['id']}": 7, f"1_{body['id']}": 8}
    assert [add.external_req_id for add in adds] == [body["id"]] * 2
    assert len({re.sub(r"^\d_", "", add.request_id) for add in adds}) == 1

    metrics = await served.metrics()
    assert metrics["vllm:request_params_n_count"] == 1
    assert metrics["vllm:request_params_n_sum"] == 2
    assert metrics["vllm:request_max_num_generation_tokens_count"] == 1
    assert metrics["vllm:request_max_num_generation_tokens_sum"] == 3
    assert metrics["vllm:request_generation_tokens_count"] == 2
    assert metrics["vllm:request_generation_tokens_sum"] == 5


async def test_chat_completions_stream_n_indexes_chunks_and_sends_one_usage_chunk(
    serve, two_answers, texts_of
):
    served = await serve(two_answers)
    answer = await served.ask(
        n=2,
        seed=7,
        temperature=BARELY_RANDOM,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert answer.status == 200
    *events, last = answer.events
    assert [len(event["choices"]) for event in events] == [1] * len(events)
    roles = [(e["choices"][0]["index"], e["choices"][0]["delta"].get("role")) for e in events]
    assert roles[:2] == [(0, "assistant"), (1, "assistant")]
    assert {role for _, role in roles[2:]} == {None}
    assert texts_of(events) == {0: "hi", 1: "yo"}
    assert finishes_of(events) == {0: "stop", 1: "length"}
    assert not any("usage" in event for event in events)
    prompt = len(served.engine.adds[0].prompt_token_ids)
    assert last["choices"] == []
    assert last["usage"] == {
        "prompt_tokens": prompt,
        "total_tokens": prompt + 5,
        "completion_tokens": 5,
    }
    assert {add.sampling_params.temperature for add in served.engine.adds} == {0.01}


async def test_completions_n_returns_one_choice_per_sample(serve, two_answers, seeds):
    served = await serve(two_answers)
    answer = await served.complete(n=2, seed=-1, temperature=BARELY_RANDOM)
    assert answer.status == 200
    body = answer.json()
    choices = [(c["index"], c["text"], c["finish_reason"]) for c in body["choices"]]
    assert choices == [(0, "hi", "stop"), (1, "yo", "length")]
    assert body["usage"]["prompt_tokens"] == 1
    assert body["usage"]["completion_tokens"] == 5
    assert seeds(served.engine) == {f"0_{body['id']}-0": None, f"1_{body['id']}-0": None}
    assert {add.external_req_id for add in served.engine.adds} == {f"{body['id']}-0"}


async def test_completions_stream_n_indexes_chunks_and_sends_one_usage_chunk(
    serve, two_answers, texts_of
):
    served = await serve(two_answers)
    answer = await served.complete(
        n=2,
        temperature=BARELY_RANDOM,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert answer.status == 200
    *events, last = answer.events
    assert [len(event["choices"]) for event in events] == [1] * len(events)
    assert texts_of(events) == {0: "hi", 1: "yo"}
    assert finishes_of(events) == {0: "stop", 1: "length"}
    assert not any("usage" in event for event in events)
    assert last["choices"] == []
    assert last["usage"] == {"prompt_tokens": 1, "total_tokens": 6, "completion_tokens": 5}


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"n": 0}, "n must be at least 1, got 0."),
        (
            {"n": 16385},
            "n must be at most 16384, got 16385. To increase this limit, set the "
            "VLLM_MAX_N_SEQUENCES environment variable.",
        ),
        ({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2."),
    ],
    ids=["zero", "too-many", "greedy"],
)
async def test_n_is_checked_like_python_sampling_params(serve, body, message, stream):
    served = await serve()
    for answer in (
        await served.ask(stream=stream, **body),
        await served.complete(stream=stream, **body),
    ):
        assert answer.status == 400
        assert answer.error == {
            "message": message,
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        }
    assert served.engine.adds == []


async def test_render_forwards_n_to_the_generate_request_check(serve):
    served = await serve(enable_scale_out=True)
    chat = await served.post(f"{CHAT}/render", messages=MESSAGES, n=3, seed=7)
    assert chat.status == 200
    assert chat.json()["sampling_params"]["n"] == 3
    answer = await served.post(f"{COMPLETIONS}/render", prompt=["Hello", "hi"], n=4)
    assert answer.status == 200
    assert [prompt["sampling_params"]["n"] for prompt in answer.json()] == [4, 4]
    for path, prompt in ((CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "Hello"})):
        refused = await served.post(f"{path}/render", n=2, temperature=0, **prompt)
        assert refused.status == 400
        assert refused.error["message"] == "n must be 1 when using greedy sampling, got 2."
    assert served.engine.adds == []


@pytest.mark.parametrize(
    ("flags", "environment", "limit"),
    [
        ([], {}, 16384),
        (["--max-n-sequences", "2"], {}, 2),
        ([], {"VLLM_MAX_N_SEQUENCES": "3"}, 3),
        ([], {"VLLM_MAX_N_SEQUENCES": " 1_0 "}, 10),
        (["--max-n-sequences", "2"], {"VLLM_MAX_N_SEQUENCES": "3"}, 2),
        (["--max-n-sequences", "2"], {"VLLM_MAX_N_SEQUENCES": "many"}, 2),
        ([], {"VLLM_MAX_N_SEQUENCES": "0"}, 0),
        ([], {"VLLM_MAX_N_SEQUENCES": "many"}, "VLLM_MAX_N_SEQUENCES must be an integer"),
        ([], {"VLLM_MAX_N_SEQUENCES": ""}, "VLLM_MAX_N_SEQUENCES must be an integer"),
        (["--max-n-sequences", "2.5"], {}, "--max-n-sequences must be an integer"),
        (["--max-n-sequences", ""], {}, "--max-n-sequences must be an integer"),
    ],
)
async def test_n_limit_follows_max_n_sequences_option(serve, flags, environment, limit):
    parsed = make_parser().parse_args(["serve", "a-model", *flags])
    if isinstance(limit, str):
        with pytest.raises(OptionError, match=f"^{limit}, got '.*'[.]$"):
            settings_of(parsed, (), environment)
        return
    settings = settings_of(parsed, (), environment)
    assert settings.max_n_sequences == limit
    served = await serve(max_n_sequences=settings.max_n_sequences, enable_scale_out=True)
    for path, prompt in ((CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "Hello"})):
        for route in (path, f"{path}/render"):
            too_many = await served.post(route, n=limit + 1, max_tokens=1, **prompt)
            assert too_many.status == 400
            assert too_many.error["message"] == (
                f"n must be at most {limit}, got {limit + 1}. To increase this limit, set the "
                "VLLM_MAX_N_SEQUENCES environment variable."
            )
            if 0 < limit < 100:
                allowed = await served.post(route, n=limit, max_tokens=1, **prompt)
                assert allowed.status == 200
    assert len(served.engine.adds) == (2 * limit if limit < 100 else 0)


class CountingProcessor(PlainTextProcessor):
    """An output processor that numbers what it was fed, and says so at the end."""

    def __init__(self):
        self._fed = 0

    def feed(self, text, token_ids):
        self._fed += len(token_ids)
        return [ContentDelta(text)] if text else []

    def finish(self):
        return [ContentDelta(f"[{self._fed}]")]


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_each_sample_has_an_output_processor_of_its_own(serve, two_answers, texts_of, stream):
    served = await serve(two_answers, new_processor=CountingProcessor)
    answer = await served.ask(n=2, stream=stream)
    if stream:
        assert texts_of(answer.events) == {0: "hi[3]", 1: "yo[2]"}
    else:
        contents = [choice["message"]["content"] for choice in answer.json()["choices"]]
        assert contents == ["hi[3]", "yo[2]"]


async def test_a_disconnect_aborts_every_sample(serve, say):
    served = await serve(
        lambda request: say("hi", "hi", finish=None), engine_options={"paused": True}
    )
    client = await served.raw(CHAT, messages=MESSAGES, n=4, stream=True)
    adds = await served.engine.wait_adds(4)
    await served.engine.step()
    await client.until(b'"content":"hi"', 4)
    client.close()
    (aborted,) = await served.engine.wait_aborts()
    assert sorted(aborted) == sorted(add.request_id for add in adds)


async def test_role_chunks_come_in_index_order_before_the_sample_that_is_first(serve, token):
    def script(request):
        if request.request_id.startswith("1_"):
            return tokens(token("yo"))
        # Nothing but a step that brings no token, until the sibling has ended.
        return [MockStep(), MockStep(token_ids=[token("hi")], finish="length")]

    served = await serve(script, engine_options={"paused": True})
    async with served.stream(CHAT, messages=MESSAGES, n=2) as stream:
        await served.engine.wait_adds(2)
        await served.engine.step()
        first = [await stream.next() for _ in range(3)]
        shown = [(e["choices"][0]["index"], e["choices"][0]["delta"]) for e in first]
        assert shown == [
            (0, {"role": "assistant", "content": ""}),
            (1, {"role": "assistant", "content": ""}),
            (1, {"content": "yo"}),
        ]
        await served.engine.step()
        *rest, done = await stream.rest()
        assert [e["choices"][0]["delta"] for e in rest] == [{"content": "hi"}]
        assert done == "[DONE]"


@pytest.mark.parametrize("n", [{}, {"n": 1}, {"n": None}], ids=["absent", "one", "null"])
async def test_n_of_one_is_sent_without_a_child_prefix(serve, say, n):
    served = await serve(lambda request: say("hi"))
    chat = (await served.ask(seed=7, **n)).json()
    add = served.engine.adds[0]
    assert re.fullmatch(re.escape(chat["id"]) + "-[0-9a-f]{8}", add.request_id)
    assert add.external_req_id == chat["id"]
    assert add.sampling_params.seed == 7
    if n.get("n", 1) is None:
        return
    completion = (await served.complete(seed=7, **n)).json()
    add = served.engine.adds[1]
    assert re.fullmatch(re.escape(completion["id"]) + "-0-[0-9a-f]{8}", add.request_id)
    assert add.external_req_id == f"{completion['id']}-0"
