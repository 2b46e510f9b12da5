"""Write the tables of the documents that can be read off the code.

    tables.py            bring them up to date
    tables.py --check    fail when they are not

Run it with a Python that has umbel-server.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import msgspec

from umbel_server.flags import make_parser
from umbel_server.requests import served
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest

ROOT = Path(__file__).resolve().parent.parent

NO_EFFECT: Mapping[str, str] = {
    "include_reasoning": "no effect without a reasoning parser",
    "length_penalty": "no effect without beam search",
    "mm_payload": "no effect on text",
    "parallel_tool_calls": "no effect without tools",
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
    "thinking_token_budget": "400, no reasoning parser",
}
"""What vLLM refuses for a text model with its default options."""


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
        in_chat = _status(name, served._CHAT) if name in chat else ""
        in_completion = _status(name, served._BOTH) if name in completion else ""
        yield f"| `{name}` | {in_chat} | {in_completion} |"


def _status(name: str, rows: Mapping[str, served.Test]) -> str:
    if name in rows:
        return "**400**, not served"
    return REFUSED.get(name) or NO_EFFECT.get(name) or "yes"


def difference_rows() -> Iterator[str]:
    """Give an item for each difference that is allowed where answers are compared."""
    sys.path.insert(0, str(ROOT))
    module = import_module("tests.parity.mock.differences")

    for difference in module.DIFFERENCES:
        yield f"- {difference.reason}"


class Table(NamedTuple):
    """A table: its document, its name, and where its lines come from."""

    document: str
    name: str
    rows: Callable[[], Iterator[str]]


TABLES = (
    Table("docs/operations.md", "flags", flag_rows),
    Table("docs/compatibility.md", "fields", field_rows),
    Table("docs/compatibility.md", "differences", difference_rows),
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
