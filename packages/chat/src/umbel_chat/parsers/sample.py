"""The parser of one sample."""

import logging
from collections.abc import Callable, Container, Sequence
from collections.abc import Set as AbstractSet

from umbel_chat.events import OutputEvent
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Find, Source, Steps
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

    __slots__ = (
        "_event",
        "_finds",
        "_marker_ids",
        "_most",
        "_passed",
        "_reasons",
        "_sink",
        "_source",
        "_steps",
        "_trims",
        "_waiting",
        "reasoning_tokens",
        "watched_ids",
    )

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
        self.reasoning_tokens = 0
        """How many tokens so far were reasoning, without its markers."""
        # What becomes of text that the parser need not see, as of most: an event, or it waits.  Then
        # nothing else of the sample is touched, so that a token finds in the caches what it needs.
        self._finds: tuple[Find, ...] = ()
        self._event: Callable[[str], OutputEvent] | None = None
        self._trims = False
        self._reasons = False
        self._most = 0
        self._passed = 0
        self._waiting = ""
        self._steps = _read_all(source, sink, read)
        self._go_on()

    def feed(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        """Read on; gives what was found."""
        if (
            not self._finds
            or not text
            or (self._trims and text[-1].isspace())
            or len(self._waiting) > self._most
            or (token_ids and token_ids[-1] in self._marker_ids)
        ):
            return self._read(text, token_ids)
        for find in self._finds:
            if find(text) is not None:
                return self._read(text, token_ids)
        if self._reasons:
            self._sink.count(len(token_ids))
            self.reasoning_tokens = self._sink.reasoning_tokens
        if self._event is None:
            self._waiting += text
            return []
        self._passed += len(text)
        return [self._event(text)]

    def _read(self, text: str, token_ids: Sequence[int]) -> list[OutputEvent]:
        self._catch_up()
        reasons = self._sink.reasons
        ends_with_marker = bool(token_ids) and token_ids[-1] in self._marker_ids
        self._sink.count(len(token_ids))
        if text:
            self._go_on(text, ends_with_marker)
        if reasons and ends_with_marker and not self._sink.reasons:
            # The last token is what ended the reasoning.
            self._sink.reasoning_tokens -= 1
        self.reasoning_tokens = self._sink.reasoning_tokens
        self._find_lane()
        return self._sink.take()

    def _catch_up(self) -> None:
        if self._passed or self._waiting:
            self._source.catch_up(self._passed, self._waiting)
            self._passed, self._waiting = 0, ""

    def _find_lane(self) -> None:
        self._finds = ()
        lane = self._source.lane()
        if lane is None:
            return
        finds, emit, self._most = lane
        self._reasons = self._sink.reasons
        if emit is None:
            self._finds, self._event, self._trims = finds, None, False
        elif (passes := self._sink.passes(emit)) is not None:
            self._finds = finds
            self._event, self._trims = passes

    def finish(self) -> list[OutputEvent]:
        """Read what was waiting for more; gives what was found."""
        self._catch_up()
        self._source.end()
        self._go_on()
        self._sink.finish()
        self.reasoning_tokens = self._sink.reasoning_tokens
        return self._sink.take()

    def _go_on(self, text: str = "", ends_with_marker: bool = False) -> None:
        try:
            if not text or self._source.push(text, ends_with_marker):
                next(self._steps, None)
        except Exception as error:
            log_fault(logger, error, "a parser failed; the rest of its sample is content")
            self._source.leave()
            self._steps = self._source.rest(self._sink.content)
            next(self._steps, None)


def _read_all(source: Source, sink: Sink, read: Read) -> Steps[None]:
    yield from read(source, sink)
    yield from source.rest(sink.content)
