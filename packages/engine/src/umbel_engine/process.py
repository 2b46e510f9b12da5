"""The managed engine: vLLM in a process group of its own, in another Python environment."""

import asyncio
import contextlib
import os
import re
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from umbel_engine.client import EngineClient
from umbel_engine.errors import EngineDeadError, EngineStartError

Report = Callable[[str], None]

KEPT_LINES = 50
QUOTED_LINES = 20
LONGEST_LINE = 64 * 1024
LOG_END_TIMEOUT = 1.0
"""How long the end of the log is waited for, in seconds, once the group is gone."""

PHASES = (
    ("Initializing a V1 LLM engine", "starting the engine core"),
    ("Starting to load model", "loading the weights"),
    ("Loading weights took", "preparing the model"),
    ("KV cache size", "setting up the KV cache"),
    ("Capturing CUDA graphs", "capturing CUDA graphs"),
    ("init engine (profile", "finishing"),
)
"""What vLLM does, by what its log says when it begins."""


class EngineProcessOptions(msgspec.Struct, frozen=True):
    """How the engine is run.

    `python` is the interpreter of the environment that has vLLM, `model` a folder or a hub id,
    `handshake_address` where the client listens (`tcp://host:port`).  Of `data_parallel_size`
    engines `data_parallel_size_local` run here.  `extra_arguments` are arguments of `vllm serve`.
    `stop_grace` is in seconds, between SIGTERM and SIGKILL; `report_interval`, in seconds too, is
    how often loading tells that it goes on.  `program` is run in vLLM's place, with its arguments.
    """

    python: Path
    model: str
    handshake_address: str
    data_parallel_size: int = 1
    data_parallel_size_local: int = 1
    max_model_len: str | None = None
    dtype: str | None = None
    extra_arguments: tuple[str, ...] = ()
    stop_grace: float = 10.0
    report_interval: float = 10.0
    program: tuple[str, ...] = ()

    def command(self) -> list[str]:
        """Give the command line; raises EngineStartError when the address is not a tcp one."""
        match = re.fullmatch(r"tcp://\[?([^\]]+?)\]?:(\d+)", self.handshake_address)
        if match is None:
            raise EngineStartError(
                f"a managed engine needs a tcp://host:port address, got {self.handshake_address}"
            )
        runner = Path(__file__).with_name("headless.py")
        command = [str(self.python), str(runner), "--grace", f"{self.stop_grace:g}"]
        command += ["--command", "--", *self.program] if self.program else ["--"]
        command += [self.model, "--data-parallel-address", match[1]]
        command += ["--data-parallel-rpc-port", match[2]]
        command += ["--data-parallel-size", str(self.data_parallel_size)]
        command += ["--data-parallel-size-local", str(self.data_parallel_size_local)]
        if self.max_model_len is not None:
            command += ["--max-model-len", self.max_model_len]
        if self.dtype is not None:
            command += ["--dtype", self.dtype]
        return [*command, *self.extra_arguments]


