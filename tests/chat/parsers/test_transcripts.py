"""Every parser on what its models write, however it is cut."""

import importlib
import pkgutil
import re
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

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
from umbel_text import Tokenizer

from . import corpus
from .tokens import tokenizer_with
from .transcripts import TOOLS, Corpus, Transcript, decoded

CORPORA: list[Corpus] = [
    found
    for module in pkgutil.iter_modules(corpus.__path__)
    for found in importlib.import_module(f"{corpus.__name__}.{module.name}").CORPORA
]

CASES = [
    pytest.param(found, transcript, id=f"{found.tool}-{found.reasoning}-{transcript.name}")
    for found in CORPORA
    for transcript in found.transcripts
]

Message = tuple[str, str, list[tuple[str, object]]]


def parsers_of(found: Corpus, tokenizer: Tokenizer) -> ModelParsers:
    tool = None if found.tool is None else TOOL_FORMATS[found.tool]
    reasoning = None if found.reasoning is None else REASONING_FORMATS[found.reasoning]
    return ModelParsers(tokenizer, tool, reasoning)


def parse(
    found: Corpus, transcript: Transcript, tokenizer: Tokenizer, cuts: Sequence[int] = ()
) -> list[OutputEvent]:
    """Parse a transcript in pieces that end at `cuts` and where a marker does."""
    parsers = parsers_of(found, tokenizer)
    state = parsers.prompt_state(tokenizer.encode(transcript.prompt, False))
    parser = parsers.new_parser(state, TOOLS if found.tool else None)
    text, events = transcript.text, []
    ends = {
        match.end(): tokenizer.backend.token_to_id(match.group())
        for match in re.finditer("|".join(map(re.escape, found.tokens)) or "(?!)", text)
    }
    start = 0
    for end in sorted({*ends, *cuts, len(text)}):
        token_id = ends.get(end)
        events += parser.feed(text[start:end], [] if token_id is None else [token_id])
        start = end
    return events + parser.finish()


def message_of(events: Sequence[OutputEvent]) -> Message:
    """Put events together, and check that their order makes sense."""
    reasoning = content = ""
    calls: list[list[str]] = []
    is_open = False
    for event in events:
        match event:
            case ReasoningDelta(text):
                reasoning += text
            case ContentDelta(text):
                content += text
            case ToolCallStart(name):
                assert name
                assert not is_open
                calls.append([name, ""])
                is_open = True
            case ArgumentsDelta(text):
                assert is_open
                assert text
                calls[-1][1] += text
            case ToolCallEnd():
                assert is_open
                is_open = False
    return reasoning, content, [(name, decoded(text or "{}")) for name, text in calls]


@pytest.mark.parametrize(("found", "transcript"), CASES)
@pytest.mark.parametrize("as_tokens", [True, False], ids=["tokens", "text"])
def test_a_transcript_says_what_it_says(
    found: Corpus, transcript: Transcript, as_tokens: bool
) -> None:
    tokenizer = tokenizer_with(found.tokens if as_tokens else ())
    message = message_of(parse(found, transcript, tokenizer))
    assert message == (transcript.reasoning, transcript.content, list(transcript.calls))


def merged(events: Sequence[OutputEvent]) -> list[OutputEvent]:
    """Join events that follow each other and only append."""
    result: list[OutputEvent] = []
    for event in events:
        last = result[-1] if result else None
        match last, event:
            case (ContentDelta(before), ContentDelta(text)):
                result[-1] = ContentDelta(before + text)
            case (ReasoningDelta(before), ReasoningDelta(text)):
                result[-1] = ReasoningDelta(before + text)
            case (ArgumentsDelta(before), ArgumentsDelta(text)):
                result[-1] = ArgumentsDelta(before + text)
            case _:
                result.append(event)
    return result


@pytest.mark.parametrize(("found", "transcript"), CASES)
@settings(max_examples=30)
@given(data=st.data())
def test_a_transcript_cut_in_any_way_says_the_same(
    found: Corpus, transcript: Transcript, data: st.DataObject
) -> None:
    tokenizer = tokenizer_with(found.tokens)
    cuts = data.draw(st.lists(st.integers(0, len(transcript.text)), max_size=40))
    whole = merged(parse(found, transcript, tokenizer))
    assert merged(parse(found, transcript, tokenizer, cuts)) == whole
    every = range(len(transcript.text))
    assert merged(parse(found, transcript, tokenizer, every)) == whole
