"""Processes that are measured: started in a group of their own, stopped with all that they started."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil

STOPPED_WITHIN = 20.0
MIB = 1 << 20


@asynccontextmanager
async def running_server(
    command: Sequence[str | Path], log: Path, environment: Mapping[str, str]
) -> AsyncIterator["Server"]:
    """Run a command until the context is left; its output goes to a file."""
    server = Server([str(word) for word in command], log, dict(environment))
    try:
        yield server
    finally:
        await server.stop()


class Server:
    """A command that runs, with all that it has started; `started` is on the performance counter."""

    def __init__(self, command: list[str], log: Path, environment: dict[str, str]) -> None:
        self._command = command
        self._log = log
        self.started = time.perf_counter()
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )
        self._root = psutil.Process(self._process.pid)

    async def stop(self) -> None:
        """Stop it: SIGTERM, and SIGKILL to what is left."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(self._process.wait, STOPPED_WITHIN)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    async def wait_for(self, is_there: Callable[[], object], seconds: float) -> None:
        """Wait until something is there; raises RuntimeError with the log when it never is."""
        deadline = time.perf_counter() + seconds
        while not is_there():
            if self._process.poll() is not None or time.perf_counter() > deadline:
                end = self._log.read_text(errors="replace")[-3000:]
                raise RuntimeError(f"{' '.join(self._command[:3])} did not come up:\n{end}")
            await asyncio.sleep(0.01)

    def family(self) -> list[psutil.Process]:
        """Give the process and all that it has started."""
        return [self._root, *self._root.children(recursive=True)]

    def cpu_seconds(self) -> float:
        """Give the CPU time that the family has used, as user and as system."""
        total = 0.0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def resident_bytes(self) -> int:
        """Give the memory of the family that is in RAM; what is shared counts once for each."""
        total = 0
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += process.memory_info().rss
        return total

    def loopback_ports(self) -> set[int]:
        """Give the TCP ports of 127.0.0.1 that the family listens on."""
        ports = set()
        for process in self.family():
            with contextlib.suppress(psutil.NoSuchProcess):
                for connection in process.net_connections("tcp"):
                    if connection.status == psutil.CONN_LISTEN and connection.laddr[0] == LOOPBACK:
                        ports.add(connection.laddr[1])
        return ports


LOOPBACK = "127.0.0.1"


def free_port() -> int:
    """Give a TCP port that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def is_healthy(port: int) -> bool:
    """Say whether a server answers `GET /health` with 200."""
    try:
        with socket.create_connection((LOOPBACK, port), timeout=2) as connection:
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n")
            return connection.recv(64).startswith(b"HTTP/1.1 200")
    except OSError:
        return False