class EngineProcess:
    """vLLM, started headless and stopped on every way out.

    Use it with `async with`, or call `start` and `stop`.  `log` takes each line of its output,
    `report` short lines on how loading goes; both write to standard error by default, the log with
    the prefix `[engine]`.  Should this process die, a supervisor in the group stops the group.
    """

    def __init__(
        self,
        options: EngineProcessOptions,
        log: Report | None = None,
        report: Report | None = None,
    ) -> None:
        self._options = options
        self._log = log if log is not None else _log_to_stderr
        self._report = report if report is not None else _to_stderr
        self._lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._watcher: asyncio.Task[int] | None = None
        self._progress: asyncio.Task[None] | None = None
        self._phase = "starting vLLM"
        self._started = 0.0
        self._stopping = False

    @property
    def last_lines(self) -> Sequence[str]:
        """The end of its log, oldest line first."""
        return tuple(self._lines)

    async def start(self) -> None:
        """Start the process; raises EngineStartError when it cannot be run at all."""
        if self._watcher is not None:
            raise RuntimeError("an engine process can be started once")
        command = self._options.command()
        # Pipes of our own: those of asyncio delay the exit status until each process that
        # inherited them has closed them.
        stdin, lifeline = os.pipe()
        output, stdout = os.pipe()
        self._started = time.monotonic()
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=stdin,
                stdout=stdout,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
        except BaseException as error:
            os.close(lifeline)
            os.close(output)
            if isinstance(error, OSError):
                python = self._options.python
                raise EngineStartError(
                    f"cannot start the engine with {python}: {error.strerror}"
                ) from error
            raise
        finally:
            os.close(stdin)
            os.close(stdout)
        self._group = _Group(process.pid, lifeline)
        self._watcher = asyncio.create_task(self._watch(process, output))
        self._progress = asyncio.create_task(self._report_progress())

    async def wait_ready(self, client: EngineClient) -> None:
        """Wait until the client's engines are ready; from then on it dies with this process.

        Raises EngineStartError when they do not come up in time, or, with the end of its log, when
        this process ends first.
        """
        await self.wait_until(client.wait_ready())
        self._running().add_done_callback(
            lambda watcher: client.lose(EngineDeadError(self._describe_end(watcher)))
        )

    async def wait_until(self, ready: Coroutine[object, object, None]) -> None:
        """Wait until the engines are ready, however that is known; raises as `wait_ready` does."""
        watcher = self._running()
        waiting = asyncio.ensure_future(ready)
        try:
            await asyncio.wait((waiting, watcher), return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                raise EngineStartError(self._describe_end(watcher, " while loading"))
            await waiting
        finally:
            if waiting.cancel():
                await asyncio.wait((waiting,))
        self._stop_progress()
        self._say(f"engine: ready after {time.monotonic() - self._started:.0f} s")

    async def exited(self) -> int:
        """Wait until the process has ended and its group is gone; gives the exit status.

        As in a shell, 128 + n means that it was ended by signal n.
        """
        return await asyncio.shield(self._running())

    async def stop(self) -> None:
        """Stop the process group: SIGTERM, and SIGKILL when it does not end in time.

        Cancelled, it kills at once.  It does nothing when the process has ended or never began.
        """
        if self._watcher is None:
            return
        self._stopping = True
        self._stop_progress()
        self._group.send(signal.SIGTERM)
        try:
            await asyncio.wait((self._watcher,), timeout=self._options.stop_grace)
        finally:
            self._group.send(signal.SIGKILL)
        await asyncio.wait((self._watcher,))

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    def _running(self) -> asyncio.Task[int]:
        if self._watcher is None:
            raise RuntimeError("the engine process was not started")
        return self._watcher

    async def _watch(self, process: asyncio.subprocess.Process, output: int) -> int:
        forwarder = asyncio.create_task(self._forward(output))
        try:
            status = await process.wait()
            # What it started may have outlived it.
            self._group.end()
            await asyncio.wait((forwarder,), timeout=LOG_END_TIMEOUT)
        finally:
            self._group.end()
            self._stop_progress()
            forwarder.cancel()
        return status if status >= 0 else 128 - status

    async def _forward(self, output: int) -> None:
        """Hand on the log, line by line, until its end."""
        reader = asyncio.StreamReader()
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(output, "rb", buffering=0)
        )
        rest = b""
        try:
            while chunk := await reader.read(LONGEST_LINE):
                *lines, rest = re.split(rb"[\r\n]+", rest + chunk)
                if len(rest) > LONGEST_LINE:
                    lines, rest = [*lines, rest], b""
                for line in lines:
                    self._take_line(line)
            self._take_line(rest)
        finally:
            transport.close()

    def _take_line(self, raw: bytes) -> None:
        line = raw.decode("utf-8", "replace").rstrip()
        if not line:
            return
        self._lines.append(line)
        # A log that cannot be written must not stop the reading: the engine would block on it.
        with contextlib.suppress(Exception):
            self._log(line)
        if self._progress is None:
            return
        for sign, phase in PHASES:
            if sign in line and phase != self._phase:
                self._phase = phase
                self._say_phase("")

    async def _report_progress(self) -> None:
        while True:
            await asyncio.sleep(self._options.report_interval)
            self._say_phase("still ")

    def _say_phase(self, still: str) -> None:
        self._say(f"engine: {still}{self._phase} ({time.monotonic() - self._started:.0f} s)")

    def _say(self, line: str) -> None:
        with contextlib.suppress(Exception):
            self._report(line)

    def _stop_progress(self) -> None:
        if self._progress is not None:
            self._progress.cancel()
            self._progress = None

    def _describe_end(self, watcher: asyncio.Task[int], when: str = "") -> str:
        if self._stopping or watcher.cancelled():
            return "the engine was stopped"
        status = watcher.result()
        how = f"exited with status {status}"
        with contextlib.suppress(ValueError):
            how = f"was ended by {signal.Signals(status - 128).name}"
        lines = [f"  {line}" for line in self.last_lines[-QUOTED_LINES:]]
        said = "its last lines:" if lines else "it said nothing"
        return "\n".join([f"the engine {how}{when}; {said}", *lines])


class _Group:
    """The process group of an engine, and the pipe whose end tells it that we are gone."""

    def __init__(self, leader: int, lifeline: int) -> None:
        self._leader = leader
        self._lifeline = lifeline
        self._ended = False

    def send(self, number: signal.Signals) -> None:
        """Send a signal to every process of the group."""
        # After its end, the number may belong to someone else.
        if not self._ended:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, number)

    def end(self) -> None:
        """Kill what is left of the group and let go of it."""
        if not self._ended:
            self.send(signal.SIGKILL)
            os.close(self._lifeline)
            self._ended = True


def _log_to_stderr(line: str) -> None:
    _to_stderr(f"[engine] {line}")


def _to_stderr(line: str) -> None:
    # In one piece: others may write there, too.
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()
