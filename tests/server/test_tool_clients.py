"""Clients that call tools: the official one in both its forms, and LangChain's chat model."""

import asyncio
import json

import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from openai import pydantic_function_tool
from pydantic import BaseModel, Field

from umbel_engine.mock import MockStep, child_index, per_child

from .openai_forms import CHAT, MESSAGES, connect

__all__ = ["connect"]
"""Fixtures that are defined elsewhere."""


class GetWeather(BaseModel):
    """Tell the weather of a city."""

    city: str
    days: int = Field(description="How many days from now on.")


class GetTime(BaseModel):
    """Tell the time."""


class Place(BaseModel):
    """What an answer is parsed into."""

    city: str


TOOLS = [pydantic_function_tool(GetWeather), pydantic_function_tool(GetTime)]

ARGUMENTS = '{"city": "été \\"Paris\\"", "days": -1}'
WEATHER = f'<tool_call>\n{{"name": "GetWeather", "arguments": {ARGUMENTS}}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "GetTime", "arguments": {}}\n</tool_call>'
BARE = '<tool_call>{"name": "GetTime"}</tool_call>'
PARIS = GetWeather(city='été "Paris"', days=-1)

SAMPLES = [WEATHER, "hi" + TIME + "\n" + WEATHER, "Hello world"]
"""What three samples say, and below what is told of each: its content and its calls."""
TOLD = [
    (None, [("GetWeather", ARGUMENTS)]),
    ("hi", [("GetTime", "{}"), ("GetWeather", ARGUMENTS)]),
    ("Hello world", []),
]
FINISHES = ["tool_calls", "tool_calls", "stop"]

SLOW = {"step_seconds": 0.001}
"""Options of an engine whose steps are not all handed over at once."""

SPOKEN_TOOLS_TEMPLATE = """\
{% for message in messages %}{{ message.role }}: {{ message.content or "" }}\
{% for call in message.tool_calls or [] %}\
[{{ call.id }} {{ call.function.name }} of {{ call.function.arguments.city }}]\
{% endfor %}{% if message.tool_call_id %}({{ message.tool_call_id }}){% endif %};{% endfor %}"""
"""A template that reads arguments as an object."""


@pytest.fixture
def calling(serve, spell):
    """Start a server whose samples say these texts."""

    async def calling(*texts, seed=1, finish="stop", **options):
        steps = [spell(text, seed + index, finish) for index, text in enumerate(texts)]
        return await serve(per_child(*steps), tool_parser="hermes", **options)

    return calling


@pytest.fixture
def calling_in_turn(serve, spell):
    """Start a server that answers one request after the other with these texts."""

    async def calling_in_turn(*texts, **options):
        left = iter(texts)
        return await serve(lambda request: spell(next(left), 1), tool_parser="hermes", **options)

    return calling_in_turn


def told(message):
    """Give what a message says; to the helper for streams, no content is empty content."""
    calls = [(call.function.name, call.function.arguments) for call in message.tool_calls or ()]
    return message.content or None, calls


def put_together(chunks):
    """Put the deltas of a stream together as clients do that have no helper."""
    contents, calls, finishes = {}, {}, {}
    for chunk in chunks:
        for choice in chunk.choices:
            if choice.delta.content:
                contents[choice.index] = contents.get(choice.index, "") + choice.delta.content
            for delta in choice.delta.tool_calls or ():
                if delta.id:
                    made = {"id": delta.id, "name": delta.function.name, "arguments": ""}
                    calls[choice.index, delta.index] = made
                calls[choice.index, delta.index]["arguments"] += delta.function.arguments
            if choice.finish_reason:
                finishes[choice.index] = choice.finish_reason
    said = []
    for index in sorted(finishes):
        mine = [call for (choice, _), call in sorted(calls.items()) if choice == index]
        said.append((contents.get(index), [(call["name"], call["arguments"]) for call in mine]))
    ids = [call["id"] for call in calls.values()]
    assert len(set(ids)) == len(ids)
    return said, [finishes[index] for index in sorted(finishes)]


# The official client.


