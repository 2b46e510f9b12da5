"""What vLLM's tests import from `tests.utils`, with umbel behind it.

A server is shared by all fixtures that ask for the same one, and one server runs at a time.
"""

import contextlib
import dataclasses
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import httpx
import openai

READY_WITHIN = 600
"""Seconds that a server gets to load the model, on a machine that may be busy with other things."""

ENDED_WITHIN = 30

TERMINATION_GRACE = 15.0
"""Seconds (tests/utils.py of vLLM)."""

DROPPED_FLAGS = {
    "--dtype": 1,
    "--max-num-seqs": 1,
    "--max-num-batched-tokens": 1,
    "--gpu-memory-utilization": 1,
    "--enforce-eager": 0,
    "--enable-chunked-prefill": 0,
    "--no-enable-prefix-caching": 0,
    "--enable-lora": 0,
    "--lora-modules": 1,
    "--max-lora-rank": 1,
    "--max-cpu-loras": 1,
    "--runner": 1,
    "--load-format": 1,
    "--seed": 1,
    "--host": 1,
    "--data_parallel_size": 1,
    "--disable-uvicorn-access-log": 0,
    "--show-hidden-metrics-for-version": 1,
}
"""How many values follow flags that size the engine, open what umbel has no flag for, or are the
same for all servers here."""

SHARED_FLAGS = (
    "--enable-per-request-metrics",
    "--enable-tokenizer-info-endpoint",
    "--enable-scale-out",
    "--enable-server-load-tracking",
)
"""On for every server, so that more fixtures can share one."""

MAX_MODEL_LEN = 8192
"""What the sample model can do; the mock engine takes more where a test wants it."""

VOCABULARY_SIZE = 49152

ENGINE_FLAGS = ("--no-enable-prefix-caching", "--max-num-seqs", "128")

ROCM_EXTRA_ARGS: list = []
ROCM_ENGINE_KWARGS: dict = {}


@dataclasses.dataclass
class Settings:
    """What the runner says; see ../__main__.py."""

    umbel: str
    mock_engine: str
    engine_python: str
    engine: str
    reference: bool
    models: list
    left_out: list
    fresh: list
    logs: str
    scenario: str
    report: str


class Servers:
    """The server that runs, and what it was asked to be."""

    def __init__(self, settings):
        self.settings = settings
        self.count = 0
        self.key = None
        self.process = None
        self.used = False
        self.module = None

    def get(self, key):
        """Give the server for this key: the one that runs, or a new one."""
        fresh = self.module in self.settings.fresh
        if fresh or key != self.key or self.process.poll() is not None:
            self.stop()
            self.count += 1
            log = Path(self.settings.logs) / f"{self.settings.engine}-{self.count}.log"
            self.process = UmbelProcess(self.settings, key, log)
            self.key = key
        return self.process

    def stop(self):
        if self.process is not None:
            self.process.stop()
        self.key = self.process = None


SERVERS: list[Servers] = []
"""One, for as long as pytest runs."""


def start(settings):
    SERVERS.append(Servers(settings))


def stop():
    while SERVERS:
        SERVERS.pop().stop()


def begin(module):
    """Note that a test of this module begins, which has used no server yet."""
    SERVERS[0].module = module
    SERVERS[0].used = False


def was_used():
    return SERVERS[0].used


@dataclasses.dataclass(frozen=True)
class Key:
    """What tells one server from another."""

    command: str
    model: str
    flags: tuple
    environment: tuple
    uds: str | None
    port: int | None
    max_model_len: int


