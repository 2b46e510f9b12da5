"""Tool calls and reasoning, as answers have them."""

from collections.abc import Sequence

import msgspec

from umbel_chat import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallStart,
)
from umbel_engine import Finish, FinishReason


class Function(msgspec.Struct, frozen=True):
    """The function of a call; `arguments` is JSON."""

    name: str
    arguments: str


class ToolCall(msgspec.Struct, frozen=True):
    """A call of a tool."""

    id: str
    type: str
    function: Function


class Parts(msgspec.Struct):
    """What a message, or a part of one, is made of; None is what there is nothing of."""

    reasoning: str | None = None
    content: str | None = None
    calls: list[ToolCall] = []


def parts_of(events: Sequence[OutputEvent]) -> Parts:
    """Put together the events of a whole sample."""
    reasoning: list[str] = []
    content: list[str] = []
    starts: list[ToolCallStart] = []
    arguments: list[list[str]] = []
    for event in events:
        if isinstance(event, ContentDelta):
            content.append(event.text)
        elif isinstance(event, ReasoningDelta):
            reasoning.append(event.text)
        elif isinstance(event, ToolCallStart):
            starts.append(event)
            arguments.append([])
        elif isinstance(event, ArgumentsDelta):
            arguments[-1].append(event.text)
    return Parts(
        "".join(reasoning) or None,
        "".join(content) or None,
        [
            ToolCall(start.id, "function", Function(start.name, "".join(pieces)))
            for start, pieces in zip(starts, arguments, strict=True)
        ],
    )


def finish_reason(finish: Finish, has_calls: bool, is_named: bool) -> FinishReason | str:
    """Say why a choice ended: for its calls, unless a limit cut them off or one was asked for.

    The rule is that of `resolve_finish_reason` in vllm/entrypoints/serve/utils/tool_calls_utils.py.
    """
    if has_calls and finish.reason == "stop" and not is_named:
        return "tool_calls"
    return finish.reason
