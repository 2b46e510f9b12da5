"""Waiting for an answer while its client may go away.

aiohttp cancels a handler when its client disconnects only if the runner was told to, and an
embedder's may not have been.  So whoever waits for a client looks at its transport too.
"""

import asyncio
import select
from typing import Generic, TypeVar

from aiohttp import web

LOOK_EVERY = 1.0
"""Seconds between two looks at a client that is waited for."""

ValueT = TypeVar("ValueT")


class ClientDisconnectedError(Exception):
    """The client closed its connection before it had its answer."""


def check_connected(http: web.Request) -> None:
    """Raise ClientDisconnectedError when the client has gone."""
    transport = http.transport
    if transport is None or transport.is_closing():
        raise ClientDisconnectedError


def _check_unread_end(http: web.Request) -> None:
    """Raise ClientDisconnectedError when the client has gone while nothing is read from it.

    Reading stops where more has come than can be used, such as most of a next request.
    """
    transport = http.transport
    if transport is None or transport.is_reading():
        return
    connection = transport.get_extra_info("socket")
    if connection is None:
        return
    ends = select.POLLRDHUP | select.POLLHUP | select.POLLERR
    poll = select.poll()
    poll.register(connection.fileno(), ends)
    if poll.poll(0):
        raise ClientDisconnectedError


async def watched(http: web.Request, future: "asyncio.Future[ValueT]") -> ValueT:
    """Wait for a future that nobody else waits for.

    When the client goes first, the future fails with ClientDisconnectedError.
    """
    check_connected(http)
    look = _Look(http, future)
    try:
        return await future
    finally:
        look.end()


class _Look(Generic[ValueT]):
    """Looks at a client now and then, by a timer: that costs much less than `asyncio.wait`."""

    __slots__ = ("_future", "_http", "_loop", "_timer")

    def __init__(self, http: web.Request, future: "asyncio.Future[ValueT]") -> None:
        self._http = http
        self._future = future
        self._loop = future.get_loop()
        self._timer = self._loop.call_later(LOOK_EVERY, self._look)

    def _look(self) -> None:
        try:
            check_connected(self._http)
            _check_unread_end(self._http)
        except ClientDisconnectedError as error:
            if not self._future.done():
                self._future.set_exception(error)
        else:
            self._timer = self._loop.call_later(LOOK_EVERY, self._look)

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()
