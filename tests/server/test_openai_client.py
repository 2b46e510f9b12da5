"""The official client, in both its forms, for all it has a method for on the routes that we serve."""

import asyncio
import json

import openai
import pytest
from openai import AsyncOpenAI
from pydantic import BaseModel

from umbel_engine.mock import MockStep, child_index, made_up_logprobs, sampled, tokens
from umbel_engine.wire import RequestFault

from .openai_forms import CHAT, MESSAGES, connect

__all__ = ["connect"]
"""Fixtures that are defined elsewhere."""

EOS = "<|im_end|>"
COMPLETIONS = "completions.create"
ANSWERS = ["hi", "hi Paris", "hi Paris is"]
KEY = "a-key"
LETTERS = range(20, 100)


class Place(BaseModel):
    """What an answer is parsed into."""

    city: str
    rank: int


@pytest.fixture
async def served(serve, say):
    """A server whose samples say a little more each."""

    def script(request):
        words = ["hi", " Paris", " is"][: child_index(request) + 1]
        return say(*words, EOS, finish="stop")

    return await serve(script)


@pytest.fixture
def ask(connect, served):
    return connect(served)


@pytest.fixture
async def ask_model(connect, serve):
    """A client of a server in front of made-up tokens, letters all, and log-probabilities."""
    return connect(await serve(sampled(LETTERS)))


@pytest.fixture(params=[1, 3])
def n(request):
    return request.param


def texts_of(chunks):
    texts = {}
    for chunk in chunks:
        for choice in chunk.choices:
            text = choice.text if hasattr(choice, "text") else choice.delta.content
            texts[choice.index] = texts.get(choice.index, "") + (text or "")
    return texts


def finishes_of(chunks):
    return {
        choice.index: choice.finish_reason
        for chunk in chunks
        for choice in chunk.choices
        if choice.finish_reason is not None
    }


# Chat.


async def test_chat_completions(ask, served, n):
    answer = await ask(CHAT, n=n, seed=7)
    assert [choice.message.content for choice in answer.choices] == ANSWERS[:n]
    assert [choice.message.role for choice in answer.choices] == ["assistant"] * n
    assert [choice.index for choice in answer.choices] == list(range(n))
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert answer.usage.completion_tokens == sum(range(2, n + 2))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert (answer.object, answer.model) == ("chat.completion", "smollm2")
    assert [add.sampling_params.seed for add in served.engine.adds] == list(range(7, 7 + n))


async def test_chat_completions_arrive_as_chunks(ask, n):
    chunks = await ask.list_of(CHAT, n=n, stream=True, stream_options={"include_usage": True})
    assert texts_of(chunks) == dict(enumerate(ANSWERS[:n]))
    assert finishes_of(chunks) == dict.fromkeys(range(n), "stop")
    usages = [chunk.usage.completion_tokens for chunk in chunks if chunk.usage is not None]
    assert usages == [sum(range(2, n + 2))]
    assert len({chunk.id for chunk in chunks}) == 1


async def test_the_stream_helper(ask, n):
    events, final = await ask.helped(n=n)
    deltas = [event for event in events if event.type == "content.delta"]
    assert len(deltas) >= sum(range(1, n + 1))
    done = [event.content for event in events if event.type == "content.done"]
    assert sorted(done) == ANSWERS[:n]
    assert [choice.message.content for choice in final.choices] == ANSWERS[:n]
    assert [choice.message.role for choice in final.choices] == ["assistant"] * n
    assert [choice.finish_reason for choice in final.choices] == ["stop"] * n


async def test_the_stream_helper_gathers_logprobs_and_usage(connect, serve):
    ask = connect(await serve(sampled(LETTERS, eos_after=2)))
    events, final = await ask.helped(
        n=2, logprobs=True, top_logprobs=2, stream_options={"include_usage": True}
    )
    deltas = [event for event in events if event.type == "logprobs.content.delta"]
    assert sum(len(delta.content) for delta in deltas) == 6
    for choice in final.choices:
        assert [len(token.top_logprobs) for token in choice.logprobs.content] == [2, 2, 2]
    assert final.usage.completion_tokens == 6


