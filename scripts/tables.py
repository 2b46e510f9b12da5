"""Write the tables of the documents that can be read off the code.

    tables.py            bring them up to date
    tables.py --check    fail when they are not

Run it with a Python that has umbel-server.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
from aiohttp import web

from umbel_chat import TemplateLimits, chat
from umbel_chat.parsers import REASONING_FORMATS, TOOL_FORMATS, ReasoningFormat, ToolFormat
from umbel_server import ServerOptions, connections, errors
from umbel_server.flags import make_parser
from umbel_server.requests import body, faults, limits, shared
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_text import bad_words, sampling, truncation
from umbel_text.grammars import assembly

FormatT = TypeVar("FormatT", ToolFormat, ReasoningFormat)

ROOT = Path(__file__).resolve().parent.parent
MIB = 1024 * 1024

NO_EFFECT: Mapping[str, str] = {
    "include_reasoning": "no effect without a parser",
    "length_penalty": "no effect without beam search",
    "mm_payload": "no effect on text",
    "parallel_tool_calls": "no effect without tool calls",
    "return_mm_kwargs": "no effect on text",
    "return_token_offsets": "on the render routes",
    "routed_experts_prompt_start": "handed on to the engine",
    "user": "ignored",
    "watermarking": "handed on to the engine",
}
"""What vLLM accepts and either does nothing with, or leaves to its engine."""

REFUSED: Mapping[str, str] = {
    "media_io_kwargs": "400, untrusted",
    "mm_processor_kwargs": "400, untrusted",
    "prompt_embeds": "400, not enabled",
    "suffix": "400, no model for it",
    "thinking_token_budget": "400 without a reasoning parser",
    "tool_choice": '400 without a tool call parser, unless it is "none"',
    "use_beam_search": "**400**, not served",
}
"""What is refused, mostly as vLLM does for a text model with its default options."""


def flag_rows() -> Iterator[str]:
    """Give a row for each flag of `umbel serve`, one part per group of flags."""
    yield "| Flag | Meaning (default) |"
    yield "|---|---|"
    for group in _serve_parser()._action_groups:
        rows = list(_flags_of(group))
        if rows and group.title not in ("options", "positional arguments"):
            yield f"| **{group.title}** | |"
            yield from rows


def _serve_parser() -> argparse.ArgumentParser:
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser: argparse.ArgumentParser = action.choices["serve"]
            return parser
    raise LookupError("the parser has no commands")


def _flags_of(group: argparse._ArgumentGroup) -> Iterator[str]:
    for action in group._group_actions:
        if action.help is argparse.SUPPRESS or not action.option_strings:
            continue
        meaning = (action.help or "") % {"default": action.default}
        yield f"| `{_usage(action)}` | {meaning} |"


def _usage(action: argparse.Action) -> str:
    name = action.option_strings[-1]
    if action.nargs == 0:
        return name
    if action.choices is not None:
        return f"{name} {{{','.join(map(str, action.choices))}}}"
    value = str(action.metavar or action.dest.upper())
    return f"{name} {value} ..." if action.nargs == "+" else f"{name} {value}"


def field_rows() -> Iterator[str]:
    """Give a row for each field of a body, in the order of the chat's."""
    chat = [field.name for field in msgspec.structs.fields(ChatCompletionRequest)]
    completion = [field.name for field in msgspec.structs.fields(CompletionRequest)]
    yield "| Field | Chat | Completions |"
    yield "|---|---|---|"
    for name in dict.fromkeys([*chat, *completion]):
        status = REFUSED.get(name) or NO_EFFECT.get(name) or "yes"
        yield f"| `{name}` | {status if name in chat else ''} | {status if name in completion else ''} |"


def difference_rows() -> Iterator[str]:
    """Give an item for each difference that is allowed where answers are compared."""
    sys.path.insert(0, str(ROOT))
    module = import_module("tests.parity.mock.differences")

    for difference in module.DIFFERENCES:
        yield f"- {difference.reason}"


def limit_rows() -> Iterator[str]:
    """Give a row for each limit on what a client may send or hold."""
    yield "| What | Limit | Beyond it | Set by |"
    yield "|---|---|---|---|"
    for row in (*_connection_limits(), *_request_limits(), *_constraint_limits()):
        yield f"| {' | '.join(row)} |"


def _connection_limits() -> Iterator[tuple[str, str, str, str]]:
    options = ServerOptions(served_model_names=("",), model_root="")
    head = web.RequestHandler.__init__
    defaults = inspect.signature(head).parameters
    line, headers = defaults["max_line_size"].default, defaults["max_headers"].default
    yield (
        "the head of a request, or the first byte of a connection, arrives within",
        f"{connections.HEAD_TIMEOUT:g} s",
        "closed",
        "",
    )
    yield (
        "a connection may be idle after an answer for",
        f"{connections.KEEP_ALIVE:g} s",
        "closed",
        "",
    )
    yield "headers, each line of so many bytes", f"{headers} of {line:,}", "400", ""
    yield "a body arrives within", f"{options.body_timeout:g} s", "408", ""
    yield "bytes of a body", f"{options.max_body_size / MIB:g} MiB", "413, before it is read", ""
    yield "a packed body (`Content-Encoding`)", "is refused", "415", ""
    yield (
        "a client that reads nothing of what waits for it",
        f"{options.client_write_timeout:g} s",
        "cut off",
        "`--client-write-timeout`",
    )