@pytest.mark.parametrize("n", [1, 3])
async def test_calls(connect, calling, n):
    ask = connect(await calling(*SAMPLES))
    answer = await ask(CHAT, tools=TOOLS, n=n)
    assert [told(choice.message) for choice in answer.choices] == TOLD[:n]
    assert [choice.finish_reason for choice in answer.choices] == FINISHES[:n]
    ids = [call.id for choice in answer.choices for call in choice.message.tool_calls or ()]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("n", [1, 3])
async def test_calls_arrive_as_deltas(connect, calling, n, seed):
    ask = connect(await calling(*SAMPLES, seed=seed, engine_options=SLOW))
    chunks = await ask.list_of(CHAT, tools=TOOLS, n=n, stream=True)
    assert put_together(chunks) == (TOLD[:n], FINISHES[:n])


@pytest.mark.parametrize("n", [1, 3])
async def test_the_stream_helper_tells_of_calls(connect, calling, n):
    ask = connect(await calling(*SAMPLES, engine_options=SLOW))
    events, final = await ask.helped(tools=TOOLS, n=n)
    deltas = [event for event in events if event.type == "tool_calls.function.arguments.delta"]
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    expected = [call for _, calls in TOLD[:n] for call in calls]
    assert sorted((event.name, event.arguments) for event in done) == sorted(expected)
    # Which sample says something first is a matter of time.
    parts = "".join(event.arguments_delta for event in deltas)
    assert sorted(parts) == sorted("".join(arguments for _, arguments in expected))
    assert len(deltas) > len(done)
    parsed = [event.parsed_arguments for event in done if event.name == "GetWeather"]
    assert parsed == [PARIS] * min(n, 2)
    assert [told(choice.message) for choice in final.choices] == TOLD[:n]
    assert [choice.finish_reason for choice in final.choices] == FINISHES[:n]


@pytest.mark.parametrize("n", [1, 3])
async def test_the_stream_helper_tells_of_calls_that_come_all_at_once(connect, serve, spell, n):
    def script(request):
        (*steps, last) = spell(SAMPLES[child_index(request)])
        token_ids = [token_id for step in (*steps, last) for token_id in step.token_ids]
        return [MockStep(token_ids=tuple(token_ids), finish=last.finish)]

    ask = connect(await serve(script, tool_parser="hermes"))
    events, final = await ask.helped(tools=TOOLS, n=n)
    done = [event for event in events if event.type == "tool_calls.function.arguments.done"]
    assert len(done) == sum(len(calls) for _, calls in TOLD[:n])
    assert [told(choice.message) for choice in final.choices] == TOLD[:n]
    assert [choice.finish_reason for choice in final.choices] == FINISHES[:n]


async def test_the_stream_helper_refuses_calls_that_were_cut_off(connect, calling):
    cut = WEATHER[: WEATHER.index("Paris")]
    ask = connect(await calling(cut, finish="length"))
    with pytest.raises(openai.LengthFinishReasonError) as caught:
        await ask.helped(tools=TOOLS)
    (choice,) = caught.value.completion.choices
    assert told(choice.message) == (None, [("GetWeather", '{"city": "été \\"')])


async def test_calls_are_parsed(connect, calling):
    ask = connect(await calling(*SAMPLES))
    answer = await ask("chat.completions.parse", tools=TOOLS, n=3)
    parsed = [
        [call.function.parsed_arguments for call in choice.message.tool_calls or ()]
        for choice in answer.choices
    ]
    assert parsed == [[PARIS], [GetTime(), PARIS], []]


@pytest.mark.parametrize("text", [TIME, BARE])
async def test_calls_without_arguments_are_parsed(connect, calling, text):
    ask = connect(await calling(text, text))
    answer = await ask("chat.completions.parse", tools=TOOLS, n=2)
    for choice in answer.choices:
        (call,) = choice.message.tool_calls
        assert call.function.parsed_arguments == GetTime()
    _, final = await ask.helped(tools=TOOLS, n=2)
    for choice in final.choices:
        (call,) = choice.message.tool_calls
        assert call.function.parsed_arguments == GetTime()


