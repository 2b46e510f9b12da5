"""The `umbel` command."""

import argparse
import asyncio
import gc
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path

from umbel_chat import ChatError
from umbel_engine import EngineError
from umbel_server.errors import OptionError
from umbel_server.requests.limits import MAX_N_OPTION, read_max_n, read_max_prompts
from umbel_server.serve import ServeSettings, serve
from umbel_text import TextError

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer", "auto")

DESCRIPTION = """\
Serve a language model over OpenAI's HTTP API, on vLLM engine cores, with parallel sampling: one
prompt, n answers.  Without a model, a small one (SmolLM2-135M-Instruct) is served."""

EPILOG = """\
What follows "--" goes to the managed engine, for example:
  umbel serve Qwen/Qwen3-0.6B --port 9000 -- --gpu-memory-utilization 0.8"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; gives its exit status."""
    ours, theirs = split_arguments(sys.argv[1:] if arguments is None else arguments)
    parser = make_parser()
    parsed = parser.parse_args(ours)
    logging.basicConfig(
        level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"
    )
    try:
        settings = settings_of(parsed, theirs, os.environ)
        if settings.data_parallel_size_local:
            # The engine's own log tells more of how it comes up.
            logging.getLogger("umbel_engine.handshake").setLevel(logging.WARNING)
        return asyncio.run(_serve_frozen(settings))
    except (OptionError, EngineError, TextError, ChatError, OSError) as error:
        print(f"umbel: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


async def _serve_frozen(settings: ServeSettings) -> int:
    # What was imported lives as long as the process: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    return await serve(settings)


def split_arguments(arguments: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Split arguments at the first "--" into the command's and the engine's."""
    if "--" not in arguments:
        return list(arguments), ()
    at = list(arguments).index("--")
    return list(arguments[:at]), tuple(arguments[at + 1 :])


def make_parser() -> argparse.ArgumentParser:
    """Make the parser of the command line; flags have vLLM's names."""
    parser = argparse.ArgumentParser(prog="umbel", description=DESCRIPTION)
    version = f"umbel {metadata.version('umbel-server')}"
    parser.add_argument("--version", action="version", version=version)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    serve_parser = commands.add_parser(
        "serve",
        help="serve a model",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    serve_parser.add_argument("model", nargs="?", help="a folder or the name of a hub repository")
    _add_network_flags(serve_parser)
    _add_model_flags(serve_parser)
    _add_engine_flags(serve_parser)
    _add_answer_flags(serve_parser)
    return parser


def _add_network_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=port_number, default=8000, help="port to listen on (%(default)s)"
    )
    group.add_argument("--uds", metavar="PATH", help="Unix socket to listen on instead")
    group.add_argument("--api-key", nargs="+", default=[], metavar="KEY", help="keys to let in")
    group.add_argument(
        "--shutdown-timeout",
        type=float,
        default=10.0,
        metavar="SECONDS",
        help="how long running answers may take to finish at the end (%(default)s)",
    )


def _add_model_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("model")
    group.add_argument(
        "--served-model-name",
        nargs="+",
        default=[],
        metavar="NAME",
        help="names that requests may use; answers carry the first (the model's)",
    )
    group.add_argument("--revision", help="revision of the hub repository")
    group.add_argument("--tokenizer", help="where the tokenizer comes from, if not from the model")
    group.add_argument("--max-model-len", help="longest prompt plus output, in tokens")
    group.add_argument("--dtype", help="the engine's data type")
    group.add_argument(
        "--generation-config", default="auto", help='"auto", "vllm" or a folder (%(default)s)'
    )
    group.add_argument(
        "--override-generation-config",
        type=json_object,
        metavar="JSON",
        help="keys of a generation config that are laid over it",
    )
    group.add_argument("--chat-template", help="a file, or the template itself")
    group.add_argument(
        "--chat-template-content-format",
        choices=("auto", "string", "openai"),
        default="auto",
        help="what templates get as content: text, or a list of parts (auto: by the template)",
    )
    group.add_argument(
        "--default-chat-template-kwargs",
        type=json_object,
        metavar="JSON",
        help="arguments for the chat template, below those of a request",
    )
    group.add_argument(
        "--trust-request-chat-template",
        action="store_true",
        help="let requests bring chat templates of their own",
    )
    group.add_argument(
        "--structured-outputs-config.backend",
        dest="structured_outputs_backend",
        choices=BACKENDS,
        default="xgrammar",
        help="what the engine enforces structured outputs with (%(default)s)",
    )
    group.add_argument("--max-logprobs", type=int, default=20, help="-1: no limit (%(default)s)")


def _add_engine_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("engine")
    group.add_argument(
        "--python",
        type=Path,
        help="Python of the environment that has vLLM (.venv-engine/bin/python, else this one)",
    )
    group.add_argument(
        "--data-parallel-address",
        default="127.0.0.1",
        help="where engines say HELLO: a host, or ipc://PATH (%(default)s)",
    )
    group.add_argument(
        "--data-parallel-rpc-port", type=port_number, default=0, help="and the port (0: a free one)"
    )
    group.add_argument("--data-parallel-size", type=int, default=1, help="engines (%(default)s)")
    group.add_argument(
        "--data-parallel-size-local",
        type=int,
        help="engines to start here (all); 0: they are started elsewhere and will join",
    )
    group.add_argument(
        "--engine-ready-timeout-secs",
        type=float,
        metavar="SECONDS",
        help="how long engines may load (600)",
    )
    group.add_argument("--disable-log-stats", action="store_true", help="collect no statistics")


def _add_answer_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("answers")
    group.add_argument(
        "--response-role", default="assistant", help="the role of chat answers (%(default)s)"
    )
    for flag, what in (
        ("--enable-prompt-tokens-details", "tell in the usage which prompt tokens were cached"),
        ("--enable-per-request-metrics", "put the timing into answers to requests with n = 1"),
        ("--enable-force-include-usage", "send the usage with every event of every stream"),
        ("--return-tokens-as-token-ids", "write tokens of logprobs as token_id:N"),
    ):
        group.add_argument(flag, action="store_true", help=what)
    group.add_argument("--enable-scale-out", action="store_true", help="open the render routes")
    group.add_argument(
        "--enable-tokenizer-info-endpoint", action="store_true", help="open /tokenizer_info"
    )
    group.add_argument(MAX_N_OPTION, help=argparse.SUPPRESS)


def port_number(text: str) -> int:
    """Read a flag whose value is a port; 0 stands for a free one."""
    # What is out of range would raise deep inside, or be taken modulo 65536 by ZMQ.
    if not (text.isascii() and text.isdigit() and len(text) <= 5 and int(text) <= 65535):
        raise argparse.ArgumentTypeError(f"must be a port from 0 to 65535, got {text!r}")
    return int(text)


def json_object(text: str) -> dict[str, object]:
    """Read a flag whose value is a JSON object."""
    try:
        value: object = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"not JSON: {error}") from error
    if not isinstance(value, dict):
        raise argparse.ArgumentTypeError("not a JSON object")
    return value


def settings_of(
    parsed: argparse.Namespace, engine_arguments: tuple[str, ...], environ: Mapping[str, str]
) -> ServeSettings:
    """Give the settings that a command line and the environment ask for; raises OptionError.

    The environment is read here and nowhere later.
    """
    if parsed.enable_per_request_metrics and parsed.disable_log_stats:
        raise OptionError(
            "--enable-per-request-metrics needs statistics: drop --disable-log-stats."
        )
    if parsed.data_parallel_size < 1:
        raise OptionError("--data-parallel-size must be at least 1.")
    local = parsed.data_parallel_size_local
    if local is None:
        local = parsed.data_parallel_size
    if not 0 <= local <= parsed.data_parallel_size:
        raise OptionError("--data-parallel-size-local must be between 0 and --data-parallel-size.")
    keys = parsed.api_key or environ.get("VLLM_API_KEY", "").split()
    return ServeSettings(
        model=parsed.model,
        max_n_sequences=read_max_n(parsed.max_n_sequences, environ),
        max_completion_prompts=read_max_prompts(environ),
        host=parsed.host,
        port=parsed.port,
        uds=parsed.uds,
        api_keys=tuple(keys),
        shutdown_timeout=parsed.shutdown_timeout,
        served_model_names=tuple(parsed.served_model_name),
        revision=parsed.revision,
        tokenizer=parsed.tokenizer,
        max_model_len=parsed.max_model_len,
        dtype=parsed.dtype,
        generation_config=parsed.generation_config,
        override_generation_config=parsed.override_generation_config or {},
        chat_template=parsed.chat_template,
        content_format=parsed.chat_template_content_format,
        default_template_arguments=parsed.default_chat_template_kwargs or {},
        trust_request_chat_template=parsed.trust_request_chat_template,
        structured_outputs_backend=parsed.structured_outputs_backend,
        max_logprobs=parsed.max_logprobs,
        python=parsed.python,
        data_parallel_address=parsed.data_parallel_address,
        data_parallel_rpc_port=parsed.data_parallel_rpc_port,
        data_parallel_size=parsed.data_parallel_size,
        data_parallel_size_local=local,
        engine_ready_timeout=_ready_timeout(parsed.engine_ready_timeout_secs, environ),
        log_stats=not parsed.disable_log_stats,
        engine_arguments=engine_arguments,
        response_role=parsed.response_role,
        enable_prompt_tokens_details=parsed.enable_prompt_tokens_details,
        enable_per_request_metrics=parsed.enable_per_request_metrics,
        enable_force_include_usage=parsed.enable_force_include_usage,
        enable_scale_out=parsed.enable_scale_out,
        enable_tokenizer_info_endpoint=parsed.enable_tokenizer_info_endpoint,
        return_tokens_as_token_ids=parsed.return_tokens_as_token_ids,
    )


def _ready_timeout(option: float | None, environ: Mapping[str, str]) -> float:
    if option is not None:
        return option
    text = environ.get("VLLM_ENGINE_READY_TIMEOUT_S", "600")
    try:
        return float(text)
    except ValueError:
        raise OptionError(f"VLLM_ENGINE_READY_TIMEOUT_S must be a number, got {text!r}.") from None
