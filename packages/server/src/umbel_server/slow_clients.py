"""Clients that do not read what they are sent: after a while they are cut off.

A connection that is cut off ends like any other: its handler is woken, its samples are aborted.
"""

import asyncio
import logging
from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOKS_PER_TIMEOUT = 8
LOOK_AT_LEAST_EVERY = 5.0
"""Seconds."""


class Outgoing:
    """What has been written to one connection; `written` is in bytes, of streams alone."""

    __slots__ = ("_read", "_since", "_transport", "written")

    def __init__(self, transport: asyncio.Transport, now: float) -> None:
        self._transport = transport
        self._since = now
        self._read = 0
        self.written = 0

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed and there is nothing left to read from it."""
        return self._transport.is_closing() and not self._transport.get_write_buffer_size()

    def stuck_for(self, now: float) -> float:
        """Give for how many seconds the client has read nothing of what waits for it."""
        unread = self._transport.get_write_buffer_size()
        # While a stream goes on, what is read and what is written may even out in the buffer.
        read = self.written - unread
        if not unread or read != self._read:
            self._since = now
        self._read = read
        return now - self._since

    def cut_off(self) -> None:
        """Close the connection and forget what the client has not read."""
        self._transport.abort()


class SlowClients:
    """Watches the connections of an application.

    A client that has read nothing for `timeout` seconds, of something that waits for it, is cut
    off, and `on_cut` is called; with 0, nobody is.
    """

    def __init__(self, timeout: float, on_cut: Callable[[], None]) -> None:
        self._timeout = timeout
        self._on_cut = on_cut
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[asyncio.Transport, Outgoing] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def outgoing(self, transport: asyncio.Transport) -> Outgoing:
        """Watch a connection from now on, until it is closed."""
        known = self._connections.get(transport)
        if known is None:
            if self._loop is None:
                self._loop = asyncio.get_running_loop()
            known = self._connections[transport] = Outgoing(transport, self._loop.time())
            if self._timer is None:
                self._schedule(self._loop)
        return known

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        every = LOOK_AT_LEAST_EVERY
        if self._timeout:
            every = min(every, self._timeout / LOOKS_PER_TIMEOUT)
        self._timer = loop.call_later(every, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        now = loop.time()
        for transport, outgoing in list(self._connections.items()):
            if outgoing.is_over:
                del self._connections[transport]
            elif self._timeout and outgoing.stuck_for(now) >= self._timeout:
                logger.info("a client has read nothing for %g s and is cut off", self._timeout)
                outgoing.cut_off()
                self._on_cut()
        self._timer = None
        if self._connections:
            self._schedule(loop)

    def close(self) -> None:
        """Watch nobody any more."""
        self._connections.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
