"""Waiting for an answer while its client may go away.

aiohttp cancels a handler when its client disconnects only if the runner was told to, and an
embedder's may not have been.  So whoever waits for a client looks at its transport too.
"""

import asyncio
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


async def watched(http: web.Request, future: "asyncio.Future[ValueT]") -> ValueT:
    """Wait for a future; raises ClientDisconnectedError when the client goes first."""
    while True:
        check_connected(http)
        await asyncio.wait((future,), timeout=LOOK_EVERY)
        if future.done():
            return future.result()
