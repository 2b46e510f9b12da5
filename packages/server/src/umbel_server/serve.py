"""`umbel serve`: engines, layers and the HTTP server, brought up together and taken down in order."""

import asyncio
import hashlib
import logging
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TypeVar

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from umbel_chat import (
    ChatLlm,
    ChatModel,
    ChatTemplate,
    load_chat_template,
    load_tool_template,
)
from umbel_chat.parsers.registry import REASONING_FORMATS
from umbel_engine import Engine, EngineClient, EngineOptions, EngineProcess, EngineProcessOptions
from umbel_llm import AdmissionLimits, Counters, Llm, LlmMetrics
from umbel_server.app import create_app
from umbel_server.errors import OptionError
from umbel_server.formats import are_tokens, formats_of, with_formats
from umbel_server.listening import announce, listening_socket, serving
from umbel_server.logs import repeat_engine, report_engine, say
from umbel_server.memory import settle
from umbel_server.options import ServerOptions
from umbel_server.server import SERVER
from umbel_server.settings import FrontendSettings, ServeSettings
from umbel_server.stop import Stop
from umbel_server.tls import tls_context
from umbel_text import TextLlm, TextModel, load_text_model, resolve_model_folder

logger = logging.getLogger(__name__)

SettingsT = TypeVar("SettingsT", bound=FrontendSettings)

SAMPLE_MODEL_NAME = "smollm2-135m-instruct"

ERRORS_DELIVERED_WITHIN = 5.0
"""Seconds that the streams of dead engines get to send their errors."""


async def serve(settings: ServeSettings) -> int:
    """Serve until told to stop; gives the exit status, 1 when the engines died."""
    started = time.monotonic()
    settings = await with_model(settings)
    # Files that cannot be used are found before an engine is started, a taken port as well.
    chat_model, text_model = load_model(settings)
    tls = tls_context(settings)
    with listening_socket(settings) as listener:
        settle(text_model)
        async with AsyncExitStack() as stack:
            stop = Stop()
            stack.callback(stop.close)
            client = await stack.enter_async_context(EngineClient(engine_options(settings)))
            if not await stop.unless_stopped(bring_up(stack, settings, client)):
                return 0
            app = make_app(settings, chat_model, text_model, client)
            async with serving(app, listener, tls) as site:
                announce(settings, listener, started)
                await run(app, site, client, stop, settings)
            died = client.error is not None
            # Closed before its engines stop, it does not take that for their death.
            client.close()
            return 1 if died else 0


async def with_model(settings: SettingsT) -> SettingsT:
    """Fill in the model where none was named, the names that it is served under, and its parsers."""
    model = settings.model
    if not model:
        # What converts the model is not worth importing for every other one.
        from umbel_engine.sample_model import prepare_sample_model

        model = str(await asyncio.to_thread(prepare_sample_model))
    names = settings.served_model_names or (settings.model or SAMPLE_MODEL_NAME,)
    settings = msgspec.structs.replace(settings, model=model, served_model_names=names)
    folder, tokenizer_folder = model_folders(settings)
    return with_formats(settings, folder, tokenizer_folder)


def model_folders(settings: FrontendSettings) -> tuple[Path, Path]:
    """Find the folder of the model and that of its tokenizer."""
    folder = resolve_model_folder(settings.model, settings.revision)
    if settings.tokenizer is None:
        return folder, folder
    return folder, resolve_model_folder(settings.tokenizer)


def load_model(settings: FrontendSettings) -> tuple[ChatModel, TextModel]:
    """Load what the layers need of a model; its length is known when the engines are ready."""
    folder, tokenizer_folder = model_folders(settings)
    tool_format, reasoning_format = formats_of(settings)
    text_model = load_text_model(
        folder,
        0,
        settings.generation_config,
        settings.override_generation_config,
        settings.max_logprobs,
        tokenizer_folder,
        settings.structured_outputs_backend,
        reasoning_format is not None,
    )
    special_tokens = text_model.tokenizer.special_tokens
    source = load_chat_template(tokenizer_folder, settings.chat_template)
    tool_source = load_tool_template(tokenizer_folder, settings.chat_template)
    chat_model = ChatModel(
        settings.served_model_names[0],
        ChatTemplate(source, special_tokens),
        None if settings.content_format == "auto" else settings.content_format,
        settings.default_template_arguments,
        settings.trust_request_chat_template,
        tool_format=tool_format,
        reasoning_format=reasoning_format,
        tool_template=None if tool_source is None else ChatTemplate(tool_source, special_tokens),
    )
    return chat_model, text_model


def engine_options(settings: ServeSettings) -> EngineOptions:
    """Say how engines are found."""
    address = settings.data_parallel_address
    if not address.startswith("ipc://"):
        host = f"[{address}]" if ":" in address else address
        address = f"tcp://{host}:{settings.data_parallel_rpc_port}"
    return EngineOptions(
        handshake_address=address,
        engine_count=settings.data_parallel_size,
        local_engines=settings.data_parallel_size_local == settings.data_parallel_size,
        ready_timeout=settings.engine_ready_timeout,
        stall_timeout=settings.engine_stall_timeout or None,
    )


async def bring_up(stack: AsyncExitStack, settings: ServeSettings, client: EngineClient) -> None:
    """Start the engines that are to run here and wait until all are ready."""
    process = managed_engines(settings, client.handshake_address)
    if process is None:
        await client.wait_ready()
        return
    await stack.enter_async_context(process)
    await process.wait_ready(client)


