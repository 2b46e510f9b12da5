"""What the handlers of one application share."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from aiohttp import web
from prometheus_client import CollectorRegistry, Metric

from umbel_chat import ChatLlm
from umbel_server.errors import not_found
from umbel_server.options import ServerOptions
from umbel_server.template_threads import TemplateThreads


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
        self.other_processes: OtherProcesses | None = None
        """The other server processes, where there are any."""
        self.template_threads = TemplateThreads(chat.model.template_limits.at_once)
        """Where requests wait for templates of their own."""
        self.load = 0
        """How many generation requests are being answered."""
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
    def counted(self) -> Iterator[None]:
        """Count a request to the load while it is answered."""
        self.load += 1
        try:
            yield
        finally:
            self.load -= 1
            if self.load == 0 and self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    async def idle(self, timeout: float) -> None:
        """Wait until no generation request is being answered, `timeout` seconds at most."""
        if self.load:
            self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait((self._idle,), timeout=timeout)


SERVER = web.AppKey("server", Server)
