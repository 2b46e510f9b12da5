"""Tool calls and reasoning in chats, as clients see them."""

import json
import re
import threading

import pytest

from umbel_chat import ChatLlm, constraint
from umbel_engine import Finish
from umbel_engine.mock import MockStep, per_child
from umbel_server.responses.tool_calls import finish_reason

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
            "required": ["city"],
        },
    },
}
TIME = {"type": "function", "function": {"name": "get_time"}}
TOOLS = [WEATHER, TIME]

PARIS = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>'
NOW = '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>'
NO_ARGUMENTS = '<tool_call>{"name": "get_time"}</tool_call>'
THOUGHT = "<think>\nHello world\n</think>\n\n"

CALL_ID = re.compile(r"chatcmpl-tool-[0-9a-f]{16}")


def whole(choice):
    """Give what a choice of an answer says, without ids."""
    message = choice["message"]
    calls = [
        (call["function"]["name"], call["function"]["arguments"])
        for call in message.get("tool_calls", [])
    ]
    return message["reasoning"], message["content"], calls, choice["finish_reason"]


def streamed(events, n=1):
    """Put the deltas of a stream together, as clients do, and check their form."""
    choices = [{"reasoning": None, "content": None, "calls": [], "finish": None} for _ in range(n)]
    for event in events:
        for entry in event["choices"]:
            choice, delta = choices[entry["index"]], entry["delta"]
            assert choice["finish"] is None
            if "role" in delta:
                continue
            for name in ("reasoning", "content"):
                if name in delta:
                    choice[name] = (choice[name] or "") + delta[name]
            indexes = [call["index"] for call in delta.get("tool_calls", ())]
            assert len(set(indexes)) == len(indexes)
            for call in delta.get("tool_calls", ()):
                _append(choice["calls"], call)
            choice["finish"] = entry["finish_reason"]
    return [
        (
            choice["reasoning"],
            choice["content"],
            [(call["name"], call["arguments"]) for call in choice["calls"]],
            choice["finish"],
        )
        for choice in choices
    ]


def _append(calls, delta):
    function = delta["function"]
    if "id" in delta:
        assert delta["index"] == len(calls)
        assert CALL_ID.fullmatch(delta["id"])
        assert delta["type"] == "function"
        calls.append({"name": function["name"], "arguments": ""})
    else:
        assert delta["index"] == len(calls) - 1
        assert set(function) == {"arguments"}
    calls[-1]["arguments"] += function["arguments"]


# Calls.


async def test_a_call_is_no_content(serve, spell):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    answer = (await served.ask(tools=TOOLS)).json()
    (choice,) = answer["choices"]
    assert whole(choice) == (None, None, [("get_weather", '{"city": "Paris"}')], "tool_calls")
    (call,) = choice["message"]["tool_calls"]
    assert CALL_ID.fullmatch(call["id"])
    assert call["type"] == "function"
    assert answer["usage"]["completion_tokens_details"] is None


