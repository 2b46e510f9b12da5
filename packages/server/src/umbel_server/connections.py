"""Connections: how long a client may take to ask, and what answers one that does not speak HTTP."""

import asyncio
import logging
from collections.abc import Callable

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from umbel_engine.fault_log import log_fault
from umbel_server.server import SERVER

logger = logging.getLogger(__name__)

HEAD_TIMEOUT = 60.0
"""Seconds in which the head of a request has to arrive, or the first byte of a connection."""

KEEP_ALIVE = 620.0
"""Seconds that a connection may lie idle after an answer: longer than load balancers let it."""

LINGER = 1.0
"""Seconds for which the rest of a body that nobody wants is read, so that the answer arrives."""


class Connection(web.RequestHandler):
    """One connection, which is closed when the head of a request does not arrive in time.

    aiohttp's own keep-alive is the limit on what is idle; bytes that trickle in are not, and may
    be the beginning of a head that never ends.
    """

    __slots__ = ("_head_timeout", "_head_timer", "_on_refusal")

    def __init__(
        self, server: web.Server, head_timeout: float, on_refusal: Callable[[str], None]
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=KEEP_ALIVE,
            lingering_time=LINGER,
            access_log=None,  # type: ignore[arg-type]
            # A body is what was sent: a small one cannot become a large one.
            auto_decompress=False,
        )
        self._head_timeout = head_timeout
        self._on_refusal = on_refusal
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; those that complete no head are the beginning of one."""
        super().data_received(data)
        if not self._messages and self._current_request is None:
            if self._head_timer is None:
                self._expect_head()
        elif self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop to wait."""
        if self._head_timer is not None:
            self._head_timer.cancel()
        if exc is not None:
            # The request keeps it; the frames of whoever wrote last would keep the request.
            exc.__traceback__ = None
        super().connection_lost(exc)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer what is no request, without repeating any of it, and close the connection."""
        if isinstance(exc, HttpProcessingError):
            self._on_refusal("malformed")
            logger.debug("%s sent no valid request: %s", request.remote, type(exc).__name__)
        elif exc is not None:
            log_fault(logger, exc, "a request failed before it could be answered")
        if exc is not None:
            # The connection keeps it, and the frames that it has passed keep the connection.
            exc.__traceback__ = None
        if request.writer.output_size > 0:
            raise ConnectionError("a part of an answer has been sent already")
        detail = "Bad Request" if status < 500 else "Internal Server Error"
        answer = web.json_response({"detail": detail}, status=status)
        answer.force_close()
        return answer

    def _expect_head(self) -> None:
        loop = asyncio.get_running_loop()
        self._head_timer = loop.call_later(self._head_timeout, self._give_up)

    def _give_up(self) -> None:
        self._head_timer = None
        if self._messages or self._current_request is not None:
            # The head was there when the timer began; what follows it may be half of another.
            self._expect_head()
            return
        self._on_refusal("late")
        logger.debug("a connection was closed: no request came in %g s", self._head_timeout)
        self.force_close()


class Connections(web.Server):
    """What makes a `Connection` of everyone who connects."""

    def __init__(
        self, server: web.Server, head_timeout: float, on_refusal: Callable[[str], None]
    ) -> None:
        super().__init__(
            server.request_handler,
            request_factory=server.request_factory,
            handler_cancellation=server.handler_cancellation,
        )
        self._head_timeout = head_timeout
        self._on_refusal = on_refusal

    def __call__(self) -> Connection:
        """Make the protocol of a connection."""
        return Connection(self, self._head_timeout, self._on_refusal)


class Runner(web.AppRunner):
    """Runs an application on such connections; the handler of a client that leaves is cancelled.

    `head_timeout` and `shutdown_timeout`, which answers are given at the end, are in seconds.
    """

    def __init__(
        self,
        app: web.Application,
        *,
        head_timeout: float = HEAD_TIMEOUT,
        shutdown_timeout: float = 1.0,
        handler_cancellation: bool = True,
    ) -> None:
        super().__init__(
            app, shutdown_timeout=shutdown_timeout, handler_cancellation=handler_cancellation
        )
        self._head_timeout = head_timeout

    async def _make_server(self) -> web.Server:
        server = await super()._make_server()
        return Connections(server, self._head_timeout, self._count_refusal)

    def _count_refusal(self, reason: str) -> None:
        # An application of somebody else may have umbel's below it.
        if SERVER in self.app:
            self.app[SERVER].refused_connections.labels(reason).inc()
