"""What the handlers of one application share."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, Counter, Metric

from umbel_chat import ChatLlm
from umbel_server.errors import not_found, overloaded, service_unavailable
from umbel_server.options import ServerOptions
from umbel_server.slow_clients import SlowClients
from umbel_server.template_threads import TemplateThreads

LOOK_AT_UNREAD_EVERY = 0.02
"""Seconds."""

SHUTTING_DOWN = "The server is shutting down. Please try again later or on a different instance."


class OtherProcesses(Protocol):
    """The other server processes of the same engines."""

    def abort(self, response_ids: list[str]) -> None:
        """Abort responses that the others may have."""

    async def metrics(self) -> list[list[Metric]]:
        """Give the metrics of each of the others."""

    async def load(self) -> int:
        """Give how many requests the others are answering."""


class Server:
    """One model behind one application."""

    def __init__(self, chat: ChatLlm, options: ServerOptions, registry: CollectorRegistry) -> None:
        self.chat = chat
        self.options = options
        self.registry = registry
        self.started = int(time.time())
        self.disconnects = Counter(
            "umbel:client_disconnects",
            "Requests whose client went away before it had its answer.",
            registry=registry,
        )
        self.write_timeouts = Counter(
            "umbel:client_write_timeouts",
            "Clients that were cut off because they did not read.",
            registry=registry,
        )
        self.refused_connections = Counter(
            "umbel:refused_connections",
            "Connections that were closed because no valid request came.",
            ("reason",),
            registry=registry,
        )
        self.slow_clients = SlowClients(options.client_write_timeout, self.write_timeouts.inc)
        self.other_processes: OtherProcesses | None = None
        """The other server processes, where there are any."""
        self.template_threads = TemplateThreads(chat.model.template_limits.at_once)
        """Where requests wait for templates of their own."""
        self.long_work = asyncio.Semaphore(1)
        """The turn of requests whose bodies take long to read and to tokenize."""
        self.load = 0
        """How many generation requests are being answered."""
        self.is_draining = False
        """Whether the server is about to end; it lets nobody in any more."""
        self.sequences = 0
        """How many sequences they are, counted from when a request is let in."""
        self._idle: asyncio.Future[None] | None = None

    @property
    def model_name(self) -> str:
        """The name that answers carry."""
        return self.options.served_model_names[0]

    def check_model(self, name: str | None) -> None:
        """Refuse a model that is not served; no name means the one that is."""
        names = self.options.served_model_names
        if name and name not in names:
            aliases = ", ".join(names)
            raise not_found(
                f"The model `{name}` does not exist. Valid aliases: {aliases}.", "model"
            )

    @contextmanager
    def admitted(self, sequences: int) -> Iterator[None]:
        """Let in a request for so many sequences, all or none, for as long as it is answered.

        Raises EngineDeadError, ApiError when the server is shutting down, QueueFullError for a limit on what waits for the engines, and
        ApiError when more would be answered at once than this server may.
        """
        llm = self.chat.text.llm
        llm.client.check_alive()
        if self.is_draining:
            raise service_unavailable(SHUTTING_DOWN)
        llm.admission.check(sequences)
        limit = self.options.max_concurrent_sequences
        if limit and self.sequences + sequences > limit:
            llm.metrics.admission_rejected("max_concurrent_sequences")
            raise overloaded(
                f"This server answers at most {limit} sequences at once: {self.sequences} are "
                f"being answered, and {sequences} were asked for. Please try again later or on a "
                "different instance."
            )
        self.sequences += sequences
        try:
            yield
        finally:
            self.sequences -= sequences

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count a request to the load while it is answered."""
        self.load += 1
        try:
            yield
        finally:
            self.load -= 1
            if self.load == 0 and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def drain(self, timeout: float) -> None:
        """Let nobody in any more; what is not answered in time ends with the reason "abort"."""
        self.is_draining = True
        await self._idle_within(timeout)
        llm = self.chat.text.llm
        llm.abort(llm.in_flight.response_ids)

    async def _idle_within(self, timeout: float) -> None:
        """Wait until every generation request is answered and read, `timeout` seconds at most."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        if self.load:
            self._idle = loop.create_future()
            await asyncio.wait((self._idle,), timeout=timeout)
        # An answer is written when its handler is done with it.
        await asyncio.sleep(0)
        while self.slow_clients.unread and loop.time() < deadline:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_AT_UNREAD_EVERY)


SERVER = web.AppKey("server", Server)
