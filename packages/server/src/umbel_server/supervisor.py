"""`umbel serve --api-server-count N`: one process that starts the others, and ends with them.

It holds the port and shakes hands with the engines; requests are served by the others alone.
"""

import asyncio
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager, closing
from typing import TypeVar

from umbel_engine import Addresses, EngineGreeter
from umbel_server.line import Exchange, Listening, Message, Serving
from umbel_server.listening import announce, listening_socket
from umbel_server.serve import engine_options, managed_engines, with_model
from umbel_server.settings import ServeSettings
from umbel_server.stop import Stop
from umbel_server.tls import tls_context
from umbel_server.worker import COUNTER_SIZE, Assignment

ResultT = TypeVar("ResultT")

STOPPED_WITHIN = 10.0
"""Seconds that a process gets to stop beyond those that its requests get to finish."""


async def supervise(settings: ServeSettings) -> int:
    """Serve with several processes until told to stop; gives the exit status.

    It is 1 when one of them ends by itself, as all do when the engines die.
    """
    started = time.monotonic()
    settings = await with_model(settings)
    options = engine_options(settings)
    # The processes load it by themselves; what is wrong with it is said once.
    tls_context(settings)
    async with AsyncExitStack() as stack:
        listener = stack.enter_context(listening_socket(settings))
        stop = Stop()
        stack.callback(stop.close)
        greeter = EngineGreeter(options.handshake_address, options.engine_count)
        stack.callback(greeter.close)
        fleet = await stack.enter_async_context(started_fleet(settings, listener))

        async def come_up() -> None:
            addresses = await fleet.unless_one_ends(fleet.addresses())
            greeting = greeter.greet(addresses, options.ready_timeout)
            process = managed_engines(settings, greeter.handshake_address)
            if process is not None:
                await stack.enter_async_context(process)
                greeting = process.wait_until(greeting)
            await fleet.unless_one_ends(greeting)
            await fleet.unless_one_ends(fleet.all_serve())

        try:
            if not await stop.unless_stopped(come_up()):
                return 0
            announce(settings, listener, started)
            await stop.unless_stopped(fleet.one_ends())
        except ProcessEndedError:
            # The others notice the same, or are told; their clients get the errors.
            await fleet.stop(STOPPED_WITHIN)
            return 1
        return await fleet.stop(settings.shutdown_timeout + STOPPED_WITHIN)


@asynccontextmanager
async def started_fleet(settings: ServeSettings, listener: socket.socket) -> AsyncIterator["Fleet"]:
    """Start the processes; none is left on the way out."""
    count = settings.api_server_count
    with (
        tempfile.TemporaryDirectory(prefix="umbel-") as directory,
        tempfile.TemporaryFile(prefix="umbel-") as counters,
    ):
        counters.truncate(count * COUNTER_SIZE)
        address = f"ipc://{directory}/line"
        fleet = Fleet(count)
        with closing(Exchange(address, fleet.on_message)):
            try:
                for index in range(count):
                    descriptors = (listener.fileno(), counters.fileno())
                    await fleet.start(Assignment(settings, index, address, *descriptors))
                yield fleet
            finally:
                await fleet.kill()


class ProcessEndedError(Exception):
    """Report that a server process has ended while it was needed; it has said why."""


class Fleet:
    """The server processes, and how far they have come."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._processes: list[asyncio.subprocess.Process] = []
        self._ends: list[asyncio.Task[int]] = []
        self._listening: dict[int, Addresses] = {}
        self._serving: set[int] = set()
        self._news = asyncio.Event()

    async def start(self, assignment: Assignment) -> None:
        """Start a process."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "umbel_server.worker"),
            stdin=asyncio.subprocess.PIPE,
            pass_fds=(assignment.listener, assignment.counters),
        )
        self._processes.append(process)
        self._ends.append(asyncio.create_task(process.wait()))
        assert process.stdin is not None
        process.stdin.write(assignment.encode())

    def on_message(self, sender: int, message: Message) -> None:
        """Take in what a process tells of itself."""
        if isinstance(message, Listening):
            self._listening[sender] = message.addresses
        elif isinstance(message, Serving):
            self._serving.add(sender)
        self._news.set()

    async def addresses(self) -> Addresses:
        """Wait until every process listens for engines; gives where engines find them."""
        while len(self._listening) < self._count:
            await self._next_news()
        told = [self._listening[index] for index in range(self._count)]
        return Addresses(
            [address for addresses in told for address in addresses.inputs],
            [address for addresses in told for address in addresses.outputs],
        )

    async def all_serve(self) -> None:
        """Wait until every process accepts connections."""
        while len(self._serving) < self._count:
            await self._next_news()

    async def _next_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    async def one_ends(self) -> None:
        """Wait until a process has ended by itself; raises ProcessEndedError."""
        await asyncio.wait(self._ends, return_when=asyncio.FIRST_COMPLETED)
        raise ProcessEndedError

    async def unless_one_ends(self, work: Coroutine[object, object, ResultT]) -> ResultT:
        """Wait for something; raises ProcessEndedError when a process ends before."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, *self._ends), return_when=asyncio.FIRST_COMPLETED)
            if not task.done():
                raise ProcessEndedError
            return await task
        finally:
            if task.cancel():
                await asyncio.wait((task,))

    async def stop(self, seconds: float) -> int:
        """Tell the processes to stop and wait for them; gives the worst exit status."""
        for process, end in zip(self._processes, self._ends, strict=True):
            if not end.done():
                process.send_signal(signal.SIGTERM)
        await asyncio.wait(self._ends, timeout=seconds)
        return max(abs(end.result()) if end.done() else 1 for end in self._ends)

    async def kill(self) -> None:
        """End every process that is left, at once."""
        for process, end in zip(self._processes, self._ends, strict=True):
            if not end.done():
                process.kill()
        if self._ends:
            await asyncio.wait(self._ends)
