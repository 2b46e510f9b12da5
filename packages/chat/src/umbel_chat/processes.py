"""The processes that compile and render the templates of requests, within limits.

A template is a program.  The sandbox of jinja2 limits what it can reach, but not what it takes, so
a template that a client brings never runs in this process: `umbel_chat.rendering` runs it in
another one, which does nothing else and is killed when its time is over.
"""

import contextlib
import marshal
import math
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Self

import jinja2
import markupsafe
import msgspec

from umbel_chat import rendering
from umbel_chat.content_format import ContentFormat
from umbel_chat.errors import InvalidChatError

MIB = 1024 * 1024

PASSED_ON = ("LD_LIBRARY_PATH", "TZ")
"""The variables of the environment that a process gets: Python may not start without the first, and
`strftime_now` tells the local time by the second."""

THE_TEMPLATE = "The chat template of the request"

KEPT_FACTS = 16
"""Of how many templates that came with requests it stays known what they read."""


class TemplateLimits(msgspec.Struct, frozen=True):
    """What the chat template of a request may take.

    `source` is in characters.  `seconds` is the time of one process, from its start on: one renders
    a template, and one has described it before, unless it has come lately.  `memory` is in bytes,
    without what Python itself takes; `output` is in bytes of UTF-8.  At most `at_once` processes
    run at a time, and others wait for their turn.
    """

    source: int = 256 * 1024
    seconds: float = 5.0
    memory: int = 512 * MIB
    output: int = 32 * MIB
    at_once: int = 4


class TemplateFacts(msgspec.Struct, frozen=True):
    """What is to be known of a template before it can be rendered; see `umbel_chat.template`."""

    used: frozenset[str]
    content_format: ContentFormat


class ConfinedRenderer:
    """Renders one template, every time in a new process."""

    def __init__(self, source: str, facts: TemplateFacts, processes: "RenderingProcesses") -> None:
        self.used = facts.used
        self.content_format = facts.content_format
        self._source = source
        self._processes = processes

    def render(self, variables: Mapping[str, object]) -> str:
        """Render the template; raises InvalidChatError."""
        return self._processes.run(self._source, dict(variables))


class RenderingProcesses:
    """Runs templates, each time in a new process; may be called on several threads."""

    def __init__(self, limits: TemplateLimits) -> None:
        self._limits = limits
        self._turns = threading.Semaphore(limits.at_once)
        self._running: set[_Process] = set()
        self._is_closed = False
        self._environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
        self._facts = lru_cache(KEPT_FACTS)(self._describe)

    def compile(self, source: str) -> ConfinedRenderer:
        """Compile a template, if only to see that it is valid; raises InvalidChatError."""
        longest = self._limits.source
        if len(source) > longest:
            raise InvalidChatError(
                f"The chat template of the request has {len(source)} characters, more than the "
                f"limit of {longest}."
            )
        return ConfinedRenderer(source, self._facts(source), self)

    def _describe(self, source: str) -> TemplateFacts:
        return msgspec.json.decode(self.run(source, None), type=TemplateFacts)

    def run(self, source: str, variables: dict[str, object] | None) -> str:
        """Render a template; without variables, give its facts as JSON.

        Raises InvalidChatError for whatever the template does, RuntimeError when there is no
        process to run it in.
        """
        try:
            job = marshal.dumps((source, variables))
        except ValueError as error:
            raise InvalidChatError(f"The chat template cannot be given this: {error}.") from error
        limits = self._limits
        with self._turns, _Process(limits, self._environment) as process:
            self._running.add(process)
            try:
                if self._is_closed:
                    raise RuntimeError("no chat template is rendered any more")
                letter, payload = process.ask(job)
            finally:
                self._running.discard(process)
        text = payload.decode("utf-8", "surrogatepass")
        if letter == rendering.DONE:
            return text
        if letter == rendering.OUT_OF_MEMORY:
            text = f"{THE_TEMPLATE} took more memory than the limit of {limits.memory / MIB:g} MiB."
        elif letter == rendering.TOO_LONG:
            text = f"{THE_TEMPLATE} made more text than the limit of {limits.output / MIB:g} MiB."
        raise InvalidChatError(text)

    def close(self) -> None:
        """End what runs, and run nothing any more; whoever waits is told so."""
        self._is_closed = True
        for process in list(self._running):
            process.kill()


class _Process:
    """One process; it has ended when the context is left."""

    def __init__(self, limits: TemplateLimits, environment: Mapping[str, str]) -> None:
        self._limits = limits
        self._deadline = time.monotonic() + limits.seconds
        self._began = False
        self._socket, end = socket.socketpair()
        try:
            with end:
                self._process = subprocess.Popen(
                    _command(limits),
                    stdin=end.fileno(),
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    env=environment,
                    # Signals of the terminal are for this process, which knows what to do.
                    start_new_session=True,
                )
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self._socket.close()

    def kill(self) -> None:
        """End the process."""
        self._process.kill()

    def _end(self) -> int:
        self._process.kill()
        return self._process.wait()

    def ask(self, job: bytes) -> tuple[bytes, bytes]:
        """Have a job done; gives the letter and the rest of the answer."""
        try:
            return self._exchange(job)
        except TimeoutError:
            raise self._took_too_long() from None
        except ConnectionError:
            # Its end of the line closes last, so the status is its own and not that of being killed.
            status = self._end()
        if status == -signal.SIGXCPU:
            raise self._took_too_long()
        if not self._began:
            raise RuntimeError(f"no process for a chat template: {_describe_status(status)}")
        raise InvalidChatError(
            f"{THE_TEMPLATE} ended the process that ran it: {_describe_status(status)}."
        )

    def _took_too_long(self) -> InvalidChatError:
        limit = self._limits.seconds
        return InvalidChatError(f"{THE_TEMPLATE} took longer than the limit of {limit:g} s.")

    def _exchange(self, job: bytes) -> tuple[bytes, bytes]:
        self._began = self._receive(len(rendering.READY)) == rendering.READY
        # One that has run out of memory answers without having read everything.
        with contextlib.suppress(ConnectionError):
            self._allow_time()
            self._socket.sendall(job)
            self._socket.shutdown(socket.SHUT_WR)
        letter = self._receive(1)
        size = int.from_bytes(self._receive(rendering.SIZE_BYTES), "big")
        if size > self._limits.output:
            raise ConnectionError("the answer is not one that the program gives")
        return letter, self._receive(size)

    def _receive(self, size: int) -> bytes:
        received = bytearray(size)
        rest = memoryview(received)
        while rest:
            self._allow_time()
            count = self._socket.recv_into(rest)
            if count == 0:
                raise ConnectionError("the process has closed the line")
            rest = rest[count:]
        return bytes(received)

    def _allow_time(self) -> None:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)


def _command(limits: TemplateLimits) -> list[str]:
    folders = dict.fromkeys(
        str(Path(str(module.__file__)).absolute().parent.parent) for module in (jinja2, markupsafe)
    )
    return [
        sys.executable,
        # Isolated, and without what the modules of a site do when Python starts.
        *("-I", "-S", str(Path(rendering.__file__).absolute())),
        *(str(math.ceil(limits.seconds)), str(limits.memory), str(limits.output)),
        *folders,
    ]


def _describe_status(status: int) -> str:
    if status >= 0:
        return f"exit status {status}"
    with contextlib.suppress(ValueError):
        return f"{signal.Signals(-status).name}"
    return f"signal {-status}"
