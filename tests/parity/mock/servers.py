"""Both servers as processes, each with the scripted engine behind it."""

import asyncio
import os
import re
import signal
import socket
import sys
from collections import deque
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from .engine import MAX_MODEL_LEN, ScriptedEngine

MODEL_NAMES = ("parity", "alias")

UMBEL = Path(sys.executable).with_name("umbel")

KEY = "a-key"

STARTED_WITHIN = 300
"""Seconds that a server gets to come up, on a machine that may be busy with other things."""

SERVERS = {
    "plain": (),
    "details": ("--enable-prompt-tokens-details", "--max-logprobs", "-1"),
    "usage": ("--enable-force-include-usage",),
    "timing": ("--enable-per-request-metrics",),
    "keyed": ("--api-key", KEY),
    "defaults": (
        *("--override-generation-config", '{"temperature": 0.0, "max_new_tokens": 6}'),
        *("--response-role", "helper"),
        *("--default-chat-template-kwargs", '{"tone": "Be kind."}'),
    ),
    "scale-out": ("--enable-scale-out",),
    "trusting": ("--trust-request-chat-template",),
    "request-ids": ("--enable-request-id-headers",),
    "token-ids": ("--return-tokens-as-token-ids",),
    "tokenizer-info": ("--enable-tokenizer-info-endpoint",),
    "origins": ("--allowed-origins", '["http://here"]'),
    "tools": ("--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
    "reasoning": (
        *("--tool-call-parser", "hermes", "--enable-auto-tool-choice"),
        *("--reasoning-parser", "deepseek_r1"),
    ),
}
"""The flags of every group of rows; they are the same for both servers."""


MODEL_FOLDERS = {"tools": "tools", "reasoning": "tools"}
"""The model of a group, where it is another than the plain one (`model.write_models`)."""


FLAGS_OF_VLLM = ("--structured-outputs-config.backend", "xgrammar")
"""vLLM chooses a backend for each request; umbel has one for all, and this is its default."""


FLAGS_OF_UMBEL = {"tools": ("--reasoning-parser", "none")}
"""By group: umbel finds the parsers of a model by itself, vLLM takes those that it is told."""


ENVIRONMENT_OF_VLLM = {"scale-out": {"VLLM_USE_V2_MODEL_RUNNER": "1"}}
"""By group: vLLM's server scores prompts only where it takes its engine for one that does."""


class ServerError(Exception):
    """Report that a server did not come up, with the end of its log."""


class ServerProcess:
    """A server in a process group of its own, whose log tells when it is ready."""

    def __init__(self, command, environment):
        self._command = [str(word) for word in command]
        self._environment = environment
        self.lines = deque(maxlen=400)
        self._ready = {}

    async def start(self):
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            env=self._environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
            limit=1 << 20,
        )
        self._reader = asyncio.create_task(self._read())

    def expect(self, pattern):
        """Give a future of the first line of the log that matches."""
        future = asyncio.get_running_loop().create_future()
        self._ready[future] = re.compile(pattern)
        return future

    async def _read(self):
        async for line in self._process.stdout:
            text = line.decode(errors="replace").rstrip()
            self.lines.append(text)
            for future, pattern in self._ready.items():
                if not future.done() and (match := pattern.search(text)):
                    future.set_result(match)
        for future in self._ready:
            if not future.done():
                future.set_exception(
                    ServerError("a server did not come up:\n" + "\n".join(self.lines))
                )
                # Nobody may be waiting any more.
                future.exception()

    async def stop(self):
        if self._process.returncode is None:
            # Its own `send_signal` would take the exit status away from the event loop.
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, signal.SIGTERM)
        try:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._process.wait(), 20)
        finally:
            # What it started may have outlived it.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            await self._process.wait()
            await self._reader


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@asynccontextmanager
async def running(command, environment):
    process = ServerProcess(command, environment)
    await process.start()
    try:
        yield process
    finally:
        await process.stop()


def model_of(group, folder):
    return folder / MODEL_FOLDERS.get(group, "plain") / MODEL_NAMES[0]


def common_flags(group, engine_port):
    return (
        *("--served-model-name", *MODEL_NAMES),
        *("--max-model-len", str(MAX_MODEL_LEN)),
        *("--data-parallel-size-local", "0"),
        *("--data-parallel-address", "127.0.0.1"),
        *("--data-parallel-rpc-port", str(engine_port)),
        *SERVERS[group],
    )


def surroundings():
    """Give the environment variables without those that would set up a server."""
    return {name: value for name, value in os.environ.items() if not name.startswith("VLLM_")}


@asynccontextmanager
async def umbel(group, folder):
    """Serve a model of the folder with umbel; gives the base URL and the engine."""
    port = free_port()
    command = (
        *(UMBEL, "serve", model_of(group, folder), "--port", "0"),
        *common_flags(group, port),
        *FLAGS_OF_UMBEL.get(group, ()),
    )
    environment = {**surroundings(), "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    async with running(command, environment) as process:
        served = process.expect(r"is served at (http://\S+)")
        await process.expect("waiting for engines")
        async with ScriptedEngine().connect(f"tcp://127.0.0.1:{port}") as engine:
            yield (await served)[1], engine
            # The end of the process is not the death of an engine.
            await process.stop()


async def listening(port):
    """Wait until a server listens, which it does a little after it has said that it is ready."""
    while True:
        with suppress(ConnectionError):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return
        await asyncio.sleep(0.05)


@asynccontextmanager
async def vllm(group, folder, reference):
    """Serve with vLLM's Python server out of its source (`record.Reference`)."""
    engine_port, port = free_port(), free_port()
    command = (
        *(reference.python, Path(__file__).with_name("vllm_server.py")),
        *("--model", model_of(group, folder), "--host", "127.0.0.1", "--port", str(port)),
        *("--enforce-eager", "--dtype", "float32"),
        *FLAGS_OF_VLLM,
        *common_flags(group, engine_port),
    )
    environment = {
        **surroundings(),
        **reference.environment,
        **ENVIRONMENT_OF_VLLM.get(group, {}),
    }
    async with running(command, environment) as process:
        started = process.expect("Application startup complete")
        # The server needs that long to load what it imports; ZMQ waits for it.
        async with ScriptedEngine(STARTED_WITHIN).connect(
            f"tcp://127.0.0.1:{engine_port}"
        ) as engine:
            await started
            await listening(port)
            try:
                yield f"http://127.0.0.1:{port}", engine
            except aiohttp.ClientConnectionError as error:
                log = "\n".join(process.lines)
                raise ServerError(f"the server is gone ({error}):\n{log}") from None
            await process.stop()
