"""The output processor: what becomes of the text of one sample."""

from collections.abc import Callable, Container, Sequence
from typing import Protocol, TypeAlias

from umbel_chat.events import ContentDelta, OutputEvent


class OutputProcessor(Protocol):
    """Turns the text of one sample into events.

    `feed` takes what is new, in order: text, and the ids of the tokens that it came from (text may
    lag behind its tokens).  A token of `watched_ids` (None: of none) comes as the last one, with the
    text that its own text ends.  `finish` is called once, after the last text, and gives what was held back.
    Text cut in any way gives the same answer in the end.  A processor has state, so every sample
    has one of its own.  `reasoning_tokens` counts the tokens so far that were reasoning.
    """

    @property
    def watched_ids(self) -> Container[int] | None: ...

    @property
    def reasoning_tokens(self) -> int: ...

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]: ...

    def finish(self) -> list[OutputEvent]: ...


OutputProcessorFactory: TypeAlias = Callable[[], OutputProcessor]
"""Makes the output processor of one sample; called once per sample."""


class PlainTextProcessor:
    """An output processor for which all text is content."""

    __slots__ = ()

    watched_ids: Container[int] | None = None
    reasoning_tokens = 0

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        """Give the text as content; nothing for empty text."""
        return [ContentDelta(text)] if text else []

    def finish(self) -> list[OutputEvent]:
        """Give nothing: no text is held back."""
        return []
