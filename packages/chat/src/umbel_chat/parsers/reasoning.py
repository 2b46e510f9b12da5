"""Reasoning that stands between two markers, before the answer."""

from typing import Literal, TypeAlias

from umbel_chat.parsers.formats import ReasoningFormat
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, ignore

PromptState: TypeAlias = Literal["open", "closed", "unsaid", "off"]
"""What the prompt says: reasoning has begun, or has ended, or nothing of it, or is not wanted."""


def read_reasoning(
    source: Source,
    sink: Sink,
    reasoning: ReasoningFormat,
    state: PromptState,
    call_starts: tuple[str, ...],
) -> Steps[None]:
    """Read the reasoning at the beginning of an answer and past the marker at its end.

    `call_starts` are the markers of the tool calls that are looked for.
    """
    if state == "closed":
        yield from _pass_ends(source, sink, reasoning.ends)
        return
    is_open = state == "open" or (state == "unsaid" and reasoning.begins_open)
    if not is_open:
        found = yield from source.before((*reasoning.starts, *call_starts), sink.content)
        if found not in reasoning.starts:
            return
    sink.begin_reasoning()
    source.keep()
    yield from source.space()
    # Models may write the first marker though their prompt has it, or has none.
    if (yield from source.take(*reasoning.starts)):
        source.kept()
        sink.begin_reasoning()
    else:
        sink.reasoning(source.kept())
    if reasoning.label and not (yield from source.take(reasoning.label)):
        rest = source.unread
        if source.ended and reasoning.label.startswith(rest):
            # A label that is cut off is no reasoning either.
            source.read(len(rest), ignore)
    ends = (*reasoning.ends, *call_starts) if reasoning.interrupts else reasoning.ends
    found = yield from source.before(ends, sink.reasoning)
    if found is not None:
        sink.end_reasoning()
        yield from _pass_ends(source, sink, reasoning.ends)


def _pass_ends(source: Source, sink: Sink, ends: tuple[str, ...]) -> Steps[None]:
    """Read past end markers, which models may write twice, or though their prompt has it."""
    while True:
        source.keep()
        yield from source.space()
        if not (yield from source.take(*ends)):
            sink.content(source.kept())
            return
        source.kept()