async def test_logprobs_of_a_chat(ask_model):
    answer = await ask_model(CHAT, n=2, logprobs=True, top_logprobs=2, max_tokens=3)
    for choice in answer.choices:
        content = choice.logprobs.content
        assert [len(token.top_logprobs) for token in content] == [2, 2, 2]
        assert [token.top_logprobs[0].token for token in content] == [t.token for t in content]
        assert all(token.logprob == token.top_logprobs[0].logprob < 0 for token in content)
        assert b"".join(bytes(token.bytes) for token in content).decode() == choice.message.content
    assert answer.choices[0].logprobs != answer.choices[1].logprobs


async def test_stop_strings(ask):
    answer = await ask(CHAT, n=3, stop=[" Paris", "never said"])
    assert [choice.message.content for choice in answer.choices] == ["hi"] * 3
    assert [choice.stop_reason for choice in answer.choices] == [None, " Paris", " Paris"]


async def test_the_helpers_raise_when_the_limit_is_reached(ask_model):
    with pytest.raises(openai.LengthFinishReasonError):
        await ask_model("chat.completions.parse", max_completion_tokens=3, n=2)
    answer = await ask_model(CHAT, max_completion_tokens=3, n=2)
    assert [choice.finish_reason for choice in answer.choices] == ["length"] * 2


@pytest.fixture
def ask_for_json(connect, serve, tokenizer):
    """A client of a server whose samples answer in JSON, each with a rank of its own."""

    async def ask_for_json(n):
        def script(request):
            text = json.dumps({"city": "Paris", "rank": child_index(request)})
            token_ids = tokenizer.encode(text + EOS, add_special_tokens=False).ids
            return tokens(*token_ids, finish="stop")

        served = await serve(script)
        return served, connect(served)

    return ask_for_json


async def test_answers_are_parsed_into_the_type_that_was_asked_for(ask_for_json, n):
    served, ask = await ask_for_json(n)
    answer = await ask("chat.completions.parse", response_format=Place, n=n)
    places = [choice.message.parsed for choice in answer.choices]
    assert places == [Place(city="Paris", rank=rank) for rank in range(n)]
    for add in served.engine.adds:
        constraint = add.sampling_params.structured_outputs
        assert constraint.json["properties"].keys() == {"city", "rank"}
        assert constraint.backend == "xgrammar"


async def test_the_stream_helper_parses(ask_for_json):
    _, ask = await ask_for_json(2)
    events, final = await ask.helped(n=2, response_format=Place)
    places = [Place(city="Paris", rank=rank) for rank in range(2)]
    assert [choice.message.parsed for choice in final.choices] == places
    done = [event.parsed for event in events if event.type == "content.done"]
    assert sorted(done, key=lambda place: place.rank) == places


async def test_a_schema_that_was_written_by_hand(ask_for_json):
    served, ask = await ask_for_json(1)
    schema = {"type": "object", "properties": {"city": {"type": "string"}}}
    wanted = {"type": "json_schema", "json_schema": {"name": "place", "schema": schema}}
    answer = await ask(CHAT, response_format=wanted)
    assert json.loads(answer.choices[0].message.content)["city"] == "Paris"
    assert served.engine.adds[0].sampling_params.structured_outputs.json == schema


