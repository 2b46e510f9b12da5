"""From text to what the model says with it."""

import msgspec

from umbel_chat.events import ContentDelta, OutputEvent
from umbel_chat.output import OutputProcessor
from umbel_engine import EngineRequestError, Extras, Finish, Logprobs, PrefillStats
from umbel_llm import RequestTiming
from umbel_text import PositionLogprobs, TextStage
from umbel_text.stage import REFUSED


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


CALLS_REFUSED = "Calls of these tools cannot be enforced: the engine could not compile them."


class ChatStage:
    """Parses a sample with a processor of its own, when it is handed over.

    `holds_to_tools` says that a constraint that the engine refuses is made of the request's tools.
    """

    __slots__ = ("_holds_to_tools", "_processor", "_text", "end", "feed")

    def __init__(
        self, text: TextStage, processor: OutputProcessor, holds_to_tools: bool = False
    ) -> None:
        self._text = text
        self._processor = processor
        self._holds_to_tools = holds_to_tools
        if processor.watched_ids:
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
        elif len(delta.pieces) == 1:
            events = feed(delta.pieces[0].text, delta.pieces[0].token_ids)
        else:
            events = [
                event for piece in delta.pieces for event in feed(piece.text, piece.token_ids)
            ]
        finish = delta.finish
        if finish is not None:
            events = events + self._processor.finish()
            if self._holds_to_tools and finish.error is not None:
                finish = _blaming_tools(finish)
        return ChatDelta(
            events,
            delta.token_ids,
            delta.logprobs,
            delta.prompt_logprobs,
            delta.prefill,
            delta.extras,
            finish,
            delta.timing,
            self._processor.reasoning_tokens,
        )


def _blaming_tools(finish: Finish) -> Finish:
    error = finish.error
    if not isinstance(error, EngineRequestError) or error.code != REFUSED:
        return finish
    refusal = EngineRequestError(CALLS_REFUSED, error.code, error.retryable, "tools")
    return msgspec.structs.replace(finish, error=refusal)