async def test_a_streamed_call_begins_with_its_name(serve, spell):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    events = (await served.ask(tools=TOOLS, stream=True)).events
    role, *entries = [event["choices"][0] for event in events]
    assert role["delta"] == {"role": "assistant", "content": ""}
    start, *rest = [
        entry["delta"]["tool_calls"][0] for entry in entries if "tool_calls" in entry["delta"]
    ]
    assert list(start) == ["index", "id", "type", "function"]
    assert start["function"]["name"] == "get_weather"
    assert all(set(call) == {"index", "function"} for call in rest)
    assert all("content" not in entry["delta"] for entry in entries)
    assert entries[-1]["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("seed", [None, 0, 1, 2])
@pytest.mark.parametrize("interval", [1, 3, 50])
@pytest.mark.parametrize(
    ("text", "content", "calls"),
    [
        ("Hello world", "Hello world", []),
        (PARIS + "\n" + NOW, None, [("get_weather", '{"city": "Paris"}'), ("get_time", "{}")]),
        ("Hello" + NO_ARGUMENTS + " world", "Hello world", [("get_time", "{}")]),
        ("<tool_call>Hello</tool_call>", "<tool_call>Hello</tool_call>", []),
    ],
)
async def test_both_modes_say_the_same_however_the_tokens_come(
    serve, spell, seed, interval, text, content, calls
):
    served = await serve(per_child(spell(text, seed), spell(text, seed)), tool_parser="hermes")
    ask = {"tools": TOOLS, "n": 2, "stream_interval": interval}
    expected = (None, content, calls, "tool_calls" if calls else "stop")
    answer = (await served.ask(**ask)).json()
    assert [whole(choice) for choice in answer["choices"]] == [expected] * 2
    events = (await served.ask(**ask, stream=True)).events
    assert streamed(events, 2) == [expected] * 2


async def test_a_call_without_arguments_after_one_with_arguments_has_none_of_them(serve, spell):
    served = await serve(per_child(spell(PARIS + NO_ARGUMENTS)), tool_parser="hermes")
    calls = [("get_weather", '{"city": "Paris"}'), ("get_time", "{}")]
    answer = (await served.ask(tools=TOOLS)).json()
    assert whole(answer["choices"][0]) == (None, None, calls, "tool_calls")


async def test_a_call_that_a_limit_cut_off_ends_for_its_length(serve, spell):
    cut = PARIS[: PARIS.index('is"}')]
    served = await serve(per_child(spell(cut, finish="length")), tool_parser="hermes")
    expected = (None, None, [("get_weather", '{"city": "Par')], "length")
    answer = (await served.ask(tools=TOOLS)).json()
    assert whole(answer["choices"][0]) == expected
    assert streamed((await served.ask(tools=TOOLS, stream=True)).events) == [expected]


@pytest.mark.parametrize("stream", [False, True])
async def test_samples_do_not_disturb_each_other(serve, spell, stream):
    texts = [THOUGHT + PARIS, "<think>Hello", "</think> world " + NOW + PARIS]
    alone = []
    for text in texts:
        served = await serve(
            per_child(spell(text)), tool_parser="hermes", reasoning_parser="deepseek_r1"
        )
        alone.append(whole((await served.ask(tools=TOOLS)).json()["choices"][0]))
    assert alone == [
        ("\nHello world\n", None, [("get_weather", '{"city": "Paris"}')], "tool_calls"),
        ("Hello", None, [], "stop"),
        (None, " world ", [("get_time", "{}"), ("get_weather", '{"city": "Paris"}')], "tool_calls"),
    ]
    for seed in range(8):
        script = per_child(*(spell(text, seed * 3 + index) for index, text in enumerate(texts)))
        served = await serve(script, tool_parser="hermes", reasoning_parser="deepseek_r1")
        answer = await served.ask(tools=TOOLS, n=3, stream=stream)
        if stream:
            assert streamed(answer.events, 3) == alone
        else:
            assert [whole(choice) for choice in answer.json()["choices"]] == alone


async def test_at_most_one_call_where_they_may_not_be_parallel(serve, spell):
    served = await serve(per_child(spell(PARIS + NOW)), tool_parser="hermes")
    ask = {"tools": TOOLS, "parallel_tool_calls": False}
    expected = (None, None, [("get_weather", '{"city": "Paris"}')], "tool_calls")
    assert whole((await served.ask(**ask)).json()["choices"][0]) == expected
    assert streamed((await served.ask(**ask, stream=True)).events) == [expected]


@pytest.mark.parametrize("fields", [{}, {"tools": TOOLS, "tool_choice": "none"}])
async def test_without_tools_to_call_all_is_content(serve, spell, fields):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    assert whole((await served.ask(**fields)).json()["choices"][0]) == (None, PARIS, [], "stop")
    events = (await served.ask(**fields, stream=True)).events
    assert streamed(events) == [(None, PARIS, [], "stop")]


async def test_a_choice_of_null_leaves_it_to_the_model(serve, spell):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    expected = (None, None, [("get_weather", '{"city": "Paris"}')], "tool_calls")
    answer = (await served.ask(tools=TOOLS, tool_choice=None)).json()
    assert whole(answer["choices"][0]) == expected
    plain = await serve(per_child(spell(PARIS)))
    answer = (await plain.ask(tools=TOOLS, tool_choice=None)).json()
    assert whole(answer["choices"][0]) == (None, PARIS, [], "stop")


async def test_a_marker_that_is_spelled_out_is_content(serve, tokenizer, spell):
    spelled = tokenizer.encode("<tool", add_special_tokens=False).ids
    spelled += tokenizer.encode("_call>", add_special_tokens=False).ids
    steps = [MockStep(token_ids=tuple(spelled)), *spell(" world" + NOW)]
    served = await serve(per_child(steps), tool_parser="hermes")
    expected = (None, "<tool_call> world", [("get_time", "{}")], "tool_calls")
    assert whole((await served.ask(tools=TOOLS)).json()["choices"][0]) == expected
    assert streamed((await served.ask(tools=TOOLS, stream=True)).events) == [expected]


@pytest.mark.parametrize("stream", [False, True])
async def test_text_that_is_held_back_for_a_stop_string_is_parsed_like_any_other(
    serve, spell, stream
):
    text = THOUGHT + "Hello" + PARIS + " world"
    served = await serve(
        per_child(spell(text)), tool_parser="hermes", reasoning_parser="deepseek_r1"
    )
    ask = {"tools": TOOLS, "stop": ["no such text in it", "worlds"]}
    expected = (
        "\nHello world\n",
        "\n\nHello world",
        [("get_weather", '{"city": "Paris"}')],
        "tool_calls",
    )
    answer = await served.ask(**ask, stream=stream)
    said = streamed(answer.events)[0] if stream else whole(answer.json()["choices"][0])
    assert said == expected


# Calls that must be.


async def test_a_constraint_is_made_once_and_shared(serve, spell, monkeypatch):
    served = await serve(per_child(*[spell(PARIS)] * 3), tool_parser="hermes")
    made = []
    original = constraint.calls_format
    monkeypatch.setattr(
        constraint, "calls_format", lambda *args: made.append(args) or original(*args)
    )
    answer = (await served.ask(tools=TOOLS, tool_choice="required", n=3)).json()
    assert len(made) == 1
    tags = [add.sampling_params.structured_outputs.structural_tag for add in served.engine.adds]
    assert len(set(tags)) == 1
    (form,) = [json.loads(tag)["format"] for tag in set(tags)]
    assert form["at_least_one"]
    begins = {tag["begin"] for tag in form["tags"]}
    assert '<tool_call>\n{"name": "get_weather", "arguments": ' in begins
    assert {choice["finish_reason"] for choice in answer["choices"]} == {"tool_calls"}
    assert {choice["message"]["content"] for choice in answer["choices"]} == {""}


async def test_the_tool_that_is_named_is_the_only_one(serve, spell):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    choice = {"type": "function", "function": {"name": "get_weather"}}
    for stream in (False, True):
        answer = await served.ask(tools=TOOLS, tool_choice=choice, stream=stream)
        said = streamed(answer.events)[0] if stream else whole(answer.json()["choices"][0])
        assert said[2:] == ([("get_weather", '{"city": "Paris"}')], "stop")
        tag = served.engine.adds[-1].sampling_params.structured_outputs.structural_tag
        assert "get_weather" in tag
        assert "get_time" not in tag


async def test_a_schema_that_cannot_be_enforced_is_refused_only_where_it_is_strict(serve, spell):
    served = await serve(per_child(spell(PARIS)), tool_parser="hermes")
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(" * 9}}}
    function = {"name": "get_weather", "parameters": schema}
    for strict, status in ((None, 200), (False, 200), (True, 400)):
        tool = {"type": "function", "function": {**function, "strict": strict}}
        answer = await served.ask(tools=[tool], tool_choice="required")
        assert answer.status == status


async def test_strict_tools_constrain_what_may_be_called(serve, spell):
    served = await serve(per_child(spell("Hello")), tool_parser="hermes")
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    for tools, is_constrained in ((TOOLS, False), ([strict, TIME], True)):
        await served.ask(tools=tools)
        constraint = served.engine.adds[-1].sampling_params.structured_outputs
        assert (constraint is not None) == is_constrained
    form = json.loads(constraint.structural_tag)["format"]
    assert form["type"] == "triggered_tags"
    assert form["triggers"] == ["<tool_call>"]


@pytest.mark.parametrize(
    ("fields", "is_aside"),
    [
        ({"tool_choice": "required"}, True),
        ({"parallel_tool_calls": False}, True),
        ({"tool_choice": "none"}, False),
        ({}, False),
    ],
)
async def test_tools_are_made_a_constraint_while_others_are_answered(
    serve, spell, monkeypatch, fields, is_aside
):
    threads = []
    original = ChatLlm.lower

    def lower(*args):
        threads.append(threading.current_thread())
        return original(*args)

    monkeypatch.setattr(ChatLlm, "lower", lower)
    served = await serve(per_child(spell("Hello")), tool_parser="hermes")
    # Of a length from which on constraints take long, and other requests do not.
    long = {"type": "function", "function": {**TIME["function"], "description": "a" * 4000}}
    await served.ask(tools=[long], **fields)
    assert [thread is not threading.current_thread() for thread in threads] == [is_aside]


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_refuses_of_calls_is_the_fault_of_the_tools(serve, stream):
    refusing = [MockStep(finish="error")]
    served = await serve(per_child(refusing, refusing), tool_parser="hermes")
    strict = {"type": "function", "function": {**WEATHER["function"], "strict": True}}
    own = {"structured_outputs": {"regex": "a+"}}
    for fields, param in (
        ({"tools": TOOLS, "tool_choice": "required"}, "tools"),
        ({"tools": [strict]}, "tools"),
        ({"tools": TOOLS, **own}, None),
        (own, None),
    ):
        answer = await served.ask(**fields, n=2, stream=stream)
        assert (answer.status, answer.error["param"]) == (400, param), (fields, answer.error)


# Reasoning.


@pytest.mark.parametrize("stream", [False, True])
async def test_reasoning_is_told_apart_and_counted(serve, spell, tokenizer, stream):
    text = THOUGHT + "yo"
    served = await serve(per_child(spell(text), spell("hi")), reasoning_parser="deepseek_r1")
    ask = {"n": 2, "stream_options": {"include_usage": True}} if stream else {"n": 2}
    answer = await served.ask(**ask, stream=stream)
    thought = len(tokenizer.encode("\nHello world\n", add_special_tokens=False).ids)
    if stream:
        *events, last = answer.events
        said, usage = streamed(events, 2), last["usage"]
    else:
        said = [whole(choice) for choice in answer.json()["choices"]]
        usage = answer.json()["usage"]
    assert said == [("\nHello world\n", "\n\nyo", [], "stop"), ("hi", None, [], "stop")]
    # The token that ends the second sample is one of its reasoning.
    assert usage["completion_tokens_details"] == {"reasoning_tokens": thought + 2}


@pytest.mark.parametrize("stream", [False, True])
async def test_hidden_reasoning_shows_nowhere(serve, spell, stream):
    served = await serve(per_child(spell(THOUGHT + "yo")), reasoning_parser="deepseek_r1")
    answer = await served.ask(
        include_reasoning=False, logprobs=False, return_token_ids=True, stream=stream
    )
    said = streamed(answer.events)[0] if stream else whole(answer.json()["choices"][0])
    assert said == (None, "\n\nyo", [], "stop")
    choices = (
        [event["choices"][0] for event in answer.events] if stream else answer.json()["choices"]
    )
    assert all(choice.get("token_ids") is None for choice in choices)
    assert served.engine.adds[0].reasoning_ended is True


async def test_the_engine_is_told_whether_reasoning_has_ended(serve, spell):
    template = (
        "{% for message in messages %}{{ message.content }}<|im_end|>{% endfor %}"
        "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    )
    served = await serve(
        per_child(spell("Hello")), reasoning_parser="deepseek_r1", chat_template=template
    )
    for thinking, said in ((True, ("Hello", None)), (False, (None, "Hello"))):
        arguments = {"enable_thinking": thinking, "other": {"a": 1}}
        answer = (await served.ask(chat_template_kwargs=arguments)).json()
        assert whole(answer["choices"][0])[:2] == said
        add = served.engine.adds[-1]
        assert add.reasoning_ended is (not thinking)
        assert add.reasoning_parser_kwargs == {
            "chat_template_kwargs": {"enable_thinking": thinking}
        }


async def test_a_budget_for_thinking_needs_a_reasoning_parser(serve, spell):
    served = await serve(per_child(spell("Hello")), reasoning_parser="deepseek_r1")
    assert (await served.ask(thinking_token_budget=5)).status == 200
    assert served.engine.adds[0].sampling_params.thinking_token_budget == 5
    plain = await serve(per_child(spell("Hello")))
    refused = await plain.ask(thinking_token_budget=5)
    assert refused.status == 400
    assert "reasoning_config is not configured" in refused.error["message"]


# The prompt.


async def test_the_template_sees_the_tools_as_in_vllm(serve, spell):
    template = "{{ tools | tojson }}{% for message in messages %}{{ message.content }}{% endfor %}"
    served = await serve(per_child(spell("Hello")), tool_parser="hermes", chat_template=template)
    for choice in ("auto", "none"):
        answer = await served.ask(tools=[TIME], tool_choice=choice, return_prompt_text=True)
        shown = {"name": "get_time", "description": None, "parameters": None}
        expected = json.dumps([{"type": "function", "function": shown}])
        assert answer.json()["prompt_text"] == expected + "Hello"


def test_a_limit_is_told_of_whatever_was_called():
    assert finish_reason(Finish("length"), True, False) == "length"
    assert finish_reason(Finish("stop"), True, False) == "tool_calls"
    assert finish_reason(Finish("stop"), True, True) == "stop"
    assert finish_reason(Finish("stop"), False, False) == "stop"


@pytest.mark.parametrize("interval", [1, 4, 100])
async def test_reasoning_between_markers_that_are_no_tokens_is_counted_however_it_comes(
    serve, spell, interval
):
    text = "Here is my thought process: Hello world Here is my response: yo"
    served = await serve(per_child(spell(text, 1)), reasoning_parser="granite")
    counts = set()
    for stream in (False, True):
        answer = await served.ask(
            stream=stream,
            stream_interval=interval,
            **({"stream_options": {"include_usage": True}} if stream else {}),
        )
        usage = (answer.events[-1] if stream else answer.json())["usage"]
        counts.add(usage["completion_tokens_details"]["reasoning_tokens"])
    (count,) = counts
    assert 0 < count < len(text)
