"""The `delta` of a streamed choice, from what its parser found."""

from collections.abc import Sequence

import msgspec

from umbel_chat import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallStart,
)

encode = msgspec.json.encode


class FunctionDelta(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What is new of the function of a call: its name first, then more and more arguments."""

    name: str | None = None
    arguments: str


class ToolCallDelta(msgspec.Struct, omit_defaults=True, kw_only=True):
    """What is new of a call."""

    index: int
    id: str | None = None
    type: str | None = None
    function: FunctionDelta


MORE_ARGUMENTS = b'"tool_calls":[{"index":%d,"function":{"arguments":%b}}]'


class ChoiceDeltas:
    """Renders the deltas of one choice; clients put those of a call together by its index."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0
        """How many calls have begun."""

    def render(self, events: Sequence[OutputEvent]) -> bytes:
        """Give the fields of a delta, none of them when nothing was found.

        What was found of one call makes one entry, whatever number of events that was.
        """
        if len(events) == 1:
            event = events[0]
            if isinstance(event, ContentDelta):
                return b'"content":%b' % encode(event.text)
            if isinstance(event, ReasoningDelta):
                return b'"reasoning":%b' % encode(event.text)
            if isinstance(event, ArgumentsDelta):
                return MORE_ARGUMENTS % (self.calls - 1, encode(event.text))
        return self._render_all(events) if events else b""

    def _render_all(self, events: Sequence[OutputEvent]) -> bytes:
        reasoning: list[str] = []
        content: list[str] = []
        calls: list[ToolCallDelta] = []
        for event in events:
            if isinstance(event, ContentDelta):
                content.append(event.text)
            elif isinstance(event, ReasoningDelta):
                reasoning.append(event.text)
            elif isinstance(event, ToolCallStart):
                self.calls += 1
                function = FunctionDelta(name=event.name, arguments="")
                calls.append(
                    ToolCallDelta(
                        index=event.index, id=event.id, type="function", function=function
                    )
                )
            elif isinstance(event, ArgumentsDelta):
                if not calls:
                    function = FunctionDelta(arguments="")
                    calls.append(ToolCallDelta(index=self.calls - 1, function=function))
                calls[-1].function.arguments += event.text
        fields: list[bytes] = []
        if reasoning:
            fields.append(b'"reasoning":%b' % encode("".join(reasoning)))
        if content:
            fields.append(b'"content":%b' % encode("".join(content)))
        if calls:
            fields.append(b'"tool_calls":%b' % encode(calls))
        return b",".join(fields)