async def test_fields_that_only_vllm_has(ask, served):
    answer = await ask(
        CHAT,
        n=2,
        extra_body={
            "top_k": 40,
            "min_p": 0.1,
            "repetition_penalty": 1.1,
            "min_tokens": 1,
            "stop_token_ids": [7],
            "ignore_eos": True,
            "return_token_ids": True,
            "structured_outputs": {"regex": "(hi|yo).*"},
            "chat_template_kwargs": {"a": 1},
            "priority": 3,
        },
        extra_headers={"X-Request-Id": "an-id"},
    )
    assert answer.id == "chatcmpl-an-id"
    assert answer.prompt_token_ids == served.engine.adds[0].prompt_token_ids
    assert [len(choice.token_ids) for choice in answer.choices] == [2, 3]
    (params,) = {
        (p.top_k, p.min_p, p.repetition_penalty, p.min_tokens, p.ignore_eos)
        for p in (add.sampling_params for add in served.engine.adds)
    }
    assert params == (40, 0.1, 1.1, 1, True)
    assert [add.priority for add in served.engine.adds] == [3, 3]
    constraints = [add.sampling_params.structured_outputs for add in served.engine.adds]
    assert [constraint.regex for constraint in constraints] == ["(hi|yo).*"] * 2


async def test_the_response_as_it_came(ask):
    raw = await ask("chat.completions.with_raw_response.create", n=3)
    assert raw.status_code == 200
    assert raw.headers["content-type"].startswith("application/json")
    parsed = raw.parse()
    assert [choice.message.content for choice in parsed.choices] == ANSWERS


# Completions.


async def test_completions(ask, n):
    answer = await ask(COMPLETIONS, n=n)
    assert [choice.text for choice in answer.choices] == ANSWERS[:n]
    assert [choice.index for choice in answer.choices] == list(range(n))
    assert answer.usage.prompt_tokens == 1
    assert answer.object == "text_completion"


@pytest.mark.parametrize("prompts", [["Hello", "hi"], [[6004], [300]]], ids=["texts", "tokens"])
async def test_several_prompts(ask, n, prompts):
    answer = await ask(COMPLETIONS, prompt=prompts, n=n)
    assert [choice.text for choice in answer.choices] == ANSWERS[:n] * 2
    assert [choice.index for choice in answer.choices] == list(range(2 * n))
    assert answer.usage.prompt_tokens == 2


async def test_completions_arrive_as_chunks(ask, n):
    chunks = await ask.list_of(
        COMPLETIONS,
        prompt=["Hello", "hi"],
        n=n,
        stream=True,
        stream_options={"include_usage": True},
    )
    assert texts_of(chunks) == dict(enumerate(ANSWERS[:n] * 2))
    assert finishes_of(chunks) == dict.fromkeys(range(2 * n), "stop")
    assert chunks[-1].usage.completion_tokens == 2 * sum(range(2, n + 2))


async def test_an_echoed_prompt_with_its_logprobs(ask_model, n):
    answer = await ask_model(
        COMPLETIONS, prompt="Hello world", n=n, echo=True, logprobs=2, max_tokens=3
    )
    assert len(answer.choices) == n
    for choice in answer.choices:
        logprobs = choice.logprobs
        assert logprobs.tokens[:2] == ["Hello", " world"]
        assert choice.text == "".join(logprobs.tokens)
        assert logprobs.token_logprobs[0] is None
        assert all(logprob < 0 for logprob in logprobs.token_logprobs[1:])
        assert logprobs.top_logprobs[0] is None
        assert all(len(top) >= 2 for top in logprobs.top_logprobs[1:])
        assert logprobs.text_offset[:3] == [0, 5, 11]
        assert len(logprobs.tokens) == 5


async def test_a_prompt_alone_is_scored(ask_model):
    answer = await ask_model(
        COMPLETIONS, prompt="Hello world", n=2, echo=True, logprobs=1, max_tokens=0
    )
    for choice in answer.choices:
        assert choice.text == "Hello world"
        assert choice.logprobs.tokens == ["Hello", " world"]


async def test_the_best_of_several(connect, serve, say, token):
    def script(request):
        index = child_index(request)
        text = ["hi", "yo", " Paris", " London"][index]
        logprobs = made_up_logprobs((token(text),), 1)
        logprobs.logprobs[:] = [-4.0, -1.0, -3.0, -2.0][index]
        return [MockStep(token_ids=(token(text),), logprobs=logprobs, finish="length")]

    ask = connect(await serve(script))
    answer = await ask(COMPLETIONS, n=2, best_of=4)
    assert [choice.text for choice in answer.choices] == ["yo", " London"]
    assert answer.usage.completion_tokens == 4


