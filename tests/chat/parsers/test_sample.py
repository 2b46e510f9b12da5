"""What a parser says besides the text: tokens of reasoning, and the ids of calls."""

import gc
import re
from itertools import pairwise

import pytest

from umbel_chat.events import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
)
from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from umbel_chat.parsers.sample import SampleParser
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Markers, Source, Steps, ignore, within

from .corpus import deepseek, harmony, kimi
from .test_transcripts import CORPORA, parsers_of
from .tokens import tokenizer_with
from .transcripts import TOOLS

SECTION = kimi.section(kimi.call("functions.get_time:0", "{}"))
THINK = ("<think>", "</think>")
CALL = ("<tool_call>", "</tool_call>")


def feed(parser: SampleParser, text: str, tokens: tuple[str, ...], size: int) -> None:
    """Feed a text of one token per character and marker, in pieces that end where markers do."""
    tokenizer = tokenizer_with(tokens)
    marker = re.compile("|".join(map(re.escape, tokens)))
    ends = {match.end() for match in marker.finditer(text)}
    starts = {match.start() for match in marker.finditer(text)}
    inside = {
        place for match in marker.finditer(text) for place in range(match.start() + 1, match.end())
    }
    cuts = {0, len(text), *ends} | ({*range(0, len(text), size)} - inside)
    assert starts
    for start, end in pairwise(sorted(cuts)):
        piece = text[start:end]
        parser.feed(piece, tokenizer.encode(piece, False))


COUNTS = {
    "the prompt begins it": ("qwen3", "a<think>\n", "12345</think>6", 5),
    "the model begins it": ("qwen3", "a", "<think>12345</think>6", 5),
    "whitespace before the first marker": ("deepseek_r1", "a", "\n\n<think>12345</think>6", 5),
    "whitespace at the beginning": ("deepseek_r1", "a", "\n\n345</think>6", 5),
    "no first marker": ("deepseek_r1", "a", "12345</think>6", 5),
    "the first marker is written though the prompt has it": (
        "kimi_k2",
        "<think>",
        "<think>12345</think>6",
        5,
    ),
    "a first marker in the reasoning": ("qwen3", "<think>", "12<think>4</think>6", 4),
    "two last markers": ("glm45", "<think>", "12345</think>\n</think>6", 5),
    "it is cut off": ("nemotron_v3", "<think>", "<think>12345", 5),
    "a call ends it": ("qwen3", "<think>", '12345<tool_call>{"name": "a"}</tool_call>', 5),
    "no call ends it": ("deepseek_v3", "<think>", "12<tool_call>45</think>6", 5),
    "there is none": ("deepseek_v3", "</think>", "123</think>", 0),
    "it is empty": ("qwen3", "a", "<think></think>123", 0),
    "it is whitespace": ("qwen3", "a", "<think>\n\n</think>123", 2),
    "text comes before it": ("qwen3", "a", "1\n<think>345</think>6", 3),
}