@pytest.mark.parametrize("helps", [False, True], ids=["parse", "stream"])
async def test_an_answer_is_a_call_or_of_the_type_that_was_asked_for(connect, calling, helps):
    served = await calling(TIME, '{"city": "Paris"}')
    ask = connect(served)
    wanted = {"tools": TOOLS, "response_format": Place, "n": 2}
    if helps:
        _, answer = await ask.helped(**wanted)
    else:
        answer = await ask("chat.completions.parse", **wanted)
    called, said = [choice.message for choice in answer.choices]
    assert (called.parsed, told(called)) == (None, (None, [("GetTime", "{}")]))
    assert (said.parsed, said.tool_calls or []) == (Place(city="Paris"), [])
    # The tools are strict, so the answer is constrained to either.
    (tag,) = {add.sampling_params.structured_outputs.structural_tag for add in served.engine.adds}
    form = json.loads(tag)["format"]
    assert form["type"] == "or"
    assert form["elements"][-1]["json_schema"]["properties"].keys() == {"city"}


@pytest.mark.parametrize(
    ("choice", "finish"),
    [
        ("required", "tool_calls"),
        ({"type": "function", "function": {"name": "GetWeather"}}, "stop"),
    ],
    ids=["required", "named"],
)
async def test_calls_that_must_be(connect, calling, choice, finish):
    ask = connect(await calling(WEATHER, WEATHER))
    answer = await ask("chat.completions.parse", tools=TOOLS, tool_choice=choice, n=2)
    for answered in answer.choices:
        (call,) = answered.message.tool_calls
        assert call.function.parsed_arguments == PARIS
        assert answered.finish_reason == finish


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_with_results_of_tools(connect, calling_in_turn, stream):
    served = await calling_in_turn(
        "hi" + WEATHER, "Hello Paris", chat_template=SPOKEN_TOOLS_TEMPLATE
    )
    ask = connect(served)
    if stream:
        _, answer = await ask.helped(tools=TOOLS)
    else:
        answer = await ask(CHAT, tools=TOOLS)
    message = answer.choices[0].message
    (call,) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "warm"}
    history = [*MESSAGES, message.model_dump(exclude_none=True), result]
    answer = await ask(CHAT, messages=history, tools=TOOLS, extra_body={"return_prompt_text": True})
    assert told(answer.choices[0].message) == ("Hello Paris", [])
    assert answer.prompt_text == (
        f'user: Hello;assistant: hi[{call.id} GetWeather of été "Paris"];tool: warm({call.id});'
    )


# Reasoning, which the client hands on as a field that it does not know.


@pytest.mark.parametrize(
    ("parser", "begin"), [("deepseek_r1", ""), ("deepseek_r1", "<think>"), ("qwen3", "<think>")]
)
async def test_reasoning(connect, calling, parser, begin):
    texts = [f"{begin}Hello world</think>\n\nhi" + TIME, f"{begin}Hello</think>yo"]
    served = await calling(*texts, reasoning_parser=parser, engine_options=SLOW)
    ask = connect(served)
    answer = await ask(CHAT, tools=TOOLS, n=2)
    expected = ["Hello world", "Hello"]
    assert [choice.message.reasoning for choice in answer.choices] == expected
    assert answer.usage.completion_tokens_details.reasoning_tokens == 3
    said = [told(choice.message) for choice in answer.choices]
    assert [(content.strip(), calls) for content, calls in said] == [
        ("hi", [("GetTime", "{}")]),
        ("yo", []),
    ]
    chunks = await ask.list_of(CHAT, tools=TOOLS, n=2, stream=True)
    reasoning = ["", ""]
    for choice in (choice for chunk in chunks for choice in chunk.choices):
        reasoning[choice.index] += (choice.delta.model_extra or {}).get("reasoning", "")
    assert reasoning == expected
    assert put_together(chunks) == (said, ["tool_calls", "stop"])


async def test_the_stream_helper_gathers_reasoning(connect, calling):
    text = "Hello world</think>hi" + WEATHER
    ask = connect(await calling(text, text, reasoning_parser="deepseek_r1", engine_options=SLOW))
    _, final = await ask.helped(tools=TOOLS, n=2)
    for choice in final.choices:
        assert choice.message.reasoning == "Hello world"
        assert told(choice.message) == ("hi", [("GetWeather", ARGUMENTS)])


