"""Waiting for an answer while its client may go away.

aiohttp cancels a handler when its client disconnects only if the runner was told to, and an
embedder's may not have been.  So whoever waits for a client looks at its transport too.
"""

import asyncio
import select
from typing import TypeVar

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
    loop = future.get_loop()
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        try:
            check_connected(http)
            _check_unread_end(http)
        except ClientDisconnectedError as error:
            if not future.done():
                future.set_exception(error)
        else:
            timer = loop.call_later(LOOK_EVERY, look)

    # A timer by itself costs much less than `asyncio.wait` with a timeout.
    timer = loop.call_later(LOOK_EVERY, look)
    try:
        return await future
    finally:
        timer.cancel()