@pytest.mark.parametrize(("reasoning", "prompt", "text", "count"), COUNTS.values(), ids=COUNTS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_reasoning_tokens_are_those_between_the_markers(
    reasoning: str, prompt: str, text: str, count: int, size: int
) -> None:
    tokens = (*THINK, *CALL)
    tokenizer = tokenizer_with(tokens)
    parsers = ModelParsers(tokenizer, TOOL_FORMATS["hermes"], REASONING_FORMATS[reasoning])
    state = parsers.prompt_state(tokenizer.encode(prompt, False))
    parser = parsers.new_parser(state, TOOLS)
    feed(parser, text, tokens, size)
    parser.finish()
    assert parser.reasoning_tokens == count


def test_a_character_of_several_tokens_counts_with_all_of_them() -> None:
    tokenizer = tokenizer_with(THINK)
    parser = ModelParsers(tokenizer, None, REASONING_FORMATS["qwen3"]).new_parser("open", None)
    end = tokenizer.backend.token_to_id("</think>")
    assert end is not None
    first, *others = tokenizer.encode("é", False)
    parser.feed("", [first])
    parser.feed("é", others)
    parser.feed("</think>", [end])
    assert parser.reasoning_tokens == 2


def test_a_section_of_calls_ends_reasoning_and_its_marker_is_none() -> None:
    tokens = (*THINK, *kimi.MARKERS)
    parsers = ModelParsers(
        tokenizer_with(tokens), TOOL_FORMATS["kimi_k2"], REASONING_FORMATS["kimi_k2"]
    )
    parser = parsers.new_parser("open", TOOLS)
    feed(parser, "12345" + SECTION, tokens, 2)
    assert parser.reasoning_tokens == 5


@pytest.mark.parametrize(
    ("written", "name", "call_id"),
    [
        ("functions.get_time:0", "get_time", "functions.get_time:0"),
        (" functions.get_time:12\n", "get_time", "functions.get_time:12"),
        ("get_time:0", "get_time", "get_time:0"),
        ("functions.math.sum:3", "math.sum", "functions.math.sum:3"),
        ("functions.get_time", "get_time", ""),
        ("get_time", "get_time", ""),
    ],
)
def test_a_call_of_kimi_has_the_id_that_the_model_gave_it(
    written: str, name: str, call_id: str
) -> None:
    parsers = ModelParsers(tokenizer_with(()), TOOL_FORMATS["kimi_k2"], None)
    parser = parsers.new_parser("closed", TOOLS)
    events = parser.feed(kimi.section(kimi.call(written, "{}")), [])
    assert events[0] == ToolCallStart(name, call_id)


def test_a_call_of_deepseek_has_no_id() -> None:
    parsers = ModelParsers(tokenizer_with(()), TOOL_FORMATS["deepseek_v31"], None)
    events = parsers.new_parser("closed", TOOLS).feed(
        "<｜tool▁call▁begin｜>get_time<｜tool▁sep｜>", []
    )
    assert events == [ToolCallStart("get_time")]


HARMONY_COUNTS = {
    "one message": (f"{harmony.ANALYSIS}12345{harmony.END}{harmony.NEXT}{harmony.FINAL}6", 5),
    "two messages": (
        f"{harmony.ANALYSIS}12{harmony.END}{harmony.NEXT}{harmony.ANALYSIS}345{harmony.END}",
        5,
    ),
    "it is cut off": (f"{harmony.ANALYSIS}12345", 5),
    "the next message ends it": (
        f"{harmony.ANALYSIS}12345{harmony.NEXT}{harmony.FINAL}67{harmony.RETURN}",
        5,
    ),
    "calls are none": (harmony.call("get_time", "{}"), 0),
    "text is none": (f"{harmony.FINAL}123{harmony.RETURN}", 0),
}


@pytest.mark.parametrize(("text", "count"), HARMONY_COUNTS.values(), ids=HARMONY_COUNTS)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_reasoning_tokens_of_harmony_are_those_of_its_messages(
    text: str, count: int, size: int
) -> None:
    parsers = ModelParsers(
        tokenizer_with(harmony.MARKERS), TOOL_FORMATS["openai"], REASONING_FORMATS["openai_gptoss"]
    )
    parser = parsers.new_parser("closed", TOOLS)
    feed(parser, text, harmony.MARKERS, size)
    parser.finish()
    assert parser.reasoning_tokens == count


@pytest.mark.parametrize(
    ("tool", "reasoning"),
    [("openai", "openai_gptoss"), ("openai", None), (None, "openai_gptoss")],
)
@pytest.mark.parametrize("has_tools", [True, False])
def test_harmony_is_read_as_a_whole_whatever_is_looked_for(
    tool: str | None, reasoning: str | None, has_tools: bool
) -> None:
    tokenizer = tokenizer_with(harmony.MARKERS)
    parsers = ModelParsers(
        tokenizer,
        None if tool is None else TOOL_FORMATS[tool],
        None if reasoning is None else REASONING_FORMATS[reasoning],
    )
    state = parsers.prompt_state(tokenizer.encode("a" + harmony.NEXT, False))
    parser = parsers.new_parser(state, TOOLS if has_tools else None)
    events: list[OutputEvent] = []
    for piece in (
        harmony.CHANNEL,
        "analysis" + harmony.MESSAGE,
        "a" + harmony.END,
        "assistant" + harmony.CHANNEL,
        "final" + harmony.MESSAGE,
        "b" + harmony.END,
        harmony.START,
        "assistant" + harmony.CHANNEL,
        "commentary to=functions.get_time" + harmony.MESSAGE,
        "{}" + harmony.CALL,
    ):
        events += parser.feed(piece, tokenizer.encode(piece, False))
    assert events == [
        ReasoningDelta("a"),
        ContentDelta("b"),
        ToolCallStart("get_time"),
        ArgumentsDelta("{}"),
        ToolCallEnd(),
    ]


@pytest.mark.parametrize(("tool", "reasoning"), [("openai", None), (None, "openai_gptoss")])
def test_markers_of_harmony_in_the_text_are_text(tool: str | None, reasoning: str | None) -> None:
    tokenizer = tokenizer_with(harmony.MARKERS)
    parser = ModelParsers(
        tokenizer,
        None if tool is None else TOOL_FORMATS[tool],
        None if reasoning is None else REASONING_FORMATS[reasoning],
    ).new_parser("closed", None)
    for piece in (harmony.CHANNEL, "final" + harmony.MESSAGE):
        assert parser.feed(piece, tokenizer.encode(piece, False)) == []
    # The characters of a marker, but not its token.
    assert parser.feed("a<|channel|>b", [1, 2, 3]) == [ContentDelta("a<|channel|>b")]


def test_a_tool_of_the_client_may_have_the_name_of_one_that_is_built_in() -> None:
    parser = ModelParsers(tokenizer_with(()), TOOL_FORMATS["openai"], None).new_parser(
        "closed", {"python": {}}
    )
    events = parser.feed(f"{harmony.CHANNEL}commentary to=python{harmony.MESSAGE}", [])
    assert events == [ToolCallStart("python")]


CUT_OFF = {
    "deepseek_v3": deepseek.CALL_START + "function" + deepseek.SEPARATOR + "get_time\n```json\n",
    "deepseek_v31": deepseek.CALL_START + "get_time" + deepseek.SEPARATOR,
    "kimi_k2": kimi.CALL_START + "functions.get_time:0" + kimi.ARGUMENTS,
    "openai": f"{harmony.CHANNEL}commentary to=functions.get_time{harmony.MESSAGE}",
}


@pytest.mark.parametrize(("tool", "text"), CUT_OFF.items())
@pytest.mark.parametrize(
    ("arguments", "ends"), [('{"a": 1}', True), ('{"a": 1', False), ("", False)]
)
def test_a_call_that_is_cut_off_has_an_end_if_its_arguments_have(
    tool: str, text: str, arguments: str, ends: bool
) -> None:
    parser = ModelParsers(tokenizer_with(()), TOOL_FORMATS[tool], None).new_parser("closed", TOOLS)
    events = parser.feed(text + arguments, []) + parser.finish()
    assert isinstance(events[0], ToolCallStart)
    assert (ToolCallEnd() in events) == ends


def test_a_sample_that_is_given_up_leaves_nothing_to_the_garbage_collector() -> None:
    parsers = []
    for found in CORPORA:
        tokenizer = tokenizer_with(found.tokens)
        made = parsers_of(found, tokenizer)
        for transcript in found.transcripts:
            state = made.prompt_state(tokenizer.encode(transcript.prompt, False))
            parser = made.new_parser(state, TOOLS if found.tool else None)
            parser.feed(transcript.text[: len(transcript.text) * 2 // 3], [])
            parsers.append(parser)
    del parser
    gc.collect()
    gc.disable()
    try:
        parsers.clear()
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("size", [1, 2, 100])
def test_what_a_parser_that_fails_has_not_read_is_content(is_part: bool, size: int) -> None:
    def read_on(source: Source) -> Steps[None]:
        yield from source.until(("b",), ignore)
        raise RecursionError

    def read(source: Source, sink: Sink) -> Steps[None]:
        if is_part:
            yield from within(source, ("e",), read_on)
        else:
            yield from read_on(source)

    parser = SampleParser(Source(Markers()), Sink(), read)
    text = "aabccedd"
    events: list[OutputEvent] = []
    for start in range(0, len(text), size):
        events += parser.feed(text[start : start + size], [])
    content = "".join(
        event.text for event in events + parser.finish() if isinstance(event, ContentDelta)
    )
    assert content == "ccedd"


def test_a_token_without_text_brings_nothing() -> None:
    parser = ModelParsers(tokenizer_with(()), TOOL_FORMATS["hermes"], None).new_parser(
        "closed", TOOLS
    )
    for text in ("a", "<tool_call>", '{"name": "get_time", "arguments": {"a": "', "b"):
        parser.feed(text, [1])
        assert parser.feed("", [2]) == []