# LangChain.


def chat_model(served, **options):
    return ChatOpenAI(
        base_url=f"{served.url}/v1", api_key="none", model="smollm2", max_retries=0, **options
    )


CONVERSATION = [HumanMessage("Hello")]
CALLED = [("GetWeather", PARIS.model_dump())]


def called(message):
    assert message.invalid_tool_calls == []
    return [(call["name"], call["args"]) for call in message.tool_calls]


@pytest.mark.parametrize("blocks", [False, True])
async def test_langchain_invokes_a_model_with_tools(calling, blocks):
    model = chat_model(await calling(WEATHER)).bind_tools([GetWeather, GetTime])
    if blocks:
        message = await asyncio.to_thread(model.invoke, CONVERSATION)
    else:
        message = await model.ainvoke(CONVERSATION)
    assert called(message) == CALLED
    assert message.response_metadata["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("blocks", [False, True])
async def test_langchain_gets_calls_as_chunks(calling, blocks):
    served = await calling("hi" + TIME + WEATHER, engine_options=SLOW)
    model = chat_model(served).bind_tools([GetWeather, GetTime])
    if blocks:
        chunks = await asyncio.to_thread(lambda: list(model.stream(CONVERSATION)))
    else:
        chunks = [chunk async for chunk in model.astream(CONVERSATION)]
    parts = [part for chunk in chunks for part in chunk.tool_call_chunks]
    assert [part["name"] for part in parts if part["name"]] == ["GetTime", "GetWeather"]
    assert len(parts) > 4
    message = sum(chunks[1:], chunks[0])
    assert called(message) == [("GetTime", {}), *CALLED]
    assert message.text == "hi"


async def test_langchain_generates_several_answers_with_calls(calling):
    model = chat_model(await calling(*SAMPLES), n=3)
    tools = [pydantic_function_tool(GetWeather), pydantic_function_tool(GetTime)]
    result = await model.agenerate([CONVERSATION], tools=tools)
    (generations,) = result.generations
    assert [called(generation.message) for generation in generations] == [
        CALLED,
        [("GetTime", {}), *CALLED],
        [],
    ]
    assert [generation.text for generation in generations] == ["", "hi", "Hello world"]
    assert [g.generation_info["finish_reason"] for g in generations] == FINISHES


@pytest.mark.parametrize(
    ("choice", "names"), [("any", {"GetWeather", "GetTime"}), ("GetWeather", {"GetWeather"})]
)
async def test_langchain_says_which_tool_is_to_be_called(calling, choice, names):
    served = await calling(WEATHER)
    model = chat_model(served).bind_tools([GetWeather, GetTime], tool_choice=choice)
    assert called(await model.ainvoke(CONVERSATION)) == CALLED
    tag = served.engine.adds[0].sampling_params.structured_outputs.structural_tag
    assert {name for name in ("GetWeather", "GetTime") if name in tag} == names


async def test_langchain_goes_on_with_the_result_of_a_call(calling_in_turn):
    served = await calling_in_turn(WEATHER, "Hello Paris", chat_template=SPOKEN_TOOLS_TEMPLATE)
    model = chat_model(served).bind_tools([GetWeather, GetTime])
    message = await model.ainvoke(CONVERSATION)
    (call,) = message.tool_calls
    result = ToolMessage("warm", tool_call_id=call["id"])
    assert (await model.ainvoke([*CONVERSATION, message, result])).text == "Hello Paris"
    prompt = served.chat.text.model.tokenizer.decode(served.engine.adds[1].prompt_token_ids)
    assert f'assistant: [{call["id"]} GetWeather of été "Paris"];tool: warm' in prompt


@pytest.mark.parametrize(
    ("method", "text"),
    [("function_calling", WEATHER), ("json_schema", ARGUMENTS), ("json_mode", ARGUMENTS)],
)
async def test_langchain_gives_structured_output(calling, method, text):
    model = chat_model(await calling(text)).with_structured_output(
        GetWeather, method=method, include_raw=True
    )
    answer = await model.ainvoke(CONVERSATION)
    assert (answer["parsed"], answer["parsing_error"]) == (PARIS, None)