def _request_limits() -> Iterator[tuple[str, str, str, str]]:
    yield (
        "samples that are answered at once, by one server process",
        f"{limits.DEFAULT_MAX_SEQUENCES:,}",
        "503",
        "`--max-concurrent-sequences`",
    )
    yield "samples that wait or run in the engines", "no limit", "503", "`--max-num-queued-reqs`"
    yield "prompt tokens without an answer yet", "no limit", "503", "`--max-num-queued-tokens`"
    yield "n, and `best_of`", f"{limits.DEFAULT_MAX_N:,}", "400", f"`{limits.MAX_N_VARIABLE}`"
    yield (
        "prompts of a completion",
        f"{limits.DEFAULT_MAX_PROMPTS:,}",
        "400",
        f"`{limits.MAX_PROMPTS_VARIABLE}`",
    )
    yield "arrays, objects and keys in a body", f"{body.MAX_NESTED:,}", "400", ""
    yield (
        "faults of a body that are looked for, and those that are told",
        f"{faults.MAX_COUNTED:,} and {faults.MAX_LISTED}",
        "",
        "",
    )
    yield (
        "characters of a text that is tokenized",
        f"{truncation.LONGEST_TEXT:,}, or more if the model reads more",
        "400",
        "",
    )
    yield (
        "messages of a conversation",
        f"one for each token that the model reads, or {chat.FEW_MESSAGES:,}",
        "400",
        "",
    )
    yield "stop strings", f"{shared.MAX_STOP_STRINGS}", "400", ""
    yield (
        "`logit_bias`, `allowed_token_ids`, `logprob_token_ids`",
        (
            f"{sampling.MAX_LOGIT_BIASES:,}, {sampling.MAX_ALLOWED_TOKEN_IDS:,} and "
            f"{sampling.MAX_LOGPROB_TOKEN_IDS}"
        ),
        "400",
        "",
    )
    yield (
        "`bad_words`, in sequences and in tokens",
        f"{bad_words.MAX_SEQUENCES} and {bad_words.MAX_TOKENS:,}",
        "400",
        "",
    )
    yield "`top_logprobs`", "20", "400", "`--max-logprobs`"
    yield "characters of an error message", f"{errors.LONGEST_MESSAGE:,}", "cut", ""


def _constraint_limits() -> Iterator[tuple[str, str, str, str]]:
    yield (
        "characters of a regex, of a grammar",
        (f"{assembly.LONGEST_REGEX:,} and {assembly.LONGEST_GRAMMAR:,}"),
        "400",
        "",
    )
    yield "work that a constraint is for its engine", "see compatibility", "400", ""
    own = TemplateLimits()
    yield "a template of a request: characters", f"{own.source:,}", "400", ""
    yield "time for each of its processes", f"{own.seconds:g} s", "400", ""
    yield (
        "memory, and text that comes out",
        f"{own.memory / MIB:g} and {own.output / MIB:g} MiB",
        "400",
        "",
    )
    yield "such processes at once", f"{own.at_once}", "they wait", ""


def tool_format_rows() -> Iterator[str]:
    """Describe every format of tool calls."""
    for form in _distinct(TOOL_FORMATS):
        yield from _described(form)
        # The example may have a fence of its own.
        yield from ("", "````text", form.example, "````", "", _enforced(form))
        yield from _differences(form)


def reasoning_format_rows() -> Iterator[str]:
    """Describe every format of reasoning."""
    for form in _distinct(REASONING_FORMATS):
        yield from _described(form)
        yield from _differences(form)


def _distinct(formats: Mapping[str, FormatT]) -> list[FormatT]:
    return sorted(
        {id(form): form for form in formats.values()}.values(), key=lambda form: form.names
    )


def _described(form: ToolFormat | ReasoningFormat) -> Iterator[str]:
    first, *others = (f"`{name}`" for name in form.names)
    yield f"### {first}"
    if others:
        yield f"\nAlso called {' and '.join(others)}."
    yield f"\n{form.summary}"
    yield f"\nModels: {', '.join(form.models)}."


def _enforced(form: ToolFormat) -> str:
    if form.grammar is not None:
        return "Required calls are enforced in this form."
    if form.forced_as_json:
        return "Required calls are enforced, and read, as JSON instead."
    return "Required calls are not enforced."


def _differences(form: ToolFormat | ReasoningFormat) -> Iterator[str]:
    if form.differences:
        yield "\nOther than in vLLM:\n"
        yield from (f"- {difference}" for difference in form.differences)
    yield ""


class Table(NamedTuple):
    """A table: its document, its name, and where its lines come from."""

    document: str
    name: str
    rows: Callable[[], Iterator[str]]


TABLES = (
    Table("docs/operations.md", "flags", flag_rows),
    Table("docs/security.md", "limits", limit_rows),
    Table("docs/compatibility.md", "fields", field_rows),
    Table("docs/compatibility.md", "differences", difference_rows),
    Table("docs/parsers.md", "tool formats", tool_format_rows),
    Table("docs/parsers.md", "reasoning formats", reasoning_format_rows),
)


def updated(text: str, table: Table) -> str:
    """Give a document with a table as it should be."""
    begin = f"<!-- Written by scripts/tables.py: {table.name} -->\n"
    end = f"<!-- {table.name}: end -->\n"
    before, _, rest = text.partition(begin)
    _, found, after = rest.partition(end)
    if not found:
        raise LookupError(f"{table.document} has no place for the {table.name}")
    rows = "\n".join(table.rows())
    return f"{before}{begin}\n{rows}\n\n{end}{after}"


def main() -> int:
    """Run the command line; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail when they are not up to date")
    check = parser.parse_args().check
    status = 0
    for table in TABLES:
        path = ROOT / table.document
        text = path.read_text()
        new = updated(text, table)
        if new != text and check:
            print(f"{table.document}: the {table.name} are old; run scripts/tables.py")
            status = 1
        elif new != text:
            path.write_text(new)
    return status


if __name__ == "__main__":
    sys.exit(main())
