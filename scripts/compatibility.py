"""Write the tables of docs/compatibility.md that can be read off the code.

    compatibility.py            bring the tables up to date
    compatibility.py --check    fail when they are not

Run it with a Python that has umbel-server.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from umbel_server.requests import served
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "compatibility.md"

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


def field_table() -> Iterator[str]:
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


TABLES: Mapping[str, Callable[[], Iterator[str]]] = {"fields": field_table}


def updated(text: str) -> str:
    """Give the document with its tables as they should be."""
    for name, table in TABLES.items():
        begin = f"<!-- Written by scripts/compatibility.py: {name} -->\n"
        end = f"<!-- {name}: end -->\n"
        before, _, rest = text.partition(begin)
        _, found, after = rest.partition(end)
        if not found:
            raise LookupError(f"{DOCUMENT.name} has no place for the {name}")
        rows = "\n".join(table())
        text = f"{before}{begin}\n{rows}\n\n{end}{after}"
    return text


def main() -> int:
    """Run the command line; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail when they are not up to date")
    check = parser.parse_args().check
    text = DOCUMENT.read_text()
    new = updated(text)
    if new == text:
        return 0
    if check:
        print(f"{DOCUMENT.name}: its tables are old; run {Path(__file__).name}")
        return 1
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
