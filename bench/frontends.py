"""The frontends that are compared, each in front of a mock engine of its own."""

import json
import os
import shutil
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from bench.loads import CALLS, PHRASE
from bench.processes import LOOPBACK, Server, free_port, is_healthy, running_server
from umbel_text import Tokenizer

ROOT = Path(__file__).parents[1]
ENGINE_PYTHON = ROOT / ".venv-engine" / "bin" / "python"
VOCABULARY_SIZE = 49152

PARSER = ("--tool-call-parser", "hermes")
"""How the calls of the model are read."""

UP_WITHIN = 180.0
"""Seconds; vLLM's Python server takes half a minute."""

START_VLLM = (
    "import sys; from vllm.entrypoints.cli.serve import ServeSubcommand as Serve; "
    "from vllm.entrypoints.launchers.cli_args import make_arg_parser; "
    "from vllm.utils.argparse_utils import FlexibleArgumentParser as Parser; "
    "Serve.cmd(make_arg_parser(Parser()).parse_args(sys.argv[1:]))"
)


class Frontend(NamedTuple):
    """A frontend: how it is started, and what it cannot do.

    `command` makes its command line out of the model's folder, the port to serve at and the port
    for engines; None says that it is not installed, `missing` how it is.  `many` is false where n
    must be 1.
    """

    name: str
    command: Callable[[Path, int, int], list[str | Path]] | None
    missing: str = ""
    many: bool = True
    finds_port: bool = False


class Running(NamedTuple):
    """A frontend that serves; `seconds_to_start` is how long that took."""

    frontend: Frontend
    server: Server
    port: int
    model: str
    seconds_to_start: float


def umbel(processes: int = 1) -> Frontend:
    """Give umbel, with so many server processes."""
    executable = Path(sys.executable).with_name("umbel")

    def command(model: Path, port: int, engine_port: int) -> list[str | Path]:
        words: list[str | Path] = [executable, "serve", model, "--port", str(port), *PARSER]
        if processes > 1:
            words += ["--api-server-count", str(processes)]
        return words + external(engine_port)

    name = "umbel" if processes == 1 else f"umbel, {processes} processes"
    return Frontend(name, command)


def vllm_python() -> Frontend:
    """Give vLLM's own server in Python."""
    missing = "make engine"

    def command(model: Path, port: int, engine_port: int) -> list[str | Path]:
        words: list[str | Path] = [ENGINE_PYTHON, "-c", START_VLLM, "--model", model]
        words += ["--host", LOOPBACK, "--port", str(port), "--enable-auto-tool-choice", *PARSER]
        return words + external(engine_port)

    return Frontend("vLLM Python", command if ENGINE_PYTHON.is_file() else None, missing)


def vllm_rust(executable: Path | None) -> Frontend:
    """Give vLLM's frontend in Rust."""
    missing = "take the file vllm/vllm-rs out of the wheel vllm==0.33.0; then --vllm-rs FILE"

    def command(model: Path, port: int, engine_port: int) -> list[str | Path]:
        assert executable is not None
        words: list[str | Path] = [executable, "serve", model, "--port", str(port), *PARSER]
        return words + external(engine_port)

    there = executable is not None and executable.is_file()
    return Frontend("vLLM Rust", command if there else None, missing, many=False)


def smg(executable: Path | None) -> Frontend:
    """Give SMG, which speaks to engines over the same wire."""
    missing = "pip install smg==1.13.0, in any environment; then --smg FILE"
    found = executable or (Path(path) if (path := shutil.which("smg")) else None)

    def command(model: Path, port: int, engine_port: int) -> list[str | Path]:
        assert found is not None
        socket = f"ipc:///tmp/umbel-bench-{engine_port}"
        words: list[str | Path] = [found, "launch", "--backend", "vllm", "--worker-urls", socket]
        words += ["--model-path", model, "--host", LOOPBACK, "--port", str(port)]
        return [*words, "--prometheus-port", str(free_port()), "--log-level", "warn"]

    there = found is not None and found.is_file()
    return Frontend("SMG", command if there else None, missing, finds_port=True)


def external(engine_port: int) -> list[str | Path]:
    """Give the flags by which a frontend waits for engines that are started elsewhere."""
    port = ("--data-parallel-rpc-port", str(engine_port))
    return ["--data-parallel-size-local", "0", "--data-parallel-address", LOOPBACK, *port]


@asynccontextmanager
async def running(
    frontend: Frontend, model: Path, step_ms: float, folder: Path, scenario: Path
) -> AsyncIterator[Running]:
    """Start a frontend and its engine."""
    assert frontend.command is not None
    port, engine_port = free_port(), free_port()
    command = frontend.command(model, port, engine_port)
    stem = frontend.name.replace(" ", "-").replace(",", "")
    log = folder / f"{stem}-{step_ms:g}.log"
    async with running_server(command, log, environment()) as server:
        if frontend.finds_port:
            # It derives the engines' port from the socket's path.
            await server.wait_for(lambda: server.loopback_ports() - {port}, UP_WITHIN)
            engine_port = min(server.loopback_ports() - {port})
        engine_log = folder / f"{stem}-{step_ms:g}-engine.log"
        async with engine(engine_port, step_ms, engine_log, scenario):
            await server.wait_for(lambda: is_healthy(port), UP_WITHIN)
            seconds = time.perf_counter() - server.started
            name = str(model)
            yield Running(frontend, server, port, name, seconds)


def engine(
    port: int, step_ms: float, log: Path, scenario: Path
) -> AbstractAsyncContextManager[Server]:
    """Give a mock engine for the frontend that waits for it at a port."""
    command: list[str | Path] = [
        Path(sys.executable).with_name("umbel-mock-engine"),
        *("--handshake-address", f"tcp://{LOOPBACK}:{port}", "--step-ms", f"{step_ms:g}"),
        *("--vocab-size", str(VOCABULARY_SIZE), "--log-stats", "--scenario", str(scenario)),
    ]
    return running_server(command, log, environment())


def write_scenario(model: Path, folder: Path) -> Path:
    """Write what the mock engine answers to requests for calls."""
    encode = Tokenizer.from_folder(model).encode
    rule = {"prompt_contains": encode(PHRASE, False), "token_ids": encode(CALLS, False)}
    scenario = folder / "scenario.json"
    scenario.write_text(json.dumps([rule]))
    return scenario


def environment() -> dict[str, str]:
    """Give the environment of everything that is started."""
    inherited = dict(os.environ)
    # Installed packages have their byte code; so do these, from their second start on.
    inherited.pop("PYTHONDONTWRITEBYTECODE", None)
    return {**inherited, "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "PYTHONSAFEPATH": "1"}