class UmbelProcess:
    """umbel and its engine in a process group of their own."""

    def __init__(self, settings, key, log):
        self.port = key.port or (None if key.uds else free_port())
        self.uds = key.uds
        environment = {**os.environ, **dict(key.environment)}
        # vLLM's source is for the tests alone.
        for name in ("PYTHONPATH", "UMBEL_UPSTREAM"):
            environment.pop(name, None)
        # Nor is the folder that the tests run in, where that source is.
        environment |= {"PYTHONSAFEPATH": "1", "PYTHONUNBUFFERED": "1"}
        self.log = log
        self._file = log.open("w")
        rpc_port = free_port()
        if settings.reference:
            command = [settings.engine_python, *reference_arguments(settings, key, self.port)]
            environment |= {"VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
        else:
            command = [settings.umbel, *umbel_arguments(settings, key, self.port, rpc_port)]
        print(*command, file=self._file, flush=True)
        self.processes = [self._run(command, environment)]
        try:
            if settings.engine == "mock":
                self.processes.append(
                    self._run(
                        [settings.mock_engine, *mock_arguments(settings, key, rpc_port)],
                        environment,
                    )
                )
            self._wait_ready()
        except BaseException:
            self.stop()
            raise

    @property
    def proc(self):
        return self.processes[0]

    def _run(self, command, environment):
        return subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self._file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def _wait_ready(self):
        until = time.monotonic() + READY_WITHIN
        transport = httpx.HTTPTransport(uds=self.uds) if self.uds else None
        base = "http://localhost" if self.uds else f"http://127.0.0.1:{self.port}"
        with httpx.Client(transport=transport, base_url=base, trust_env=False) as client:
            while time.monotonic() < until:
                if self.poll() is not None:
                    break
                with contextlib.suppress(httpx.TransportError):
                    if client.get("/health").status_code == 200:
                        return
                time.sleep(0.2)
        tail = self.log.read_text(errors="replace").splitlines()[-30:]
        raise RuntimeError("umbel did not come up:\n" + "\n".join(tail))

    def poll(self):
        return self.proc.poll()

    def stop(self):
        for process in self.processes:
            process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(ENDED_WITHIN)
            # What it started may have outlived it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._file.close()


def umbel_arguments(settings, key, port, rpc_port):
    """Give the arguments of umbel for a server."""
    arguments = [key.command, key.model, *shared_arguments(settings, key, port)]
    if key.command == "render":
        return arguments
    if settings.engine == "mock":
        return [
            *arguments,
            *("--data-parallel-size-local", "0"),
            *("--data-parallel-rpc-port", str(rpc_port)),
        ]
    return [*arguments, "--python", settings.engine_python, "--", *ENGINE_FLAGS]


def reference_arguments(settings, key, port):
    """Give the arguments of Python for vLLM's own server."""
    return [
        *("-m", "vllm.entrypoints.openai.api_server", "--model", key.model),
        *shared_arguments(settings, key, port),
        *ENGINE_FLAGS,
        "--enforce-eager",
        *("--dtype", "float32"),
    ]


def shared_arguments(settings, key, port):
    """Give the arguments that umbel and vLLM's own server have in common."""
    arguments = [*SHARED_FLAGS, *key.flags]
    if "--served-model-name" not in key.flags:
        others = [name for name in settings.models if name != key.model]
        arguments += ["--served-model-name", key.model, *others]
    arguments += ["--uds", key.uds] if key.uds else ["--port", str(port)]
    return [*arguments, "--max-model-len", str(key.max_model_len)]


def mock_arguments(settings, key, rpc_port):
    return [
        *("--handshake-address", f"tcp://127.0.0.1:{rpc_port}"),
        *("--vocab-size", str(VOCABULARY_SIZE)),
        *("--max-model-len", str(key.max_model_len)),
        *("--step-ms", "1"),
        *("--scenario", settings.scenario),
        "--log-stats",
    ]


def umbel_flags(arguments):
    """Give what of vLLM's arguments concerns umbel, and by themselves those that are in Key."""
    flags, apart = [], {"--uds": None, "--port": None, "--max-model-len": MAX_MODEL_LEN}
    words = [word for argument in arguments for word in split_assignment(argument)]
    while words:
        word = words.pop(0)
        if word in apart:
            apart[word] = words.pop(0)
        elif word in DROPPED_FLAGS:
            del words[: DROPPED_FLAGS[word]]
        elif word not in SHARED_FLAGS:
            flags.append(word)
    return tuple(flags), apart


def split_assignment(argument):
    name, equals, value = argument.partition("=")
    return (name, value) if name.startswith("--") and equals else (argument,)


class RemoteOpenAIServer:
    """Answers where umbel listens; takes what vLLM's class of this name takes."""

    COMMAND = "serve"
    DUMMY_API_KEY = "token-abc123"

    def __init__(
        self,
        model,
        vllm_serve_args,
        *,
        env_dict=None,
        seed=0,
        auto_port=True,
        max_wait_seconds=None,
        override_hf_configs=None,
    ):
        flags, apart = umbel_flags(vllm_serve_args)
        environment = {} if env_dict is None else env_dict
        changed = {k: v for k, v in environment.items() if os.environ.get(k) != v}
        uds, port = apart["--uds"], apart["--port"] and int(apart["--port"])
        length = max(MAX_MODEL_LEN, int(apart["--max-model-len"]))
        models = SERVERS[0].settings.models
        # It is served under all of these names, so the first one does for every test.
        model = models[0] if model in models else model
        key = Key(self.COMMAND, model, flags, tuple(sorted(changed.items())), uds, port, length)
        self._process = SERVERS[0].get(key)
        self._flags = flags
        self.uds = uds
        self.show_hidden_metrics = False

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        """Leave it to the next fixture that asks for the same server."""

    @property
    def proc(self):
        SERVERS[0].used = True
        return self._process.proc

    def _get_process_termination_timeout(self):
        """Give the seconds that a server has to end: its own time-out, and some for the engine."""
        flags = self._flags
        own = flags[flags.index("--shutdown-timeout") + 1] if "--shutdown-timeout" in flags else 0
        return float(own) + TERMINATION_GRACE

    @property
    def host(self):
        SERVERS[0].used = True
        return None if self.uds else "127.0.0.1"

    @property
    def port(self):
        SERVERS[0].used = True
        return self._process.port

    @property
    def url_root(self):
        SERVERS[0].used = True
        return "http://localhost" if self.uds else f"http://{self.host}:{self.port}"

    def url_for(self, *parts):
        return "/".join([self.url_root, *parts])

    def get_client(self, **options):
        return openai.OpenAI(**self._client_options(options))

    def get_async_client(self, **options):
        return openai.AsyncOpenAI(**self._client_options(options))

    def _client_options(self, options):
        return {
            "base_url": self.url_for("v1"),
            "api_key": self.DUMMY_API_KEY,
            "max_retries": 0,
            "timeout": 600,
            **options,
        }


class RemoteLaunchRenderServer(RemoteOpenAIServer):
    """The same for a server without an engine."""

    COMMAND = "render"


class LocalAssetServer:
    """Stands for the server of pictures, which tests of other models use."""


class RemoteOpenAIServerCustom(RemoteOpenAIServer):
    """Stands for a server that a function of the test starts, which can only be vLLM's."""

    def __init__(self, *arguments, **options):
        raise NotImplementedError


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
