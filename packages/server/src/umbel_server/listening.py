"""The address that is served, from binding it until the last answer has been sent."""

import socket
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from umbel_server.connections import Runner
from umbel_server.errors import OptionError
from umbel_server.logs import say
from umbel_server.settings import FrontendSettings

BACKLOG = 1024
"""Connections that may wait to be accepted."""

UNSENT = 128 * 1024
"""Bytes that the system takes for a connection beyond those that are on their way."""


def listening_socket(settings: FrontendSettings) -> socket.socket:
    """Bind the address to serve on; raises OptionError when it cannot be had."""
    if settings.uds is not None:
        listener = socket.socket(socket.AF_UNIX)
        address: str | tuple[str, int] = settings.uds
        _remove_left_behind(settings.uds)
    else:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_NOTSENT_LOWAT"):
            # What a client does not read would else fill buffers of megabytes, for each.
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        address = (settings.host, settings.port)
    try:
        listener.bind(address)
    except OSError as error:
        listener.close()
        shown = address if isinstance(address, str) else f"{address[0]}:{address[1]}"
        raise OptionError(f"cannot listen on {shown}: {error.strerror or error}") from error
    if settings.uds is None:
        # Another server must not get the address while this one waits for its engines.
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 0)
    return listener


def _remove_left_behind(path: str) -> None:
    """Remove the socket of a server that is gone; raises OptionError when there is one."""
    if not Path(path).is_socket():
        return
    with socket.socket(socket.AF_UNIX) as probe:
        try:
            probe.connect(path)
        except OSError:
            Path(path).unlink()
            return
    raise OptionError(f"cannot listen on {path}: another server listens there")


@asynccontextmanager
async def serving(
    app: web.Application,
    listener: socket.socket,
    tls: ssl.SSLContext | None,
    is_shared: bool = False,
) -> AsyncIterator[web.SockSite]:
    """Serve the application; gives what accepts the connections.

    With `tls`, it speaks HTTPS.  `is_shared` says that other processes accept connections of the same socket.  Answers that
    still run at the end are given a second.
    """
    runner = Runner(app)
    await runner.setup()
    try:
        # asyncio accepts so many connections in a turn; one by one, they go to whoever has time.
        backlog = 1 if is_shared else BACKLOG
        site = web.SockSite(runner, listener, ssl_context=tls, backlog=backlog)
        await site.start()
        listener.listen(BACKLOG)
        yield site
    finally:
        await runner.cleanup()


def announce(settings: FrontendSettings, listener: socket.socket, started: float) -> None:
    """Say that a model is served; `started` is when the command was, on the monotonic clock."""
    name = settings.served_model_names[0]
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    scheme = "http" if settings.ssl_certfile is None else "https"
    address = settings.uds or f"{scheme}://{host}:{listener.getsockname()[1]}"
    elapsed = time.monotonic() - started
    say(f"{name} is served at {address} (ready after {elapsed:.1f} s)")
