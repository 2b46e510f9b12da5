"""Faults: what is wrong with a body, field by field, and the error that lists it.

The form is that of vllm/entrypoints/serve/exception_handling/handlers/validation.py: one line per
fault, a Python dict with the kind, the place, a message and a short form of the value.
"""

from collections.abc import Mapping

import msgspec

from umbel_server.errors import ApiError, display, invalid_body

MAX_LISTED = 10
"""How many faults are listed; the others are only counted."""

MAX_COUNTED = 1000
"""How many faults are looked for: whoever reads a body with more of them stops there."""

MAX_VALUE_CHARS = 200
MAX_LINE_CHARS = 1000
TRUNCATED = "...[truncated]"

Location = tuple[str | int, ...]
"""The way to a value from the body down: field names and indexes."""


class Fault(msgspec.Struct, frozen=True):
    """One thing that is wrong.

    `kind` is one of pydantic's error types, such as "int_parsing".  `context` has the limits that
    the value breaks, under pydantic's names.
    """

    kind: str
    location: Location
    message: str
    value: object
    context: Mapping[str, object] | None = None


class Faults:
    """The faults of one body: up to a limit all are counted, and the first few are kept."""

    __slots__ = ("count", "listed")

    def __init__(self) -> None:
        self.count = 0
        self.listed: list[Fault] = []

    @property
    def enough(self) -> bool:
        """Whether there is no point in looking for more."""
        return self.count >= MAX_COUNTED

    def add(
        self,
        kind: str,
        location: Location,
        message: str,
        value: object,
        context: Mapping[str, object] | None = None,
    ) -> None:
        """Note a fault."""
        self.count += 1
        if len(self.listed) < MAX_LISTED:
            self.listed.append(Fault(kind, location, message, value, context))

    def extend(self, other: "Faults") -> None:
        """Note the faults that were found elsewhere."""
        self.count = min(self.count + other.count, MAX_COUNTED)
        self.listed += other.listed[: MAX_LISTED - len(self.listed)]

    def error(self) -> ApiError:
        """Give the error that lists them; its param is the place of the first."""
        label = "error" if self.count == 1 else "errors"
        least = "At least " if self.enough else ""
        lines = [f"{least}{self.count} validation {label}:"]
        lines += [f"  {_line(fault)}" for fault in self.listed]
        if self.count > len(self.listed):
            lines.append(f"  ...and {least.lower()}{self.count - len(self.listed)} more {label}")
        return invalid_body("\n".join(lines), dotted(self.listed[0].location))


def dotted(location: Location) -> str:
    """Write a location with dots: `body.stop.0`."""
    return ".".join(str(part) for part in location)


def _line(fault: Fault) -> str:
    entry: dict[str, object] = {
        "type": fault.kind,
        "loc": dotted(fault.location),
        "msg": fault.message,
        "input": summary(fault.value),
    }
    if fault.context is not None:
        entry["ctx"] = dict(fault.context)
    return _cut(str(entry), MAX_LINE_CHARS)


def summary(value: object) -> str:
    """Describe a value that may be large: containers by their size, text by its beginning."""
    if isinstance(value, (list, dict)):
        return f"<{type(value).__name__} of {len(value)} items>"
    return _cut(display(value), MAX_VALUE_CHARS)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + TRUNCATED
