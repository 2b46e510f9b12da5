"""One soak: warm up, look, go on for long, look again."""

import json
import time
from pathlib import Path
from typing import NamedTuple

import tokenizers

from .clients import Clients, until
from .connection import get
from .mix import Mix, scenario
from .server import serving

IDLE_WITHIN = 30
"""Seconds."""

MIB = 1 << 20
NOTHING = ("requests", "sequences", "responses", "samples", "queued_tokens", "utility_calls")
"""What an idle server has none of."""


class Look(NamedTuple):
    """What an idle server has: bytes and open files of each process, and counts by name."""

    resident: list[int]
    open_files: list[int]
    running: dict[str, int]

    def __str__(self):
        memory = ", ".join(f"{size / MIB:.1f}" for size in self.resident)
        counts = ", ".join(f"{name} {number}" for name, number in self.running.items())
        return f"{memory} MiB resident, open files {self.open_files}, {counts}"


class Report(NamedTuple):
    """What a soak has found; times are in seconds."""

    seed: int
    requests: int
    seconds: float
    looks: dict[str, Look]
    problems: list[str]

    def __str__(self):
        lines = [
            f"seed {self.seed}: {self.requests} requests in {self.seconds:.1f} s, "
            f"{self.requests / self.seconds:.0f} a second",
            *(f"{name}: {look}" for name, look in self.looks.items()),
            *(f"PROBLEM: {problem}" for problem in self.problems),
        ]
        return "\n".join(lines)


async def soak(model, folder, *, requests, warm_up, may_grow, seed, processes=1, say=None):
    """Ask a server for so many things, of which the first are the warm-up; gives the report.

    Resident memory may grow by the share `may_grow` after the warm-up.  `folder` is for files of
    the run, `say` is called with a line now and then.
    """
    rules = Path(folder) / "scenario.json"
    tokenizer = tokenizers.Tokenizer.from_file(str(Path(model) / "tokenizer.json"))
    rules.write_text(json.dumps(scenario(tokenizer)))
    async with serving(model, rules, processes) as server:
        run = _Run(server, Clients(server.port, Mix(seed)), say or (lambda line: None))
        began = time.perf_counter()
        start = await run.look("at the start")
        await run.ask(warm_up)
        warm = await run.look("after the warm-up", start)
        await run.ask(requests - warm_up)
        run.check_memory(warm, await run.look("at the end", start), may_grow)
        seconds = time.perf_counter() - began
        await run.check_end()
        return Report(seed, run.clients.done, seconds, run.looks, run.problems)


class _Run:
    """A soak under way."""

    CHUNK = 10_000

    def __init__(self, server, clients, say):
        self.server = server
        self.clients = clients
        self.looks = {}
        self.problems = clients.problems
        self._say = say

    async def ask(self, number):
        """Make so many requests, and wait until those who do not read are cut off."""
        while number > 0:
            chunk = min(number, self.CHUNK)
            number -= chunk
            began = time.perf_counter()
            await self.clients.ask(chunk)
            rate = chunk / (time.perf_counter() - began)
            memory = ", ".join(f"{size / MIB:.1f}" for size in self.server.resident())
            self._say(f"{self.clients.done} requests, {rate:.0f} a second, {memory} MiB")
            await self._wait_for_stuck()

    async def _wait_for_stuck(self):
        wanted = self.clients.counts.sure("write timeouts")

        async def missing():
            metrics = await self.server.metrics()
            told = sum(n for (name, _), n in metrics.items() if name == WRITE_TIMEOUTS)
            return "" if told >= wanted else f"{wanted - told:g} who do not read are not cut off"

        problem = await until(missing, IDLE_WITHIN)
        if problem and not self.problems:
            self.problems.append(problem)
        await self.clients.check_stuck()

    async def look(self, name, start=None):
        """Wait until the server is idle, as idle as it was at the start, and note what it has."""

        async def busy():
            running, files = await self.server.running_counts(), self.server.open_files()
            faults = [f"{running[key]} {key}" for key in NOTHING if running[key]]
            if start is not None:
                faults += [
                    f"{running[key]} {key}, {number} at the start"
                    for key, number in start.running.items()
                    if running[key] > number and key not in self.server.forgotten_late
                ]
                if sum(files) > sum(start.open_files):
                    faults.append(f"open files {files}, at the start {start.open_files}")
            return ", ".join(faults)

        if problem := await until(busy, IDLE_WITHIN):
            self.problems.append(f"{name}, not idle: {problem}")
        running, files = await self.server.running_counts(), self.server.open_files()
        look = self.looks[name] = Look(await self.server.resident_when_idle(), files, running)
        self._say(f"{name}: {look}")
        return look

    def check_memory(self, warm, end, may_grow):
        """Check that memory has not grown between two looks."""
        for then, now in zip(warm.resident, end.resident, strict=True):
            if now > then * (1 + may_grow):
                self.problems.append(
                    f"resident memory grew by {(now / then - 1) * 100:.1f}%: "
                    f"from {then / MIB:.1f} to {now / MIB:.1f} MiB"
                )

    async def check_end(self):
        """Check that what was counted adds up, what the log says, and that the server ends well."""
        counts = self.clients.counts
        bad, failed = self.server.bad_lines()
        self.problems += [f"the log says: {line}" for line in bad[:10]]
        expected = counts.sure("logged failures")
        if failed != expected:
            self.problems.append(f"{failed} failures are in the log, of {expected}")
        counts.forget("logged failures")
        self.problems += counts.differences(await self.server.metrics())
        await get(self.server.port, "/health")
        status = await self.server.running.stop()
        if status != 0:
            self.problems.append(f"told to stop, the server ends with {status}")
        self.problems += [
            f"at its end, the log says: {line}" for line in self.server.bad_lines()[0]
        ]


WRITE_TIMEOUTS = "umbel:client_write_timeouts_total"
