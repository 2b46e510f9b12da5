"""The answer that streams: a sink that renders what is ready and writes it at once.

While the client keeps up, a drain of the engine's socket ends in one write, with no task switch.
When it does not, samples are left alone: what arrives for them merges into their pending item, so
memory is bounded by the answer itself.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from aiohttp import HttpVersion11, web
from aiohttp.abc import AbstractStreamWriter

from umbel_engine import Sample, Samples
from umbel_engine.fault_log import log_fault
from umbel_server.keep_alive import COMMENT, KeepAlive
from umbel_server.paths import shown_path
from umbel_server.server import SERVER
from umbel_server.slow_clients import Outgoing, unread_of
from umbel_server.watch import ClientDisconnectedError, watched

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")
ItemT_contra = TypeVar("ItemT_contra", contravariant=True)

SAMPLES_PER_TURN = 256
BYTES_PER_TURN = 64 * 1024
"""What one response may render before the rest of the loop gets its turn."""

EVENT_STREAM = "text/event-stream; charset=utf-8"


class Frames(Protocol[ItemT_contra]):
    """Renders the events of one response; what it gives may be empty."""

    def begin(self) -> bytes:
        """Give what comes before the first item."""

    def item(self, position: int, item: ItemT_contra) -> bytes:
        """Give the events of an item of the sample at this position."""

    def end(self) -> bytes:
        """Give what comes after the last item of the last sample."""

    def failure(self, error: Exception) -> bytes:
        """Give what comes instead, when the answer cannot go on."""


class EventResponse(web.StreamResponse):
    """A response whose headers leave together with its first bytes."""

    # What aiohttp's own Response does; where aiohttp does not know it, headers leave alone.
    _send_headers_immediately = False


class EventStream:
    """One response body, written past aiohttp's coroutines.

    It begins and ends with a coroutine, because aiohttp prepares headers in one; in between `write`
    is plain.  Chunks are framed here when the protocol version has them.
    """

    __slots__ = (
        "_chunked",
        "_high_water",
        "_http",
        "_outgoing",
        "_transport",
        "_writer",
        "response",
    )

    def __init__(self, http: web.Request) -> None:
        self._http = http
        self.response = EventResponse(headers={"Content-Type": EVENT_STREAM})
        if http.version < HttpVersion11:
            # There are no chunks, so that the end of the connection is the end of the body.
            self.response.force_close()
        self._writer: AbstractStreamWriter | None = None
        self._transport: asyncio.Transport | None = None
        self._outgoing: Outgoing | None = None
        self._high_water = 0
        self._chunked = False

    async def _prepare(self) -> None:
        self._writer = await self.response.prepare(self._http)
        self._transport = self._http.transport
        if self._writer is None or self._transport is None:
            raise ClientDisconnectedError
        self._outgoing = self._http.app[SERVER].slow_clients.outgoing(self._transport)
        self._high_water = self._transport.get_write_buffer_limits()[1]
        self._chunked = bool(getattr(self._writer, "chunked", False))

    @property
    def has_begun(self) -> bool:
        """Whether the headers have been sent."""
        return self._writer is not None

    def written(self) -> int:
        """Give how many bytes have been written to the connection in streams."""
        return 0 if self._outgoing is None else self._outgoing.written

    async def begin(self, data: bytes) -> None:
        """Send the headers together with the first bytes."""
        await self._prepare()
        assert self._outgoing is not None
        self._outgoing.written += len(data)
        try:
            await self.response.write(data)
        except ConnectionError as error:
            raise ClientDisconnectedError from error

    def write(self, data: bytes) -> None:
        """Write bytes; none are no chunk, since an empty one would end the body."""
        if not data:
            return
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ClientDisconnectedError
        if self._chunked:
            data = b"%x\r\n%b\r\n" % (len(data), data)
        assert self._outgoing is not None
        self._outgoing.written += len(data)
        transport.write(data)

    @property
    def congested(self) -> bool:
        """Whether the client has yet to read more than the transport's high-water mark."""
        transport = self._transport
        return transport is not None and unread_of(transport) > self._high_water

    @property
    def unread(self) -> int:
        """How many bytes wait for the client to read."""
        return 0 if self._transport is None else unread_of(self._transport)

    async def drain(self) -> None:
        """Wait until the client has read enough; raises ClientDisconnectedError when it is gone."""
        assert self._writer is not None
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ClientDisconnectedError from error

    async def end(self, data: bytes) -> web.StreamResponse:
        """Send the last bytes, with the headers if these are the first too."""
        if self._writer is None:
            await self._prepare()
        try:
            await self.response.write_eof(data)
        except ConnectionError as error:
            raise ClientDisconnectedError from error
        return self.response


async def stream(
    http: web.Request, samples: Samples[ItemT], frames: Frames[ItemT]
) -> web.StreamResponse:
    """Answer a request with the events of its samples.

    An error before the first byte is raised, so that it gets its HTTP status; a later one becomes
    an event.  Raises ClientDisconnectedError when nobody is left to answer.
    """
    interval = http.app[SERVER].options.sse_keep_alive_interval
    return await _Answer(http, samples, frames).run(interval)


