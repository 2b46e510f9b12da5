"""What a client gets to see of what a parser finds."""

import secrets
import string
from collections.abc import Callable, Container, Sequence
from typing import Literal, TypeAlias

import msgspec

from umbel_chat.events import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
)
from umbel_chat.output import OutputProcessor

CallIdStyle: TypeAlias = Literal["vllm", "mistral"]

MISTRAL_ID_CHARACTERS = string.ascii_letters + string.digits


def new_call_id(style: CallIdStyle) -> str:
    """Make an id for a tool call that the model gave none.

    The styles are those of vllm/renderers/chat_utils and of Mistral's models, whose templates take
    no other ids than nine letters and digits.
    """
    if style == "mistral":
        return "".join(secrets.choice(MISTRAL_ID_CHARACTERS) for _ in range(9))
    return f"chatcmpl-tool-{secrets.token_hex(8)}"


class AnswerRules(msgspec.Struct, frozen=True):
    """What of a sample is shown: its reasoning, and how many of its calls, None meaning all."""

    include_reasoning: bool = True
    most_calls: int | None = None
    call_ids: CallIdStyle = "vllm"


class AnswerProcessor:
    """An output processor that shows of another one's events what the request wants.

    Calls get an index and an id, those without arguments get `{}`.  At the end of the sample,
    `on_end` is told whether there were calls.
    """

    __slots__ = (
        "_calls",
        "_has_arguments",
        "_is_shown",
        "_on_end",
        "_parser",
        "_rules",
        "reasoning_tokens",
    )

    def __init__(
        self,
        parser: OutputProcessor,
        rules: AnswerRules,
        on_end: Callable[[bool], None] | None = None,
    ) -> None:
        self._parser = parser
        self._rules = rules
        self._on_end = on_end
        self._calls = 0
        # Of the call that began last.
        self._is_shown = False
        self._has_arguments = False
        self.reasoning_tokens = 0
        """How many tokens so far were reasoning, shown or not."""

    @property
    def watched_ids(self) -> Container[int] | None:
        """The tokens that the parser wants to see."""
        return self._parser.watched_ids

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        """Parse what is new; gives what is shown of it."""
        events = self._parser.feed(text, token_ids)
        self.reasoning_tokens = self._parser.reasoning_tokens
        # Most tokens bring nothing that changes anything.
        if not events:
            return events
        if len(events) == 1:
            kind = type(events[0])
            if kind is ContentDelta:
                return events
            if kind is ArgumentsDelta and self._is_shown and self._has_arguments:
                return events
        return self._shown(events)

    def finish(self) -> list[OutputEvent]:
        """Give what is shown of what the parser held back."""
        events = self._shown(self._parser.finish())
        self.reasoning_tokens = self._parser.reasoning_tokens
        if self._on_end is not None:
            self._on_end(self._calls > 0)
        return events

    def _shown(self, events: list[OutputEvent]) -> list[OutputEvent]:
        shown: list[OutputEvent] = []
        for event in events:
            if isinstance(event, ToolCallStart):
                self._start(event, shown)
            elif isinstance(event, ArgumentsDelta):
                self._has_arguments = True
                if self._is_shown:
                    shown.append(event)
            elif isinstance(event, ToolCallEnd):
                if self._is_shown:
                    shown += [event] if self._has_arguments else [ArgumentsDelta("{}"), event]
            elif self._rules.include_reasoning or not isinstance(event, ReasoningDelta):
                shown.append(event)
        return shown

    def _start(self, event: ToolCallStart, shown: list[OutputEvent]) -> None:
        most = self._rules.most_calls
        self._is_shown = most is None or self._calls < most
        self._has_arguments = False
        if self._is_shown:
            call_id = event.id or new_call_id(self._rules.call_ids)
            shown.append(ToolCallStart(event.name, call_id, self._calls))
            self._calls += 1
