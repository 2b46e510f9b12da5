"""LangChain's chat model works against the server, with one answer and with several."""

import asyncio
from functools import partial

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_openai import ChatOpenAI
from openai import BadRequestError
from pydantic import BaseModel

from umbel_engine.mock import child_index, tokens

EOS = "<|im_end|>"
ANSWERS = ["hi", "hi Paris", "hi Paris is"]
CONVERSATION = [SystemMessage("Be brief."), HumanMessage("Hello")]
GENERATED = 2 + 3 + 4


class Place(BaseModel):
    """What an answer is parsed into."""

    city: str


@pytest.fixture
async def served(serve, say):
    """A server whose samples say a little more each."""

    def script(request):
        words = ["hi", " Paris", " is"][: child_index(request) + 1]
        return say(*words, EOS, finish="stop")

    return await serve(script)


def chat_model(served, **options):
    return ChatOpenAI(
        base_url=f"{served.url}/v1", api_key="none", model="smollm2", max_retries=0, **options
    )


@pytest.fixture
def model(served):
    """Make the chat model; options are those of its class."""
    return partial(chat_model, served)


def check_generations(result, conversations=1):
    for generations in result.generations:
        assert [generation.text for generation in generations] == ANSWERS
        assert [g.message.usage_metadata["output_tokens"] for g in generations] == [GENERATED] * 3
        assert {g.generation_info["finish_reason"] for g in generations} == {"stop"}
    assert len(result.generations) == conversations
    assert result.llm_output["token_usage"]["completion_tokens"] == GENERATED * conversations
    assert result.llm_output["model_name"] == "smollm2"


async def test_three_answers(model):
    check_generations(await model(n=3).agenerate([CONVERSATION]))


async def test_three_answers_of_the_model_that_blocks(model):
    check_generations(await asyncio.to_thread(model(n=3).generate, [CONVERSATION]))


async def test_three_answers_to_each_of_two_conversations(model):
    check_generations(await model(n=3).agenerate([CONVERSATION, CONVERSATION]), 2)


async def test_the_parameters_arrive(model, served):
    options = {
        "temperature": 0.5,
        "seed": 7,
        "top_p": 0.9,
        "stop": ["never said"],
        "extra_body": {"top_k": 20},
    }
    await model(n=3, max_tokens=9, **options).ainvoke(CONVERSATION)
    asked = [add.sampling_params for add in served.engine.adds]
    assert [params.seed for params in asked] == [7, 8, 9]
    assert {(p.temperature, p.top_p, p.top_k, p.max_tokens) for p in asked} == {(0.5, 0.9, 20, 9)}


def check_chunks(chunks, n):
    """Check the chunks of a stream, which LangChain joins whatever choice they are of."""
    whole = sum(chunks[1:], chunks[0])
    # Which samples come first is a matter of time.
    assert sorted(whole.text) == sorted("".join(ANSWERS[:n]))
    assert whole.usage_metadata["output_tokens"] == sum(range(2, n + 2))
    assert whole.usage_metadata["input_tokens"] > 0


@pytest.mark.parametrize("n", [1, 3])
async def test_answers_arrive_as_chunks(model, n):
    check_chunks([chunk async for chunk in model(stream_usage=True).astream(CONVERSATION, n=n)], n)


@pytest.mark.parametrize("n", [1, 3])
async def test_answers_arrive_as_chunks_in_the_model_that_blocks(model, n):
    def read():
        return list(model(stream_usage=True).stream(CONVERSATION, n=n))

    check_chunks(await asyncio.to_thread(read), n)


async def test_logprobs(serve):
    chat = chat_model(await serve(), n=3, logprobs=True, top_logprobs=2, max_tokens=3)
    result = await chat.agenerate([CONVERSATION])
    assert len(result.generations[0]) == 3
    for generation in result.generations[0]:
        content = generation.generation_info["logprobs"]["content"]
        assert [len(token["top_logprobs"]) for token in content] == [2, 2, 2]


async def test_structured_output(serve, tokenizer):
    token_ids = tokenizer.encode('{"city": "Paris"}' + EOS, add_special_tokens=False).ids
    served = await serve(lambda request: tokens(*token_ids, finish="stop"))
    chat = chat_model(served)
    answer = await chat.with_structured_output(Place, method="json_schema").ainvoke(CONVERSATION)
    assert answer == Place(city="Paris")
    (add,) = served.engine.adds
    assert "city" in add.sampling_params.structured_outputs.json["properties"]


async def test_an_error_is_that_of_the_client(model):
    with pytest.raises(BadRequestError, match="n must be at least 1, got 0"):
        await model().ainvoke(CONVERSATION, n=0)
