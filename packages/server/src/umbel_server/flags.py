"""The flags of the `umbel` command; they have vLLM's names."""

import argparse
from importlib import metadata
from pathlib import Path

from umbel_server.flag_types import (
    count,
    json_object,
    json_strings,
    port_number,
    root_path,
    seconds,
    token_count,
)
from umbel_server.options import DEFAULT_WRITE_TIMEOUT
from umbel_server.requests.limits import DEFAULT_MAX_SEQUENCES, MAX_N_OPTION

BACKENDS = ("xgrammar", "guidance", "outlines", "lm-format-enforcer", "auto")

DESCRIPTION = """\
Serve a language model over OpenAI's HTTP API, on vLLM engine cores, with parallel sampling: one
prompt, n answers.  Without a model, a small one (SmolLM2-135M-Instruct) is served."""

RENDER_DESCRIPTION = """\
Serve what comes before and after a language model: prompts are checked and tokenized, nothing is
generated, and there is no engine."""

EPILOG = """\
What follows "--" goes to the managed engine, for example:
  umbel serve Qwen/Qwen3-0.6B --port 9000 -- --gpu-memory-utilization 0.8"""


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
    render_parser = commands.add_parser(
        "render",
        help="check and tokenize requests, with no engine",
        description=RENDER_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for command in (serve_parser, render_parser):
        command.add_argument("model", nargs="?", help="a folder or the name of a hub repository")
        _add_network_flags(command)
        _add_browser_flags(command)
        _add_log_flags(command)
        _add_model_flags(command)
        _add_answer_flags(command)
    _add_limit_flags(serve_parser)
    _add_engine_flags(serve_parser)
    return parser


def _add_network_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network")
    group.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    group.add_argument(
        "--port", type=port_number, default=8000, help="port to listen on (%(default)s)"
    )
    group.add_argument("--uds", metavar="PATH", help="Unix socket to listen on instead")
    group.add_argument(
        "--ssl-certfile", type=Path, metavar="FILE", help="certificate; HTTPS is spoken with it"
    )
    group.add_argument(
        "--ssl-keyfile",
        type=Path,
        metavar="FILE",
        help="its key, if the certificate's file has none",
    )
    group.add_argument("--api-key", nargs="+", default=[], metavar="KEY", help="keys to let in")
    group.add_argument(
        "--root-path",
        type=root_path,
        default="",
        metavar="PATH",
        help="prefix that a proxy leaves in front of the paths; they are served without it too",
    )
    group.add_argument(
        "--enable-request-id-headers",
        action="store_true",
        help="put X-Request-Id on every answer: the request's, or a new one",
    )
    group.add_argument(
        "--shutdown-timeout",
        type=seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long running answers may take to finish at the end (%(default)s)",
    )
    group.add_argument(
        "--client-write-timeout",
        type=seconds,
        default=DEFAULT_WRITE_TIMEOUT,
        metavar="SECONDS",
        help="cut off a client that has read nothing for so long; 0: never (%(default)s)",
    )
    group.add_argument(
        "--sse-keep-alive-interval",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="send a comment in a stream that was silent for so long; 0: none (%(default)s)",
    )


def _add_browser_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("browsers (CORS)")
    group.add_argument(
        "--allowed-origins",
        type=json_strings,
        default=[],
        metavar="JSON",
        help='list of the sites whose pages may read answers, ["*"] for all (none)',
    )
    group.add_argument(
        "--allow-credentials", action="store_true", help="let these pages send credentials"
    )
    for what in ("methods", "headers"):
        group.add_argument(
            f"--allowed-{what}",
            type=json_strings,
            default=["*"],
            metavar="JSON",
            help=f"list of the {what} that these pages may use (all)",
        )


def _add_log_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("logs")
    group.add_argument(
        "--enable-log-requests",
        action="store_true",
        help="write a line for every request: id, counts and times, never its text",
    )
    group.add_argument(
        "--log-format",
        choices=("text", "json"),
        default="text",
        help="how lines of the log look (%(default)s)",
    )


def _add_limit_flags(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "limits", "Who would be too much is told to come again (503)."
    )
    group.add_argument(
        "--max-num-queued-reqs",
        type=count,
        metavar="N",
        help="samples that wait or run in the engines; n answers are n samples (no limit)",
    )
    group.add_argument(
        "--max-num-queued-tokens",
        type=token_count,
        metavar="N",
        help="once so many prompt tokens wait for their first answer token, refuse (no limit)",
    )
    group.add_argument(
        "--max-concurrent-sequences",
        type=count,
        default=DEFAULT_MAX_SEQUENCES,
        metavar="N",
        help="samples that one server process answers at once; 0: no limit (%(default)s)",
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
        "--tool-call-parser",
        default="auto",
        metavar="NAME",
        help="how the model writes tool calls: a name of docs/parsers.md, auto (by the model's "
        "files) or none (%(default)s)",
    )
    group.add_argument(
        "--reasoning-parser",
        default="auto",
        metavar="NAME",
        help="how the model marks its reasoning: a name, auto or none (%(default)s)",
    )
    group.add_argument(
        "--tool-parser-plugin",
        type=Path,
        metavar="FILE",
        help="Python file that defines parsers of your own",
    )
    group.add_argument(
        "--enable-auto-tool-choice",
        action="store_true",
        help="no effect: tools may be called whenever there is a parser",
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
        type=seconds,
        metavar="SECONDS",
        help="how long engines may load (600)",
    )
    group.add_argument(
        "--engine-stall-timeout",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="how long an engine may say nothing, not even answer a ping, before it is given up; "
        "longer than its longest step (0: for ever)",
    )
    group.add_argument(
        "--api-server-count",
        type=int,
        default=1,
        metavar="N",
        help="server processes that share the port and the engines (%(default)s)",
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
    group.add_argument(
        "--enable-scale-out", action="store_true", help="open the render routes and /inference/v1"
    )
    group.add_argument(
        "--enable-tokenizer-info-endpoint", action="store_true", help="open /tokenizer_info"
    )
    group.add_argument(
        "--enable-server-load-tracking",
        action="store_true",
        help="no effect: /load always tells the load",
    )
    group.add_argument(MAX_N_OPTION, help=argparse.SUPPRESS)
