"""Write the table of `umbel serve`'s flags into docs/operations.md.

    flags_table.py            bring the table up to date
    flags_table.py --check    fail when it is not

Run it with a Python that has umbel-server.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from umbel_server.flags import make_parser

DOCUMENT = Path(__file__).resolve().parent.parent / "docs" / "operations.md"
BEGIN = "<!-- Written by scripts/flags_table.py: begin -->\n"
END = "<!-- Written by scripts/flags_table.py: end -->\n"


def serve_parser() -> argparse.ArgumentParser:
    """Give the parser of `umbel serve`."""
    for action in make_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            parser: argparse.ArgumentParser = action.choices["serve"]
            return parser
    raise LookupError("the parser has no commands")


def table() -> str:
    """Give the table, one part per group of flags."""
    lines = ["| Flag | Meaning (default) |", "|---|---|"]
    for group in serve_parser()._action_groups:
        rows = list(_rows(group))
        if rows and group.title not in ("options", "positional arguments"):
            lines += [f"| **{group.title}** | |", *rows]
    return "\n".join(lines) + "\n"


def _rows(group: argparse._ArgumentGroup) -> Iterator[str]:
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


def updated(text: str) -> str:
    """Give the document with the table as it should be."""
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise LookupError(f"{DOCUMENT.name} has no place for the table")
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


def main() -> int:
    """Run the command line; gives the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="fail when it is not up to date")
    check = parser.parse_args().check
    text = DOCUMENT.read_text()
    new = updated(text)
    if new == text:
        return 0
    if check:
        print(f"{DOCUMENT.name}: the table of flags is old; run {Path(__file__).name}")
        return 1
    DOCUMENT.write_text(new)
    return 0


if __name__ == "__main__":
    sys.exit(main())
