"""From text to what the model says with it."""

import msgspec

from umbel_chat.output import OutputEvent, OutputProcessor
from umbel_engine import Extras, Finish, Logprobs, PrefillStats
from umbel_llm import RequestTiming
from umbel_text import PositionLogprobs, TextStage


class ChatDelta(msgspec.Struct, frozen=True):
    """What a sample brought since the last hand-over, as events of a message.

    See `umbel_text.TextDelta` for the other fields.
    """

    events: list[OutputEvent]
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: Logprobs | None = None
    prefill: PrefillStats | None = None
    extras: Extras | None = None
    finish: Finish | None = None
    timing: RequestTiming | None = None

    @property
    def content(self) -> str:
        """The text of the content events."""
        if len(self.events) == 1:
            return self.events[0].text
        return "".join(event.text for event in self.events)


class ChatStage:
    """Parses a sample with a processor of its own, when it is handed over."""

    __slots__ = ("_processor", "_text", "end", "feed")

    def __init__(self, text: TextStage, processor: OutputProcessor) -> None:
        self._text = text
        self._processor = processor
        # Arrival is the text layer's business alone.
        self.feed = text.feed
        self.end = text.end

    def take(self) -> ChatDelta:
        """Parse what is pending and begin anew."""
        delta = self._text.take()
        events = self._processor.feed(delta.text, delta.token_ids)
        if delta.finish is not None:
            events = events + self._processor.finish()
        return ChatDelta(
            events,
            delta.token_ids,
            delta.logprobs,
            delta.prompt_logprobs,
            delta.prefill,
            delta.extras,
            delta.finish,
            delta.timing,
        )
