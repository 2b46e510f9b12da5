"""Clients that do not read what they are sent: after a while they are cut off.

A connection that is cut off ends like any other: its handler is woken, its samples are aborted.
"""

import asyncio
import fcntl
import logging
import sys
import termios
from collections.abc import Callable

logger = logging.getLogger(__name__)

LOOKS_PER_TIMEOUT = 8
LOOK_AT_LEAST_EVERY = 5.0
"""Seconds."""


def unread_of(transport: asyncio.Transport) -> int:
    """Give how many bytes the transport still has to hand to the system; none once it is closed."""
    try:
        return transport.get_write_buffer_size()
    except AttributeError:
        # asyncio's transport for TLS has no buffer any more when it was closed twice.
        return 0


def unsent_of(transport: asyncio.Transport) -> int:
    """Give how many bytes the system has taken that have not arrived; 0 where it does not tell.

    The system lets a program write again only when a good part of its buffer is free, which may be
    a megabyte; a client that reads slowly reads from this for minutes before.
    """
    connection = transport.get_extra_info("socket")
    if connection is None:
        return 0
    try:
        told = fcntl.ioctl(connection.fileno(), termios.TIOCOUTQ, bytes(4))
    except (OSError, ValueError):
        return 0
    return int.from_bytes(told, sys.byteorder)


class Outgoing:
    """What has been written to one connection; `written` is in bytes, of streams alone."""

    __slots__ = ("_read", "_silent_looks", "_transport", "written")

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._silent_looks = 0
        self._read = 0
        self.written = 0

    @property
    def is_over(self) -> bool:
        """Whether the connection is closed and there is nothing left to read from it."""
        return self._transport.is_closing() and not self.unread

    @property
    def unread(self) -> int:
        """How many bytes wait for the client to read, beside those that the system has taken."""
        return unread_of(self._transport)

    def look(self) -> int:
        """Look whether the client has read; gives how many looks it has read nothing for.

        That is, nothing of something that waits for it.
        """
        unread = self.unread
        if not unread:
            self._silent_looks = 0
            self._read = self.written
            return 0
        # While a stream goes on, what is read and what is written may even out in the buffers.
        # Framing and encryption make more of what is written, so that this may also go down.
        read = self.written - unread - unsent_of(self._transport)
        self._silent_looks = 0 if read > self._read else self._silent_looks + 1
        self._read = read
        return self._silent_looks

    def cut_off(self) -> None:
        """Close the connection and forget what the client has not read."""
        self._transport.abort()


class SlowClients:
    """Watches the connections of an application.

    A client that has read nothing for `timeout` seconds, of something that waits for it, is cut
    off, and `on_cut` is called; with 0, nobody is.  Looks are counted, not seconds: a server that was
    itself stopped for a while must not take its clients for slow.
    """

    def __init__(self, timeout: float, on_cut: Callable[[], None]) -> None:
        self._timeout = timeout
        self._every = LOOK_AT_LEAST_EVERY
        if timeout:
            self._every = min(LOOK_AT_LEAST_EVERY, timeout / LOOKS_PER_TIMEOUT)
        self._on_cut = on_cut
        self._timer: asyncio.TimerHandle | None = None
        self._connections: dict[asyncio.Transport, Outgoing] = {}

    def __len__(self) -> int:
        return len(self._connections)

    def outgoing(self, transport: asyncio.Transport) -> Outgoing:
        """Watch a connection from now on, until it is closed."""
        known = self._connections.get(transport)
        if known is None:
            known = self._connections[transport] = Outgoing(transport)
            if self._timer is None:
                self._schedule(asyncio.get_running_loop())
        return known

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._every, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._schedule(loop)
        for transport, outgoing in list(self._connections.items()):
            if outgoing.is_over:
                del self._connections[transport]
            elif self._timeout and outgoing.look() * self._every >= self._timeout:
                logger.info("a client has read nothing for %g s and is cut off", self._timeout)
                outgoing.cut_off()
                self._on_cut()
        if not self._connections:
            self.close()

    @property
    def unread(self) -> int:
        """How many bytes wait for all clients together to read them."""
        return sum(outgoing.unread for outgoing in self._connections.values())

    def close(self) -> None:
        """Watch nobody any more."""
        self._connections.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
