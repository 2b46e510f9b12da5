"""The server and its engine as processes, and what can be seen of them from outside."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE
from contextlib import asynccontextmanager
from pathlib import Path

from .connection import get
from .mix import MODEL, VOCABULARY_SIZE, WRITE_TIMEOUT

READY_WITHIN = 60
STOPS_WITHIN = 30
"""Seconds."""

STEP_MS = "2"

KEEP_ALIVE_INTERVAL = "1"
"""Seconds of silence after which a stream gets a comment."""

LOOKS_AT_MEMORY = 5
LOOK_EVERY = 0.2
CONNECTIONS_PER_PROCESS = 8
"""So many connections surely reach every process, one of two, three..."""

FAILED = re.compile(r" ERROR POST \S+ failed: the engine ended it with an error$")
"""The line about a request whose engine failed, of which every one is meant."""

SAMPLE = re.compile(r"^([\w:]+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


class Command:
    """A running command, and all that it has written to standard error."""

    def __init__(self, process):
        self.process = process
        self.lines = []
        self._news = asyncio.Event()
        self._reader = asyncio.create_task(self._read())

    async def _read(self):
        while line := await self.process.stderr.readline():
            self.lines.append(line.decode(errors="replace").rstrip("\n"))
            self._news.set()
        self._news.set()

    async def line(self, pattern):
        """Wait for a line that matches, and give the match."""
        async with asyncio.timeout(READY_WITHIN):
            seen = 0
            while True:
                self._news.clear()
                for line in self.lines[seen:]:
                    if (match := re.search(pattern, line)) is not None:
                        return match
                seen = len(self.lines)
                if self._reader.done():
                    raise RuntimeError("it ended:\n" + "\n".join(self.lines[-20:]))
                await self._news.wait()

    async def stop(self):
        """Tell it to stop; gives its status, and kills it when there is none for long."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(STOPS_WITHIN):
                await self._reader
                return await self.process.wait()
        except TimeoutError:
            self.process.kill()
            await self.process.wait()
            return None


@asynccontextmanager
async def command(name, *words, **environment):
    """Run a command of this environment until the context is left."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        raise RuntimeError(f"{name} is not installed")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
    process = await asyncio.create_subprocess_exec(
        path, *map(str, words), stdout=DEVNULL, stderr=PIPE, env={**inherited, **environment}
    )
    running = Command(process)
    try:
        yield running
    finally:
        await running.stop()


class Server:
    """A server that runs, made of one process or of several."""

    def __init__(self, running, port, processes):
        self.running = running
        self.port = port
        self._processes = processes

    @property
    def forgotten_late(self):
        """What is let go of some seconds late, and so differs from one process to another."""
        return ("connections",) if self._processes > 1 else ()

    @property
    def pids(self):
        """The processes that answer."""
        pid = self.running.process.pid
        if self._processes == 1:
            return [pid]
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return [int(child) for child in children]

    def resident(self):
        """Give the resident memory of every process, in bytes."""
        return [_resident(pid) for pid in self.pids]

    async def resident_when_idle(self):
        """Give the lowest of a few looks for every process, in bytes: none is in use for a request."""
        looks = []
        for _ in range(LOOKS_AT_MEMORY):
            looks.append(self.resident())
            await asyncio.sleep(LOOK_EVERY)
        return [min(column) for column in zip(*looks, strict=True)]

    def open_files(self):
        """Count the open files of every process; an idle one has the same number every time."""
        return [len(os.listdir(f"/proc/{pid}/fd")) for pid in self.pids]

    async def running_counts(self):
        """Give what the server says that is running, the highest numbers of any process."""
        several = self._processes > 1
        highest = {}
        for _ in range(CONNECTIONS_PER_PROCESS * self._processes if several else 1):
            info = json.loads(await get(self.port, "/server_info"))
            for name, number in info["umbel"]["running"].items():
                highest[name] = max(highest.get(name, 0), number or 0)
        return highest

    async def metrics(self):
        """Give every sample of the metrics: its name and the values of its labels, to its value."""
        text = (await get(self.port, "/metrics")).decode()
        found = {}
        for name, labels, value in SAMPLE.findall(text):
            found[name, frozenset(LABEL.findall(labels))] = float(value)
        return found

    def bad_lines(self):
        """Give the lines of the log that should not be there, and count those that may."""
        bad, failed = [], 0
        for line in self.running.lines:
            if FAILED.search(line):
                failed += 1
            elif " ERROR " in line or "Traceback" in line or "Warning" in line:
                bad.append(line)
        return bad, failed


def _resident(pid):
    status = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^VmRSS:\s+(\d+) kB", status, re.MULTILINE)[1]) * 1024


@asynccontextmanager
async def serving(model, scenario, processes=1):
    """Run a server and its engine until the context is left."""
    flags = [
        *("--port", "0", "--served-model-name", MODEL, "--api-server-count", processes),
        *("--data-parallel-size-local", "0", "--data-parallel-rpc-port", "0"),
        *("--enable-scale-out", "--trust-request-chat-template"),
        *("--client-write-timeout", WRITE_TIMEOUT),
        *("--sse-keep-alive-interval", KEEP_ALIVE_INTERVAL),
    ]
    async with command("umbel", "serve", model, *flags, VLLM_SERVER_DEV_MODE="1") as running:
        address = (await running.line(r"waiting for engines at (\S+)"))[1]
        mock = [
            *("--handshake-address", address, "--vocab-size", VOCABULARY_SIZE),
            *("--step-ms", STEP_MS, "--scenario", scenario, "--exit-after", "0"),
        ]
        async with command("umbel-mock-engine", *mock):
            served = await running.line(r"is served at http://127\.0\.0\.1:(\d+)")
            yield Server(running, int(served[1]), processes)
            # The engine is there until the server has ended.
            await running.stop()
