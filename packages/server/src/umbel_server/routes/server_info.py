"""What whoever develops or operates a server may want to see of it."""

import asyncio
import os
import platform
from collections.abc import Sequence
from importlib import metadata

import msgspec
from aiohttp import web

from umbel_engine import Engine
from umbel_server.errors import invalid_body
from umbel_server.routes.probes import UMBEL_VERSION
from umbel_server.server import SERVER, Server

PACKAGES = ("aiohttp", "msgspec", "pyzmq", "tokenizers")

SECRETS = frozenset({"api_keys"})
"""Options that are shown to nobody."""


async def server_info(http: web.Request) -> web.Response:
    """Describe the server: vLLM's three parts, of what is known here, and one of umbel's own.

    vLLM's are the configuration, as text unless `config_format=json` is asked for, the environment
    and the system (vllm/entrypoints/serve/dev/server_info).
    """
    server = http.app[SERVER]
    form = http.query.get("config_format", "text")
    if form not in ("text", "json"):
        raise invalid_body("config_format must be 'text' or 'json'", "query.config_format")
    engines = server.chat.text.llm.client.engines if server.chat.text.generates else ()
    config = _config(server, engines)
    info = {
        "vllm_config": config if form == "json" else _as_text(config),
        "vllm_env": server.options.environment,
        "system_env": _system(),
        "umbel": _umbel(server, engines),
    }
    return web.Response(body=msgspec.json.encode(info), content_type="application/json")


def _config(server: Server, engines: Sequence[Engine]) -> dict[str, dict[str, object]]:
    model = server.chat.text.model
    config: dict[str, dict[str, object]] = {
        "model_config": {
            "model": server.options.model_root,
            "served_model_name": list(server.options.served_model_names),
            "max_model_len": model.max_model_len,
            "max_logprobs": model.max_logprobs,
        },
        "structured_outputs_config": {"backend": model.structured_outputs_backend},
    }
    if engines:
        ready = engines[0].ready
        config["model_config"]["dtype"] = ready.dtype
        config["cache_config"] = {
            "block_size": ready.block_size,
            "num_gpu_blocks": ready.num_gpu_blocks,
        }
        config["parallel_config"] = {
            "data_parallel_size": len(engines),
            "tensor_parallel_size": ready.tensor_parallel_size,
            "pipeline_parallel_size": ready.pipeline_parallel_size,
            "decode_context_parallel_size": ready.decode_context_parallel_size,
        }
        config["scheduler_config"] = {
            "max_num_seqs": ready.max_num_seqs,
            "max_num_batched_tokens": ready.max_num_batched_tokens,
        }
    return config


def _as_text(config: dict[str, dict[str, object]]) -> str:
    return ", ".join(
        f"{name}={value!r}" for part in config.values() for name, value in part.items()
    )


def _system() -> dict[str, object]:
    versions: dict[str, object] = {}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = None
    return {
        "os": platform.platform(),
        "python_version": platform.python_version(),
        "packages": versions,
    }


def _umbel(server: Server, engines: Sequence[Engine]) -> dict[str, object]:
    options = msgspec.structs.asdict(server.options)
    return {
        "version": UMBEL_VERSION,
        "started": server.started,
        "options": {
            name: value
            for name, value in options.items()
            if name not in SECRETS and name != "environment"
        },
        "engines": [_engine(engine) for engine in engines],
        "running": _running(server),
    }


def _running(server: Server) -> dict[str, int | None]:
    """Count what a request takes and has to give back: what outlives it would show here."""
    running: dict[str, int | None] = {
        "requests": server.load,
        "sequences": server.sequences,
        "connections": len(server.slow_clients),
        "asyncio_tasks": len(asyncio.all_tasks()),
        "asyncio_timers": _timers(),
        "open_files": _open_files(),
    }
    if server.chat.text.generates:
        llm = server.chat.text.llm
        running["responses"] = len(llm.in_flight)
        running["samples"] = llm.client.in_flight
        running["unfinished_samples"] = llm.admission.unfinished
        running["queued_tokens"] = llm.admission.queued_tokens
        running["utility_calls"] = llm.client.calls_in_flight
    return running


def _timers() -> int | None:
    """Count the timers of the event loop that will fire; None where it does not tell."""
    scheduled = getattr(asyncio.get_running_loop(), "_scheduled", None)
    if scheduled is None:
        return None
    return sum(not timer.cancelled() for timer in scheduled)


def _open_files() -> int | None:
    """Count the descriptors of the process; None where the system does not tell."""
    try:
        # The folder itself is open while it is listed.
        return len(os.listdir("/proc/self/fd")) - 1
    except OSError:
        return None


def _engine(engine: Engine) -> dict[str, object]:
    return {
        "index": engine.index,
        "samples": engine.inflight,
        "waiting": engine.waiting,
        "running": engine.running,
        "kv_cache_usage": engine.kv_cache_usage,
        "ready": engine.ready,
    }


def add_server_info_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_get("/server_info", server_info, allow_head=False)
