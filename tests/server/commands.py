"""The commands run as the programs that they are, in front of mock engines in this process."""

import asyncio
import json
import os
import re
import shutil
import signal
import sys
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from umbel_engine.mock import MockEngine

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]

TIMEOUT = 20
"""Seconds that a process may take to say or do what is waited for."""


def command(name):
    """Find an installed command beside the Python that runs the tests."""
    path = shutil.which(name, path=str(Path(sys.executable).parent))
    assert path is not None, f"{name} is not installed"
    return path


class Process:
    """A running command, and what it has written to its standard error."""

    def __init__(self, process):
        self.process = process
        self.lines = []

    async def line(self, pattern):
        """Wait for a line that matches, and give the match."""
        async with asyncio.timeout(TIMEOUT):
            while line := (await self.process.stderr.readline()).decode():
                self.lines.append(line)
                if (match := re.search(pattern, line)) is not None:
                    return match
        raise AssertionError(f"no line matches {pattern!r}: {self.lines}")

    async def exit(self):
        """Wait until the process ends, and give its status."""
        async with asyncio.timeout(TIMEOUT):
            self.lines += (await self.process.stderr.read()).decode().splitlines(keepends=True)
            return await self.process.wait()

    def tell(self, number=signal.SIGTERM):
        self.process.send_signal(number)


@pytest.fixture
async def run():
    """Start commands; those that still run at the end of the test are killed."""
    processes = []

    async def run(name, *arguments, **environment):
        inherited = {k: v for k, v in os.environ.items() if not k.startswith("VLLM_")}
        process = await asyncio.create_subprocess_exec(
            command(name),
            *map(str, arguments),
            stdout=PIPE,
            stderr=PIPE,
            env={**inherited, **environment},
        )
        processes.append(process)
        return Process(process)

    yield run
    for process in processes:
        if process.returncode is None:
            process.kill()
        # Reads what is left and closes the pipes.
        await process.communicate()


class Umbel(Process):
    """A running `umbel serve` and its engine."""

    def __init__(self, process, engine, url, session):
        super().__init__(process.process)
        self.engine = engine
        self.url = url
        self.session = session

    async def ask(self, path=CHAT, **body):
        body = {"messages": MESSAGES, "prompt": "Hello", **body}
        async with (
            asyncio.timeout(TIMEOUT),
            self.session.post(self.url + path, json=body) as answer,
        ):
            return answer.status, await answer.text()


@pytest.fixture
async def umbel(run, model_folder):
    """Start `umbel serve` with a mock engine in this process, and wait until it serves."""
    async with AsyncExitStack() as stack:

        async def umbel(script, *flags, connector=None, **options):
            process = await run(
                *("umbel", "serve", model_folder, "--port", "0"),
                *("--data-parallel-size-local", "0", "--data-parallel-rpc-port", "0"),
                *("--served-model-name", "smollm2", *flags),
            )
            address = (await process.line(r'waiting for engines at ([^\s"]+)'))[1]
            engine = MockEngine(script, **options)
            await stack.enter_async_context(engine.connect(address))
            url = (await process.line(r'smollm2 is served at ([^\s"]+) \(ready after'))[1]
            if not url.startswith("http"):
                connector, url = aiohttp.UnixConnector(url), "http://localhost"
            session = aiohttp.ClientSession(connector=connector)
            await stack.enter_async_context(session)
            return Umbel(process, engine, url, session)

        yield umbel


async def open_stream(umbel, n=2):
    """Begin a stream and read its first events, up to the first text of every choice."""
    body = {"messages": MESSAGES, "n": n, "stream": True}
    asked = asyncio.ensure_future(umbel.session.post(f"{umbel.url}{CHAT}", json=body))
    await umbel.engine.wait_adds(n)
    await umbel.engine.step()
    response = await asyncio.wait_for(asked, TIMEOUT)
    for _ in range(2 * n):
        await asyncio.wait_for(response.content.readuntil(b"\n\n"), TIMEOUT)
    return response


async def rest_of(response):
    async with asyncio.timeout(TIMEOUT):
        *events, done, end = (await response.text()).split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def finishes(events):
    return [choice["finish_reason"] for event in events for choice in event.get("choices", ())]
