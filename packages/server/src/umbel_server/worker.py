"""One of several server processes, started by the supervisor: `python -m umbel_server.worker`.

What it is to do comes on its standard input, which stays open for as long as the supervisor lives.
"""

import asyncio
import logging
import mmap
import os
import signal
import socket
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import msgspec

from umbel_chat import ChatError
from umbel_engine import EngineClient, EngineError
from umbel_llm import Counters
from umbel_server.errors import OptionError
from umbel_server.listening import serving
from umbel_server.logs import say, set_up_logs
from umbel_server.memory import settle
from umbel_server.processes import ServerProcesses
from umbel_server.serve import engine_options, load_model, make_app, run
from umbel_server.server import SERVER
from umbel_server.settings import ServeSettings
from umbel_server.stop import Stop
from umbel_server.tls import tls_context
from umbel_text import TextError

COUNTER_SIZE = 8
"""Bytes."""

WAITS_LONGER = 5.0
"""Seconds that a process waits for engines beyond those that they get to become ready: the
supervisor knows how far they have come, and is to be the one who tells."""


class Assignment(msgspec.Struct, frozen=True):
    """What a process is to do.

    `listener` is the descriptor of the socket to accept from, `counters` that of the file in which
    every process counts its samples.
    """

    settings: ServeSettings
    index: int
    line_address: str
    listener: int
    counters: int

    def encode(self) -> bytes:
        """Write it for the process."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"

    @classmethod
    def decode(cls, line: bytes) -> "Assignment":
        """Read it."""
        return msgspec.json.decode(line, type=cls, dec_hook=lambda hint, value: Path(value))


async def work(assignment: Assignment) -> int:
    """Serve until told to stop; gives the exit status, 1 when the engines died."""
    settings, index = assignment.settings, assignment.index
    chat_model, text_model = load_model(settings)
    tls = tls_context(settings)
    settle(text_model)
    options = msgspec.structs.replace(
        engine_options(settings),
        client_index=index,
        client_count=settings.api_server_count,
        ready_timeout=settings.engine_ready_timeout + WAITS_LONGER,
    )
    async with AsyncExitStack() as stack:
        stop = Stop()
        stack.callback(deafen)
        stack.callback(stop.close)
        await end_with_the_supervisor()
        client = await stack.enter_async_context(EngineClient(options))
        processes = ServerProcesses(assignment.line_address, index, settings.api_server_count)
        stack.callback(processes.close)
        processes.listening(client.addresses)
        if not await stop.unless_stopped(client.wait_ready()):
            return 0
        counters = shared_counters(assignment.counters, settings.api_server_count)
        app = make_app(settings, chat_model, text_model, client, counters)
        processes.join(app[SERVER])
        with socket.socket(fileno=assignment.listener) as listener:
            async with serving(app, listener, tls, is_shared=True) as site:
                processes.serving()
                await run(app, site, client, stop, settings)
        died = client.error is not None
        # Closed before its engines stop, it does not take that for their death.
        client.close()
        return 1 if died else 0


def shared_counters(descriptor: int, count: int) -> Counters:
    """Give the counters of all processes, which lie in a file; each writes its own alone."""
    return memoryview(mmap.mmap(descriptor, count * COUNTER_SIZE)).cast("q")


def deafen() -> None:
    """Let no signal disturb what is left to do: to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


async def end_with_the_supervisor() -> None:
    """Stop as if told to when standard input ends."""

    class Watch(asyncio.Protocol):
        def connection_lost(self, error: Exception | None) -> None:
            signal.raise_signal(signal.SIGTERM)

    await asyncio.get_running_loop().connect_read_pipe(Watch, sys.stdin.buffer)


def main() -> int:
    """Run the process; gives its exit status."""
    # Nothing beyond the line may be taken in: what comes then is the end.
    line = b""
    while not line.endswith(b"\n"):
        line += os.read(sys.stdin.fileno(), 1)
    try:
        assignment = Assignment.decode(line)
        set_up_logs(assignment.settings.log_format)
        # How engines come up is for the supervisor to tell.
        logging.getLogger("umbel_engine.handshake").setLevel(logging.WARNING)
        return asyncio.run(work(assignment))
    except (OptionError, EngineError, TextError, ChatError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
