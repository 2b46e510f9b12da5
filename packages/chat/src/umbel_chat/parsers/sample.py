"""The parser of one sample."""

import logging
from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet

from umbel_chat.events import OutputEvent
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps
from umbel_engine.fault_log import log_fault

logger = logging.getLogger(__name__)

Read = Callable[[Source, Sink], Steps[None]]
"""A parser: it reads from the one and tells the other what it finds."""


class SampleParser:
    """An output processor that reads a sample with a parser of its own.

    `read` is the parser; what it leaves unread is content.  `marker_ids` are the tokens that may be
    markers, and `watched_ids` those that have to be the last of what is fed at once, with a text
    that ends the text.
    """

    __slots__ = ("_marker_ids", "_sink", "_source", "_steps", "watched_ids")

    def __init__(
        self,
        source: Source,
        sink: Sink,
        read: Read,
        marker_ids: AbstractSet[int] = frozenset(),
        watched_ids: Container[int] | None = None,
    ) -> None:
        self._source = source
        self._sink = sink
        self._marker_ids = marker_ids
        self.watched_ids = watched_ids
        self._steps = _read_all(source, sink, read)
        self._go_on()

    @property
    def reasoning_tokens(self) -> int:
        """How many tokens so far were reasoning, without its markers."""
        return self._sink.reasoning_tokens

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        """Read on; gives what was found."""
        reasons = self._sink.reasons
        ends_with_marker = bool(token_ids) and token_ids[-1] in self._marker_ids
        self._sink.count(len(token_ids))
        if self._source.push(text, ends_with_marker):
            self._go_on()
        if reasons and ends_with_marker and not self._sink.reasons:
            # The last token is what ended the reasoning.
            self._sink.reasoning_tokens -= 1
        return self._sink.take()

    def finish(self) -> list[OutputEvent]:
        """Read what was waiting for more; gives what was found."""
        self._source.end()
        self._go_on()
        self._sink.finish()
        return self._sink.take()

    def _go_on(self) -> None:
        try:
            next(self._steps, None)
        except Exception as error:
            log_fault(logger, error, "a parser failed; the rest of its sample is content")
            self._steps = self._source.rest(self._sink.content)
            next(self._steps, None)


def _read_all(source: Source, sink: Sink, read: Read) -> Steps[None]:
    yield from read(source, sink)
    yield from source.rest(sink.content)
