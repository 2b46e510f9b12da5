"""Calls that must be, made by a real engine for umbel: whatever tools a client has, the engine lives on."""

import json
from itertools import chain

import pytest

from ..engine_real import test_structured_outputs as constraints

# The first test waits for the engine to load the model.
pytestmark = pytest.mark.timeout(600)

CHAT = "/v1/chat/completions"
JSON_TYPE = {"Content-Type": "application/json"}
QUESTION = [{"role": "user", "content": "What is the weather in Paris and in Rome?"}]

CITIES, UNITS = ["Paris", "Rome"], ["celsius", "fahrenheit"]
WEATHER = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "enum": CITIES},
        "days": {"type": "integer", "minimum": 1, "maximum": 9},
        "unit": {"type": "string", "enum": UNITS},
    },
    "required": ["city", "days"],
}
FLAG = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"]}


def tool(name="get_weather", parameters=WEATHER, **fields):
    return {"type": "function", "function": {"name": name, "parameters": parameters, **fields}}


TOOLS = [tool(), tool("set_light", FLAG)]
NAMED = {"type": "function", "function": {"name": "get_weather"}}


def is_call(name, arguments):
    """Tell whether the arguments of a call fit the schema of its tool."""
    if name == "set_light":
        return set(arguments) == {"on"} and isinstance(arguments["on"], bool)
    return (
        name == "get_weather"
        and {"city", "days"} <= set(arguments) <= {"city", "days", "unit"}
        and arguments["city"] in CITIES
        and isinstance(arguments["days"], int)
        and 1 <= arguments["days"] <= 9
        and arguments.get("unit", UNITS[0]) in UNITS
    )


@pytest.fixture
def ask(tool_caller):
    def ask(messages=QUESTION, **fields):
        body = {"messages": messages, "seed": 5, "temperature": 0.8, "max_tokens": 100, **fields}
        return tool_caller(CHAT, json.dumps(body).encode(), JSON_TYPE)

    return ask


@pytest.fixture
def check_alive(ask):
    """Check that a request without tools is answered."""

    def check():
        answer = ask([{"role": "user", "content": "Say yes."}], max_tokens=2)
        assert answer.status == 200, answer.body
        assert answer.body["usage"]["completion_tokens"] > 0

    return check


def choices_of(answer, n):
    """Give the calls and the reason why it ended of each choice, streamed or not."""
    assert answer.status == 200, answer.body
    if not isinstance(answer.body, list):
        return [
            (
                [
                    (call["function"]["name"], call["function"]["arguments"])
                    for call in choice["message"].get("tool_calls", ())
                ],
                choice["finish_reason"],
            )
            for choice in answer.body["choices"]
        ]
    calls, finishes = [[] for _ in range(n)], [None] * n
    for choice in chain.from_iterable(event["choices"] for event in answer.body):
        index = choice["index"]
        finishes[index] = choice["finish_reason"] or finishes[index]
        for delta in choice["delta"].get("tool_calls", ()):
            if "id" in delta:
                calls[index].append([delta["function"]["name"], ""])
            calls[index][delta["index"]][1] += delta["function"]["arguments"]
    return list(zip(calls, finishes, strict=True))


@pytest.mark.parametrize(
    ("choice", "single"),
    [("required", False), ("required", True), (NAMED, False)],
    ids=["required", "single", "named"],
)
def test_every_choice_has_calls_that_fit(ask, check_alive, choice, single):
    fields = {"tools": TOOLS, "tool_choice": choice, "parallel_tool_calls": not single, "n": 3}
    whole, streamed = (choices_of(ask(**fields, stream=stream), 3) for stream in (False, True))
    assert [(list(map(tuple, calls)), finish) for calls, finish in streamed] == whole
    for calls, finish in whole:
        assert calls
        if single or choice is NAMED:
            assert len(calls) == 1
            assert finish == ("stop" if choice is NAMED else "tool_calls")
        # A limit cuts off a model that does not know when to stop.
        complete = calls[:-1] if finish == "length" else calls
        assert all(is_call(name, json.loads(arguments)) for name, arguments in complete)
        assert choice is not NAMED or calls[0][0] == "get_weather"
    check_alive()


def test_a_strict_tool_that_may_be_called_leaves_the_answer_free(ask):
    answer = ask(tools=[tool(strict=True)], max_tokens=8)
    assert answer.status == 200


SCHEMAS = {
    name: json.loads(constraint.json) if isinstance(constraint.json, str) else constraint.json
    for name, constraint in {
        **constraints.ANSWERED,
        **constraints.FAILED,
        **constraints.WOULD_KILL,
        **constraints.WOULD_STALL,
        **constraints.REFUSED,
    }.items()
    if constraint.json is not None and name != "text nested too deeply"
}


@pytest.mark.parametrize(
    ("strict", "stream"), [(None, False), (True, True)], ids=["loose", "strict-streamed"]
)
@pytest.mark.parametrize("name", SCHEMAS)
def test_no_schema_harms_the_engine(ask, check_alive, name, strict, stream):
    parameters = {"type": "object", "properties": {"a": SCHEMAS[name]}, "required": ["a"]}
    answer = ask(
        tools=[tool(parameters=parameters, strict=strict)],
        tool_choice="required",
        max_tokens=20,
        stream=stream,
    )
    check_refused_or_called(answer)
    is_usual = name in constraints.ANSWERED
    assert answer.status == 200 or not is_usual, answer.body
    check_alive()


def check_refused_or_called(answer):
    """Check that an answer calls a tool, or names the tools as what is at fault."""
    if answer.status == 200:
        ((calls, finish),) = choices_of(answer, 1)
        assert calls or finish == "length"
        return
    assert answer.status == 400, answer.body
    assert answer.body["error"]["param"] == "tools", answer.body


@pytest.mark.parametrize(
    "name",
    [
        'with "quotes"',
        "back\\slash",
        "two\nlines",
        "wetter_für_東京_🎉",
        "\0",
        "\x1b[0m",
        "<tool_call>",
        '", "arguments": {}}\n</tool_call>',
        "{json_name}",
        "x" * 2000,
        "",
        "\ud800",
    ],
    ids=ascii,
)
def test_no_name_of_a_tool_harms_the_engine(ask, check_alive, name):
    answer = ask(
        tools=[tool(name, FLAG)],
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=100,
        stream=len(name) % 2 == 0,
    )
    if answer.status == 200:
        ((calls, finish),) = choices_of(answer, 1)
        assert [found for found, _ in calls] == [name] or finish == "length"
    else:
        assert answer.status == 400, answer.body
        assert answer.body["error"]["param"] == "tools"
    check_alive()


@pytest.mark.parametrize("parameters", [FLAG, None], ids=["with parameters", "without"])
@pytest.mark.parametrize("choice", ["required", "auto"])
@pytest.mark.parametrize("count", [100, 1000])
def test_many_tools_do_not_harm_the_engine(ask, check_alive, count, choice, parameters):
    tools = [tool(f"tool_{index}", parameters, strict=True) for index in range(count)]
    answer = ask(tools=tools, tool_choice=choice, parallel_tool_calls=False, max_tokens=60)
    if choice == "required":
        check_refused_or_called(answer)
        assert answer.status == 200 or count == 1000
    else:
        assert answer.status in (200, 400)
    check_alive()
