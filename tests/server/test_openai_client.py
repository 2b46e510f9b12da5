"""The official client works against the server, with one answer and with several."""

import pytest
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from umbel_engine.mock import child_index

EOS = "<|im_end|>"
MESSAGES = [{"role": "user", "content": "Hello"}]
ANSWERS = ["hi", "hi Paris", "hi Paris is"]


@pytest.fixture
async def ask(serve, say):
    """A client of a server whose samples say a little more each."""

    def script(request):
        words = ["hi", " Paris", " is"][: child_index(request) + 1]
        return say(*words, EOS, finish="stop")

    served = await serve(script)
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none", max_retries=0) as client:
        yield client


@pytest.fixture(params=[1, 3])
def n(request):
    return request.param


async def test_chat_completions(ask, n):
    answer = await ask.chat.completions.create(model="smollm2", messages=MESSAGES, n=n, seed=7)
    assert [choice.message.content for choice in answer.choices] == ANSWERS[:n]
    assert [choice.index for choice in answer.choices] == list(range(n))
    assert {choice.finish_reason for choice in answer.choices} == {"stop"}
    assert answer.usage.completion_tokens == sum(range(2, n + 2))
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


async def test_streamed_chat_completions(ask, n):
    stream = await ask.chat.completions.create(
        model="smollm2",
        messages=MESSAGES,
        n=n,
        stream=True,
        stream_options={"include_usage": True},
    )
    contents, finishes, usages = {}, {}, []
    async for chunk in stream:
        if chunk.usage is not None:
            usages.append(chunk.usage)
        for choice in chunk.choices:
            contents[choice.index] = contents.get(choice.index, "") + (choice.delta.content or "")
            if choice.finish_reason is not None:
                finishes[choice.index] = choice.finish_reason
    assert contents == dict(enumerate(ANSWERS[:n]))
    assert finishes == dict.fromkeys(range(n), "stop")
    assert [usage.completion_tokens for usage in usages] == [sum(range(2, n + 2))]


async def test_the_stream_helper(ask, n):
    deltas = 0
    async with ask.chat.completions.stream(model="smollm2", messages=MESSAGES, n=n) as stream:
        async for event in stream:
            if event.type == "content.delta":
                deltas += 1
        final = await stream.get_final_completion()
    assert deltas >= sum(range(1, n + 1))
    assert [choice.message.content for choice in final.choices] == ANSWERS[:n]
    assert [choice.message.role for choice in final.choices] == ["assistant"] * n
    assert [choice.finish_reason for choice in final.choices] == ["stop"] * n


async def test_completions(ask, n):
    answer = await ask.completions.create(model="smollm2", prompt="Hello", n=n)
    assert [choice.text for choice in answer.choices] == ANSWERS[:n]
    assert answer.usage.prompt_tokens == 1


async def test_streamed_completions(ask, n):
    stream = await ask.completions.create(model="smollm2", prompt=["Hello", "hi"], n=n, stream=True)
    texts = {}
    async for chunk in stream:
        (choice,) = chunk.choices
        texts[choice.index] = texts.get(choice.index, "") + choice.text
    assert texts == dict(enumerate(ANSWERS[:n] * 2))


async def test_logprobs_are_read_by_the_client(serve):
    served = await serve()
    async with AsyncOpenAI(base_url=f"{served.url}/v1", api_key="none") as client:
        answer = await client.chat.completions.create(
            model="smollm2", messages=MESSAGES, n=2, logprobs=True, top_logprobs=2, max_tokens=3
        )
    for choice in answer.choices:
        assert [len(token.top_logprobs) for token in choice.logprobs.content] == [2, 2, 2]


async def test_errors_are_those_of_the_client(ask):
    with pytest.raises(BadRequestError, match="n must be at least 1, got 0") as caught:
        await ask.chat.completions.create(model="smollm2", messages=MESSAGES, n=0, stream=True)
    assert caught.value.type == "BadRequestError"
    with pytest.raises(NotFoundError) as caught:
        await ask.completions.create(model="gpt", prompt="Hello")
    assert caught.value.param == "model"


async def test_models_are_listed(ask):
    models = await ask.models.list()
    assert [model.id for model in models.data] == ["smollm2"]
