"""The `umbel` command."""

import argparse
import asyncio
import logging
import os
import re
import sys
from collections.abc import Mapping, Sequence

import msgspec

from umbel_chat import ChatError
from umbel_engine import EngineError
from umbel_server.errors import OptionError
from umbel_server.flags import make_parser
from umbel_server.logs import say, set_up_logs
from umbel_server.open_files import allow_many_files
from umbel_server.render import render
from umbel_server.requests.limits import read_max_n, read_max_prompts
from umbel_server.serve import serve
from umbel_server.settings import FrontendSettings, ServeSettings
from umbel_server.supervisor import supervise
from umbel_text import TextError

SECRET = re.compile("KEY|TOKEN|SECRET|PASSWORD")
"""Variables with such a name are shown to nobody."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status."""
    ours, theirs = split_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    parsed = parser.parse_args(ours)
    set_up_logs(parsed.log_format)
    allow_many_files()
    try:
        settings = settings_of(parsed, theirs, os.environ)
        if not isinstance(settings, ServeSettings):
            return asyncio.run(render(settings))
        if settings.data_parallel_size_local:
            # The engine's own log tells more of how it comes up.
            logging.getLogger("umbel_engine.handshake").setLevel(logging.WARNING)
        if settings.api_server_count > 1:
            return asyncio.run(supervise(settings))
        return asyncio.run(serve(settings))
    except (OptionError, EngineError, TextError, ChatError, OSError) as error:
        say(str(error))
        return 1
    except KeyboardInterrupt:
        return 130


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split arguments at the first "--" into the command's and the engine's."""
    if "--" not in arguments:
        return list(arguments), ()
    at = list(arguments).index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


def settings_of(
    parsed: argparse.Namespace, engine_arguments: tuple[str, ...], environ: Mapping[str, str]
) -> FrontendSettings:
    """Give the settings that a command line and the environment ask for; raises OptionError.

    Those of `umbel serve` are ServeSettings.  The environment is read here and nowhere later.
    """
    if parsed.command == "serve":
        return _serve_settings_of(parsed, engine_arguments, environ)
    if engine_arguments:
        raise OptionError('nothing can follow "--": there is no engine to hand it to.')
    return _frontend_settings_of(parsed, environ)


def _serve_settings_of(
    parsed: argparse.Namespace, engine_arguments: tuple[str, ...], environ: Mapping[str, str]
) -> ServeSettings:
    if parsed.enable_per_request_metrics and parsed.disable_log_stats:
        raise OptionError(
            "--enable-per-request-metrics needs statistics: drop --disable-log-stats."
        )
    if parsed.data_parallel_size < 1:
        raise OptionError("--data-parallel-size must be at least 1.")
    if parsed.api_server_count < 1:
        raise OptionError("--api-server-count must be at least 1.")
    local = parsed.data_parallel_size_local
    if local is None:
        local = parsed.data_parallel_size
    if not 0 <= local <= parsed.data_parallel_size:
        raise OptionError("--data-parallel-size-local must be between 0 and --data-parallel-size.")
    return ServeSettings(
        **msgspec.structs.asdict(_frontend_settings_of(parsed, environ)),
        dtype=parsed.dtype,
        python=parsed.python,
        data_parallel_address=parsed.data_parallel_address,
        data_parallel_rpc_port=parsed.data_parallel_rpc_port,
        data_parallel_size=parsed.data_parallel_size,
        data_parallel_size_local=local,
        engine_ready_timeout=_ready_timeout(parsed.engine_ready_timeout_secs, environ),
        max_concurrent_sequences=parsed.max_concurrent_sequences,
        max_num_queued_reqs=parsed.max_num_queued_reqs,
        max_num_queued_tokens=parsed.max_num_queued_tokens,
        engine_stall_timeout=parsed.engine_stall_timeout,
        log_stats=not parsed.disable_log_stats,
        api_server_count=parsed.api_server_count,
        engine_arguments=engine_arguments,
    )


def _frontend_settings_of(
    parsed: argparse.Namespace, environ: Mapping[str, str]
) -> FrontendSettings:
    keys = parsed.api_key or environ.get("VLLM_API_KEY", "").split()
    return FrontendSettings(
        model=parsed.model or "",
        max_n_sequences=read_max_n(parsed.max_n_sequences, environ),
        max_completion_prompts=read_max_prompts(environ),
        host=parsed.host,
        port=parsed.port,
        uds=parsed.uds,
        root_path=parsed.root_path,
        api_keys=tuple(keys),
        allowed_origins=tuple(parsed.allowed_origins),
        allow_credentials=parsed.allow_credentials,
        allowed_methods=tuple(parsed.allowed_methods),
        allowed_headers=tuple(parsed.allowed_headers),
        enable_request_id_headers=parsed.enable_request_id_headers,
        development_mode=_development_mode(environ),
        environment=_shown_environment(environ),
        shutdown_timeout=parsed.shutdown_timeout,
        client_write_timeout=parsed.client_write_timeout,
        sse_keep_alive_interval=parsed.sse_keep_alive_interval,
        ssl_certfile=parsed.ssl_certfile,
        ssl_keyfile=parsed.ssl_keyfile,
        log_requests=parsed.enable_log_requests,
        log_format=parsed.log_format,
        served_model_names=tuple(parsed.served_model_name),
        revision=parsed.revision,
        tokenizer=parsed.tokenizer,
        max_model_len=parsed.max_model_len,
        generation_config=parsed.generation_config,
        override_generation_config=parsed.override_generation_config or {},
        chat_template=parsed.chat_template,
        content_format=parsed.chat_template_content_format,
        default_template_arguments=parsed.default_chat_template_kwargs or {},
        trust_request_chat_template=parsed.trust_request_chat_template,
        tool_call_parser=parsed.tool_call_parser,
        reasoning_parser=parsed.reasoning_parser,
        tool_parser_plugin=parsed.tool_parser_plugin,
        structured_outputs_backend=parsed.structured_outputs_backend,
        max_logprobs=parsed.max_logprobs,
        response_role=parsed.response_role,
        enable_prompt_tokens_details=parsed.enable_prompt_tokens_details,
        enable_per_request_metrics=parsed.enable_per_request_metrics,
        enable_force_include_usage=parsed.enable_force_include_usage,
        enable_scale_out=parsed.enable_scale_out,
        enable_tokenizer_info_endpoint=parsed.enable_tokenizer_info_endpoint,
        return_tokens_as_token_ids=parsed.return_tokens_as_token_ids,
    )


def _development_mode(environ: Mapping[str, str]) -> bool:
    text = environ.get("VLLM_SERVER_DEV_MODE", "0")
    try:
        return bool(int(text))
    except ValueError:
        raise OptionError(f"VLLM_SERVER_DEV_MODE must be 0 or 1, got {text!r}.") from None


def _shown_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Give what `/server_info` may show of the environment: vLLM's variables but for secrets."""
    return {
        name: environ[name]
        for name in sorted(environ)
        if name.startswith("VLLM_") and SECRET.search(name) is None
    }


def _ready_timeout(option: float | None, environ: Mapping[str, str]) -> float:
    if option is not None:
        return option
    text = environ.get("VLLM_ENGINE_READY_TIMEOUT_S", "600")
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"VLLM_ENGINE_READY_TIMEOUT_S must be a number, got {text!r}.") from None
