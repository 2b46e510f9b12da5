"""What a parser has found, in order."""

from collections.abc import Callable

from umbel_chat.events import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
)


class Sink:
    """Takes what a parser finds in a sample.

    Whitespace waits where it may turn out to be part of the protocol: content or reasoning that is
    nothing but whitespace is dropped where a call or the content follows, and so is whitespace
    after a call unless there is content on both sides.  `trims_content` and `trims_reasoning` say
    that all whitespace before a call or at the end of the reasoning is the protocol's.
    """

    __slots__ = (
        "_after_call",
        "_earlier_tokens",
        "_events",
        "_has_content",
        "_is_visible",
        "_spaces",
        "_trims_content",
        "_trims_reasoning",
        "reasoning_tokens",
        "reasons",
    )

    def __init__(self, trims_content: bool = False, trims_reasoning: bool = False) -> None:
        self._trims_content = trims_content
        self._trims_reasoning = trims_reasoning
        self._events: list[OutputEvent] = []
        # Whitespace that waits, in pieces: there may be very much of it.
        self._spaces: list[str] = []
        # Whether there was more than whitespace since reasoning, content or a call began.
        self._is_visible = False
        self._after_call = False
        self._has_content = False
        self.reasons = False
        """Whether the text that is being read is reasoning."""
        self.reasoning_tokens = 0
        """How many tokens so far were reasoning, without its markers."""
        self._earlier_tokens = 0

    def count(self, tokens: int) -> None:
        """Count tokens that are reasoning unless it turns out that they end or begin it."""
        if self.reasons:
            self.reasoning_tokens += tokens

    def content(self, text: str) -> None:
        """Append to the content."""
        if self._after_call and not self._has_content:
            text = text.lstrip()
        if text := self._without_space(text, self._trims_content):
            self._has_content = True
            self._events.append(ContentDelta(text))

    def _without_space(self, text: str, trims: bool) -> str:
        """Keep back whitespace that may be the protocol's, and give the rest."""
        if self._is_visible and not trims:
            return text
        shown = text.rstrip()
        if not shown:
            self._spaces.append(text)
            return ""
        if not self._is_visible:
            self._is_visible = True
            if not trims:
                shown = text
        if self._spaces:
            waiting = "".join(self._spaces)
            self._spaces.clear()
        else:
            waiting = ""
        if len(shown) < len(text):
            self._spaces.append(text[len(shown) :])
        return waiting + shown

    def begin_reasoning(self) -> None:
        """Say that reasoning begins; where it had begun, what was read since is none."""
        if self.reasons:
            self.reasoning_tokens = self._earlier_tokens
        self.reasons = True
        self._earlier_tokens = self.reasoning_tokens
        self._begin()

    def _begin(self) -> None:
        self._spaces.clear()
        self._is_visible = False

    def reasoning(self, text: str) -> None:
        """Append to the reasoning."""
        if text := self._without_space(text, self._trims_reasoning):
            self._events.append(ReasoningDelta(text))

    def end_reasoning(self) -> None:
        """Say that reasoning has ended."""
        self.reasons = False
        self._begin()

    def start_call(self, name: str, call_id: str = "") -> None:
        """Begin a tool call; `call_id` is what the model calls it, if it does."""
        self._events.append(ToolCallStart(name, call_id))

    def arguments(self, text: str) -> None:
        """Append to the arguments of the call, as JSON."""
        self._events.append(ArgumentsDelta(text))

    def end_call(self) -> None:
        """End the call."""
        self._after_call = True
        self._begin()
        self._events.append(ToolCallEnd())

    def finish(self) -> None:
        """Say that nothing more comes."""
        waiting = "".join(self._spaces)
        if waiting and not self._after_call:
            event = ReasoningDelta if self.reasons else ContentDelta
            self._events.append(event(waiting))
        self._spaces.clear()

    def passes(
        self, emit: Callable[[str], object]
    ) -> tuple[Callable[[str], OutputEvent], bool] | None:
        """Give the event that text makes which goes to a method of this sink now.

        And whether that holds only for text that does not end in whitespace.  None when it depends
        on the text.
        """
        if emit == self.arguments:
            return ArgumentsDelta, False
        if not self._is_visible or self._spaces:
            return None
        if emit == self.content:
            return ContentDelta, self._trims_content
        if emit == self.reasoning:
            return ReasoningDelta, self._trims_reasoning
        return None

    def take(self) -> list[OutputEvent]:
        """Give what was found since the last time."""
        events = self._events
        self._events = []
        return events
