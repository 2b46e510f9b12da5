"""vLLM's own Python server and umbel side by side, on the same model, and a client for both."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections import deque
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from umbel_engine import headless
from umbel_engine.sample_model import prepare_sample_model
from umbel_server.serve import SAMPLE_MODEL_NAME

ENGINE_PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"
UMBEL = Path(sys.executable).with_name("umbel")

READY_WITHIN = 400
"""Seconds that a server gets to load the model, on a machine that may be busy with other things."""

ANSWERED_WITHIN = 800
"""Seconds for an answer: requests wait for each other, and the machine may be busy."""

# Rounding depends on what is computed together, and which requests meet in a step is a matter of
# time: one sequence at a time, without a prefix cache, is the same on every run.
ENGINE_FLAGS = (
    *("--max-model-len", "2048"),
    *("--dtype", "float32"),
    *("--max-num-seqs", "1"),
    "--no-enable-prefix-caching",
)


KEPT_LINES = 400
"""Of each server's log, for the report of a test that fails."""

PROCESSES = pytest.StashKey()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    """Show with a failure what the servers have written."""
    report = yield
    if report.failed:
        for process in item.config.stash.get(PROCESSES, ()):
            report.sections.append((f"Log of {process.name}", "\n".join(process.lines)))
    return report


class ServerProcess:
    """A server in a process group of its own, whose log tells when it is ready."""

    def __init__(self, name, command, environment, ready):
        self.name = name
        self._ready = re.compile(ready)
        self._lines = deque(maxlen=KEPT_LINES)
        self._settled = threading.Event()
        self._match = None
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self._process.stdout:
            self._lines.append(line.rstrip())
            if self._match is None and (match := self._ready.search(line)):
                self._match = match
                self._settled.set()
        self._settled.set()

    @property
    def lines(self):
        """The end of its log; what it wrote last may not have been read yet."""
        return list(self._lines.copy())

    def wait_ready(self):
        """Wait until the log says that it serves; gives the match."""
        self._settled.wait(READY_WITHIN)
        if self._match is None:
            pytest.fail(f"{self.name} did not come up", pytrace=False)
        return self._match

    def stop(self):
        self._process.send_signal(signal.SIGTERM)
        try:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(30)
        finally:
            # What it started may have outlived it.
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._reader.join()
            self._process.stdout.close()


@contextmanager
def running(config, name, command, environment, ready):
    process = ServerProcess(name, command, environment, ready)
    config.stash.setdefault(PROCESSES, []).append(process)
    try:
        yield process
    finally:
        process.stop()


class Answer(NamedTuple):
    """What a server answered; `body` is JSON, or the list of the events of a stream."""

    status: int
    body: object


class Asker:
    """Sends requests to one server."""

    def __init__(self, base):
        self._client = httpx.Client(base_url=base, timeout=ANSWERED_WITHIN, trust_env=False)

    def __call__(self, path, content, headers):
        response = self._client.post(path, content=content, headers=headers)
        text = response.content.decode()
        if not response.headers["Content-Type"].startswith("text/event-stream"):
            return Answer(response.status_code, json.loads(text))
        *frames, rest = text.split("\n\n")
        assert rest == ""
        assert all(frame.startswith("data: ") for frame in frames)
        *events, done = [frame.removeprefix("data: ") for frame in frames]
        assert done == "[DONE]"
        return Answer(response.status_code, [json.loads(event) for event in events])

    def close(self):
        self._client.close()


class Servers(NamedTuple):
    """Ways to ask either server."""

    vllm: Asker
    umbel: Asker


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


UMBEL_READY = r"is served at (http://\S+)"


def umbel_command(*flags):
    command = [UMBEL, "serve", "--python", ENGINE_PYTHON, "--port", "0", *flags]
    command += ["--max-model-len", "2048", "--dtype", "float32"]
    return [*command, "--", *ENGINE_FLAGS[4:]]


@pytest.fixture(scope="module")
def tool_caller(pytestconfig):
    """An umbel that looks for tool calls, with an engine of its own."""
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    command = umbel_command("--tool-call-parser", "hermes")
    with running(pytestconfig, "umbel", command, environment, UMBEL_READY) as process:
        asker = Asker(process.wait_ready()[1])
        yield asker
        asker.close()


@pytest.fixture(scope="session")
def servers(pytestconfig):
    """Both servers, with the same engine settings; they load the model at the same time."""
    model = str(prepare_sample_model())
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONSAFEPATH": "1"}
    for_vllm = {"VLLM_NO_USAGE_STATS": "1", **environment}
    for_vllm |= headless.engine_environment(True, True, model, for_vllm)
    port = free_port()
    vllm_command = [ENGINE_PYTHON, "-m", "vllm.entrypoints.openai.api_server", "--model", model]
    vllm_command += ["--served-model-name", SAMPLE_MODEL_NAME]
    vllm_command += ["--host", "127.0.0.1", "--port", str(port)]
    vllm_command += headless.cpu_arguments(ENGINE_FLAGS)
    with ExitStack() as stack:
        vllm = stack.enter_context(
            running(pytestconfig, "vllm", vllm_command, for_vllm, r"Application startup complete")
        )
        umbel = stack.enter_context(
            running(pytestconfig, "umbel", umbel_command(), environment, UMBEL_READY)
        )
        vllm.wait_ready()
        base = umbel.wait_ready()[1]
        askers = Servers(Asker(f"http://127.0.0.1:{port}"), Asker(base))
        for asker in askers:
            stack.callback(asker.close)
        yield askers