class _Answer(Generic[ItemT]):
    __slots__ = (
        "_done",
        "_error",
        "_events",
        "_frames",
        "_held",
        "_http",
        "_last",
        "_loop",
        "_owes_comment",
        "_samples",
        "_scheduled",
        "_signal",
        "_unfinished",
    )

    def __init__(self, http: web.Request, samples: Samples[ItemT], frames: Frames[ItemT]) -> None:
        self._http = http
        self._samples = samples
        self._frames = frames
        self._loop = asyncio.get_running_loop()
        self._events = EventStream(http)
        self._held: list[Sample[ItemT]] = []
        self._unfinished = len(samples)
        self._scheduled = False
        self._done = False
        self._last = b""
        self._error: Exception | None = None
        self._signal: asyncio.Future[None] = self._loop.create_future()
        self._owes_comment = False

    async def run(self, keep_alive_interval: float) -> web.StreamResponse:
        if not keep_alive_interval:
            return await self._run()
        with KeepAlive(keep_alive_interval, self._events.written, self._on_silence):
            return await self._run()

    async def _run(self) -> web.StreamResponse:
        self._samples.sink = self._hold
        try:
            async with self._samples:
                await self._answer()
        finally:
            # Its traceback has this answer; together they would wait for the garbage collector.
            self._error = None
        return await self._events.end(self._last)

    async def _answer(self) -> None:
        await self._until_held()
        if self._events.has_begun:
            # A comment came first; now it is too late for a status.
            await self._go_on(self._frames.begin)
            return
        self._raise_early_error()
        first = self._frames.begin() + self._render()
        if self._done:
            self._last = first
        else:
            await self._events.begin(first)
            await self._go_on()

    async def _until_held(self) -> None:
        """Wait for the first news, or for a silence to break."""
        while True:
            await watched(self._http, self._signal)
            if self._held:
                return
            self._signal = self._loop.create_future()
            if self._owes_comment:
                self._owes_comment = False
                await self._events.begin(COMMENT)

    def _on_silence(self) -> None:
        if not self._events.has_begun:
            self._owes_comment = True
            self._wake()
        elif not self._done and not self._events.unread:
            with suppress(ClientDisconnectedError):
                self._events.write(COMMENT)

    async def _go_on(self, begin: Callable[[], bytes] | None = None) -> None:
        self._samples.sink = self._hand_over
        try:
            if begin is not None:
                self._events.write(begin())
            self._turn()
            await self._until_done()
        except ClientDisconnectedError:
            raise
        except Exception as error:
            # The client is told that there was a fault, not which.
            log_fault(
                logger,
                error,
                "%s %s failed in mid-stream",
                self._http.method,
                shown_path(self._http),
            )
            self._last = self._frames.failure(error)

    def _hold(self, ready: list[Sample[ItemT]]) -> None:
        self._held += ready
        self._wake()

    def _hand_over(self, ready: list[Sample[ItemT]]) -> None:
        # Mostly there is nothing else, and the list is this one's to keep.
        self._held = self._held + ready if self._held else ready
        if not self._scheduled and not self._done:
            self._turn()

    def _raise_early_error(self) -> None:
        for sample in self._held:
            if sample.finish is not None and sample.finish.error is not None:
                raise sample.finish.error

    def _turn(self) -> None:
        """Render and write what is held, as far as one turn of the loop allows.

        What comes last is left to whoever ends the answer.
        """
        self._scheduled = False
        if self._events.congested:
            self._wake()
            return
        try:
            data = self._render()
            if self._done:
                self._last = data
            else:
                self._events.write(data)
        except Exception as error:
            self._error = error
        if self._done or self._error is not None:
            self._wake()
        elif self._held:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _render(self) -> bytes:
        parts: list[bytes] = []
        size = 0
        frames = self._frames
        rendered = 0
        for sample in self._held:
            if rendered == SAMPLES_PER_TURN or size > BYTES_PER_TURN:
                break
            rendered += 1
            item = sample.take()
            if item is None:
                continue
            finish = sample.finish
            if finish is not None:
                self._unfinished -= 1
                if finish.error is not None:
                    parts.append(frames.failure(finish.error))
                    self._done = True
                    break
            data = frames.item(sample.index, item)
            parts.append(data)
            size += len(data)
            if self._unfinished == 0:
                parts.append(frames.end())
                self._done = True
                break
        self._held = self._held[rendered:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _wake(self) -> None:
        if not self._signal.done():
            self._signal.set_result(None)

    async def _until_done(self) -> None:
        while True:
            if self._error is not None:
                raise self._error
            if self._done:
                return
            if self._events.congested:
                await self._events.drain()
                self._hand_over([])
                continue
            self._signal = self._loop.create_future()
            await watched(self._http, self._signal)
