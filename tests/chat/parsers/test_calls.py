"""What transcripts do not say of calls: their ids, and whether they have ended."""

from collections.abc import Mapping, Sequence

import pytest

from umbel_chat.events import ArgumentsDelta, ContentDelta, OutputEvent, ToolCallEnd, ToolCallStart
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.registry import TOOL_FORMATS

from .tokens import tokenizer_with
from .transcripts import TOOLS


def parse(
    name: str, text: str, tools: Mapping[str, Mapping[str, object]] = TOOLS
) -> list[OutputEvent]:
    parsers = ModelParsers(tokenizer_with(()), TOOL_FORMATS[name], None)
    parser = parsers.new_parser("closed", tools)
    return parser.feed(text, []) + parser.finish()


@pytest.mark.parametrize(
    ("text", "call_id"),
    [
        ("[TOOL_CALLS]get_time[CALL_ID]VvvODy9mT[ARGS]{}", "VvvODy9mT"),
        ("[TOOL_CALLS]get_time[CALL_ID]Vvv", ""),
        ("[TOOL_CALLS]get_time[ARGS]{}", ""),
    ],
)
def test_a_call_of_mistral_has_the_id_that_the_model_gave_it(text: str, call_id: str) -> None:
    starts = [event for event in parse("mistral", text) if isinstance(event, ToolCallStart)]
    assert starts == [ToolCallStart("get_time", call_id)]


@pytest.mark.parametrize("call_id", ["0", "call00003", "call_1f8Z"])
def test_a_call_of_kimi_without_a_name_is_one_of_the_only_tool(call_id: str) -> None:
    text = f"<|tool_call_begin|>{call_id}<|tool_call_argument_begin|>{{}}<|tool_call_end|>"
    only = {"get_time": TOOLS["get_time"]}
    assert parse("kimi_k2", text, only)[0] == ToolCallStart("get_time")
    assert parse("kimi_k2", text) == [ContentDelta(text)]


WHOLE_AND_CUT = [
    (
        "hermes",
        '<tool_call>{"name": "search", "arguments": {"query": "x"}}</tool_call>',
        '<tool_call>{"name": "search", "arguments": {"query": "x"',
    ),
    (
        "llama3_json",
        '{"name": "get_time", "parameters": {}}',
        '{"name": "get_time", "parameters": {}',
    ),
    ("mistral", "[TOOL_CALLS]get_time{}", "[TOOL_CALLS]get_time{"),
    (
        "mistral",
        '[TOOL_CALLS]{"name": "get_time", "arguments": {}}',
        '[TOOL_CALLS]{"name": "get_time", "arguments": {',
    ),
    (
        "phi4_mini_json",
        'functools[{"name": "get_time", "arguments": {}}',
        'functools[{"name": "get_time", "arguments": {}',
    ),
    ("pythonic", "[search(limit=1)", "[search(limit=1"),
    ("llama4_pythonic", "<|python_start|>[search(query='x')", "<|python_start|>[search(query='x'"),
]


@pytest.mark.parametrize(("name", "whole", "cut"), WHOLE_AND_CUT)
def test_a_call_has_no_end_where_the_text_is_cut_off(name: str, whole: str, cut: str) -> None:
    assert count_ends(parse(name, whole)) == 1
    assert count_ends(parse(name, cut)) == 0


MALFORMED = [
    ("hermes", '<tool_call>{"name": "search", "arguments": {"a": </tool_call> Well.'),
    ("llama3_json", '{"name": "search", "parameters": {}, Well.'),
    ("mistral", "[TOOL_CALLS]search[ARGS] Well."),
    ("mistral", '[TOOL_CALLS]{"name": "search", "arguments": {}, Well.'),
    ("phi4_mini_json", 'functools[{"name": "search", "arguments": {}, Well.'),
    ("pythonic", "[search(limit=1 Well."),
]


@pytest.mark.parametrize(("name", "text"), MALFORMED)
def test_a_malformed_call_ends_where_text_goes_on(name: str, text: str) -> None:
    events = parse(name, text)
    assert count_ends(events) == 1
    assert isinstance(events[-1], ContentDelta)
    assert events[-1].text.endswith("Well.")


def test_a_call_of_mistral_that_is_cut_off_by_another_ends() -> None:
    assert count_ends(parse("mistral", '[TOOL_CALLS]search{"a[TOOL_CALLS]get_time{}')) == 2


def test_brackets_that_are_too_deep_are_no_fault_and_nothing_of_them_is_lost(
    caplog: pytest.LogCaptureFixture,
) -> None:
    events = parse("pythonic", "[search(query=" + "[" * 5000)
    texts = [event.text for event in events if isinstance(event, ArgumentsDelta | ContentDelta)]
    assert "".join(texts) == '{"query": ' + "[" * 5000
    assert not caplog.records


def count_ends(events: Sequence[OutputEvent]) -> int:
    return sum(isinstance(event, ToolCallEnd) for event in events)
