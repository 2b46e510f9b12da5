"""From text to what the model says with it."""

import msgspec

from umbel_chat.events import ContentDelta, OutputEvent
from umbel_chat.output import OutputProcessor
from umbel_engine import Extras, Finish, Logprobs, PrefillStats
from umbel_llm import RequestTiming
from umbel_text import PositionLogprobs, TextStage


class ChatDelta(msgspec.Struct, frozen=True):
    """What a sample brought since the last hand-over, as events of a message.

    `reasoning_tokens` is how many tokens of the sample were reasoning so far.  See
    `umbel_text.TextDelta` for the other fields.
    """

    events: list[OutputEvent]
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: Logprobs | None = None
    prefill: PrefillStats | None = None
    extras: Extras | None = None
    finish: Finish | None = None
    timing: RequestTiming | None = None
    reasoning_tokens: int = 0

    @property
    def content(self) -> str:
        """The text of the content events."""
        return "".join(event.text for event in self.events if isinstance(event, ContentDelta))


class ChatStage:
    """Parses a sample with a processor of its own, when it is handed over."""

    __slots__ = ("_processor", "_text", "end", "feed")

    def __init__(self, text: TextStage, processor: OutputProcessor) -> None:
        self._text = text
        self._processor = processor
        if processor.watched_ids is not None:
            text.watch(processor.watched_ids)
        # Arrival is the text layer's business alone.
        self.feed = text.feed
        self.end = text.end

    def take(self) -> ChatDelta:
        """Parse what is pending and begin anew."""
        delta = self._text.take()
        feed = self._processor.feed
        if delta.pieces is None:
            events = feed(delta.text, delta.token_ids)
        else:
            events = [
                event for piece in delta.pieces for event in feed(piece.text, piece.token_ids)
            ]
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
            self._processor.reasoning_tokens,
        )