# Models.


async def test_models_are_listed(ask):
    models = await ask.list_of("models.list")
    assert [(model.id, model.owned_by) for model in models] == [("smollm2", "vllm")]


async def test_a_single_model_is_no_route_as_in_vllm(ask):
    with pytest.raises(openai.NotFoundError):
        await ask("models.retrieve", model="smollm2")


# Errors, and requests that are given up.


@pytest.mark.parametrize("method", [CHAT, COMPLETIONS])
@pytest.mark.parametrize("stream", [False, True])
async def test_bad_requests(ask, method, stream):
    with pytest.raises(openai.BadRequestError, match="n must be at least 1, got 0") as caught:
        await ask(method, n=0, stream=stream)
    assert (caught.value.type, caught.value.code) == ("BadRequestError", "400")


async def test_a_field_that_is_at_fault_is_named(ask):
    with pytest.raises(openai.BadRequestError) as caught:
        await ask(CHAT, temperature=-1)
    assert caught.value.param == "temperature"


async def test_a_model_that_is_not_served(ask):
    with pytest.raises(openai.NotFoundError) as caught:
        await ask(COMPLETIONS, model="gpt")
    assert (caught.value.param, caught.value.type) == ("model", "NotFoundError")


async def test_keys(connect, serve, say):
    served = await serve(lambda request: say("hi"), api_keys=(KEY,))
    answer = await connect(served, api_key=KEY)(CHAT)
    assert answer.choices[0].message.content == "hi"
    for method in (CHAT, COMPLETIONS, "models.list"):
        with pytest.raises(openai.AuthenticationError):
            await connect(served, api_key="another").list_of(method)


FAULTS = [
    (RequestFault("out of blocks", retryable=True), 503),
    (RequestFault("out of memory"), 500),
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("fault", "status"), FAULTS)
async def test_a_request_that_the_engine_fails(connect, serve, say, fault, status, stream):
    def script(request):
        return [MockStep(error=fault)] if child_index(request) == 0 else say("hi")

    ask = connect(await serve(script))
    with pytest.raises(openai.InternalServerError) as caught:
        await ask(CHAT, n=2, stream=stream)
    assert caught.value.status_code == status


async def test_an_error_within_a_stream(connect, serve, token):
    def script(request):
        yield MockStep(token_ids=[token("hi")])
        yield MockStep(error=RequestFault("out of memory"))

    ask = connect(await serve(script))
    with pytest.raises(openai.APIError, match="out of memory"):
        await ask.list_of(CHAT, n=3, stream=True)


async def test_a_stream_that_is_closed_ends_in_the_engine(connect, serve, token):
    def script(request):
        while True:
            yield MockStep(token_ids=[token("hi")])

    served = await serve(script, engine_options={"step_seconds": 0.01})
    first = await connect(served).first_of(n=3)
    assert first.choices[0].delta.role == "assistant"
    await served.engine.wait_aborts()
    await served.engine.wait_idle()
    assert sum(map(len, served.engine.aborts)) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_request_that_takes_too_long_ends_in_the_engine(connect, serve, stream):
    served = await serve(engine_options={"paused": True})
    with pytest.raises(openai.APITimeoutError):
        await connect(served)(CHAT, n=3, stream=stream, timeout=0.2)
    await served.engine.wait_aborts()
    await served.engine.wait_idle()
    assert sum(map(len, served.engine.aborts)) == 3


async def test_a_task_that_is_cancelled_ends_in_the_engine(serve):
    served = await serve(engine_options={"paused": True})
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        create = client.chat.completions.create
        task = asyncio.ensure_future(create(model="smollm2", messages=MESSAGES, n=3))
        await served.engine.wait_adds(3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await served.engine.wait_aborts()
        await served.engine.wait_idle()