def managed_engines(settings: ServeSettings, handshake_address: str) -> EngineProcess | None:
    """Give the process of the engines that are to run here; None if all are started elsewhere."""
    if settings.data_parallel_size_local == 0:
        say(f"waiting for engines at {handshake_address}")
        return None
    options = EngineProcessOptions(
        python=engine_python(settings.python),
        model=settings.model,
        handshake_address=handshake_address,
        data_parallel_size=settings.data_parallel_size,
        data_parallel_size_local=settings.data_parallel_size_local,
        max_model_len=settings.max_model_len,
        dtype=settings.dtype,
        extra_arguments=(*shared_arguments(settings), *settings.engine_arguments),
    )
    return EngineProcess(options, repeat_engine, report_engine)


def shared_arguments(settings: ServeSettings) -> list[str]:
    """Give the arguments that the engine has to agree with, as its own command line has them."""
    given = (
        ("--revision", settings.revision),
        ("--tokenizer", settings.tokenizer),
        ("--max-logprobs", str(settings.max_logprobs)),
        ("--reasoning-parser", engine_reasoning_parser(settings)),
    )
    arguments = [word for flag, value in given if value is not None for word in (flag, value)]
    return arguments if settings.log_stats else [*arguments, "--disable-log-stats"]


def engine_reasoning_parser(settings: ServeSettings) -> str | None:
    """Give the reasoning parser that the engine knows by its name, too; None when there is none.

    With it, the engine lets structured outputs begin where reasoning ends, and limits its length.
    """
    _, form = formats_of(settings)
    # Of several names vLLM may not know the later ones yet.
    if form is None or REASONING_FORMATS.get(form.names[0]) is not form:
        return None
    # Without these tokens vLLM's parser would keep the engine from starting.
    _, folder = model_folders(settings)
    return form.names[0] if are_tokens(folder, (form.start, form.end)) else None


def engine_python(given: Path | None) -> Path:
    """Give the Python that has vLLM: the one given, or that of .venv-engine, or this one."""
    if given is not None:
        if not given.is_file():
            raise OptionError(f"--python {given}: there is no such file.")
        return given
    beside = Path(".venv-engine/bin/python")
    return beside.absolute() if beside.is_file() else Path(sys.executable)


def make_app(
    settings: ServeSettings,
    chat_model: ChatModel,
    text_model: TextModel,
    client: EngineClient,
    counters: Counters | None = None,
) -> web.Application:
    """Put the layers on top of each other, for engines that are ready.

    Server processes that share the engines share the counters of their samples, too.
    """
    metrics = LlmMetrics.of(client, chat_model.name, settings.log_stats)
    text_model = msgspec.structs.replace(text_model, max_model_len=client.max_model_len)
    registry = CollectorRegistry()
    registry.register(metrics)
    options = msgspec.structs.replace(
        server_options(settings),
        max_concurrent_sequences=settings.max_concurrent_sequences,
        fingerprint=fingerprint(settings.model, client.engines),
        engine_version=client.engines[0].ready.vllm_version,
    )
    limits = AdmissionLimits(
        max_num_queued_reqs=settings.max_num_queued_reqs,
        max_num_queued_tokens=settings.max_num_queued_tokens,
    )
    llm = Llm(client, metrics, limits, counters)
    chat = ChatLlm(chat_model, TextLlm(text_model, llm))
    return create_app(chat, options, registry)


def server_options(settings: FrontendSettings) -> ServerOptions:
    """Say how the HTTP layer answers, as far as no engine has a part in it."""
    return ServerOptions(
        served_model_names=settings.served_model_names,
        model_root=settings.model,
        max_n_sequences=settings.max_n_sequences,
        max_completion_prompts=settings.max_completion_prompts,
        api_keys=settings.api_keys,
        allowed_origins=settings.allowed_origins,
        allow_credentials=settings.allow_credentials,
        allowed_methods=settings.allowed_methods,
        allowed_headers=settings.allowed_headers,
        enable_request_id_headers=settings.enable_request_id_headers,
        root_path=settings.root_path,
        development_mode=settings.development_mode,
        environment=settings.environment,
        client_write_timeout=settings.client_write_timeout,
        sse_keep_alive_interval=settings.sse_keep_alive_interval,
        log_requests=settings.log_requests,
        response_role=settings.response_role,
        enable_prompt_tokens_details=settings.enable_prompt_tokens_details,
        enable_per_request_metrics=settings.enable_per_request_metrics,
        enable_force_include_usage=settings.enable_force_include_usage,
        enable_scale_out=settings.enable_scale_out,
        enable_tokenizer_info_endpoint=settings.enable_tokenizer_info_endpoint,
        return_tokens_as_token_ids=settings.return_tokens_as_token_ids,
    )


def fingerprint(model: str, engines: Sequence[Engine]) -> str:
    """Describe what answers, as vLLM does: version, parallel sizes, and a hash of the rest."""
    ready = engines[0].ready
    sizes = (
        ("tp", ready.tensor_parallel_size),
        ("pp", ready.pipeline_parallel_size),
        ("dp", len(engines)),
    )
    parallel = "".join(f"-{name}{size}" for name, size in sizes if size > 1)
    facts = (model, ready.dtype, ready.max_model_len, ready.block_size, ready.num_gpu_blocks)
    digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:8]
    return f"vllm-{ready.vllm_version}{parallel}-{digest}"


async def run(
    app: web.Application,
    site: web.SockSite,
    client: EngineClient,
    stop: Stop,
    settings: ServeSettings,
) -> None:
    """Serve the application until told to stop or until the engines are gone, then drain it."""

    async def engines_die() -> None:
        await client.died()

    await stop.unless_stopped(engines_die())
    server, seconds = app[SERVER], settings.shutdown_timeout
    if client.error is not None:
        seconds = min(seconds, ERRORS_DELIVERED_WITHIN)
    else:
        await site.stop()
    if server.load:
        say(f"{server.load} requests get {seconds:g} s to finish")
    await server.drain(seconds)
