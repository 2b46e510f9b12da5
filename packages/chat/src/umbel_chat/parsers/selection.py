"""Formats chosen by name, by a model's files, or brought along."""

import importlib.util
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from umbel_chat.errors import ChatError
from umbel_chat.parsers.detection import (
    REASONING_RULES,
    TOOL_RULES,
    ModelFacts,
    Rule,
    detect,
)
from umbel_chat.parsers.formats import ReasoningFormat, ToolFormat
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS

FormatT = TypeVar("FormatT", ToolFormat, ReasoningFormat)

NONE = "none"
"""The name of no format."""

ENTRY_POINTS = "umbel.parsers"
"""The group of entry points that name the formats of a package."""

FORMAT_KINDS = (ToolFormat, ReasoningFormat)


class FormatError(ChatError):
    """A format that was asked for cannot be had."""


class Formats(msgspec.Struct, frozen=True):
    """All formats there are, by name."""

    tools: Mapping[str, ToolFormat] = TOOL_FORMATS
    reasoning: Mapping[str, ReasoningFormat] = REASONING_FORMATS

    def with_more(self, *found: object) -> "Formats":
        """Give these formats and those among some values, which come first under their names."""
        tools, reasoning = dict(self.tools), dict(self.reasoning)
        for value in found:
            if isinstance(value, ToolFormat):
                tools |= dict.fromkeys(value.names, value)
            elif isinstance(value, ReasoningFormat):
                reasoning |= dict.fromkeys(value.names, value)
        return Formats(tools, reasoning)


def installed_formats() -> Formats:
    """Give umbel's formats and those of installed packages; raises FormatError."""
    values: list[object] = []
    for point in metadata.entry_points(group=ENTRY_POINTS):
        name = f"the parser {point.name} of {point.value}"
        try:
            value = point.load()
        except Exception as error:
            raise FormatError(f"{name} fails: {error!r}") from error
        if not isinstance(value, FORMAT_KINDS):
            raise FormatError(f"{name} is no ToolFormat and no ReasoningFormat")
        values.append(value)
    return Formats().with_more(*values)


def formats_of_file(path: Path) -> list[object]:
    """Run a Python file and give the formats that it defines; raises FormatError."""
    spec = importlib.util.spec_from_file_location(f"{ENTRY_POINTS}.{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FormatError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    # What looks up the module of a class, as dataclasses do, looks here.
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise FormatError(f"{path} fails: {error!r}") from error
    found: list[object] = [
        value for value in vars(module).values() if isinstance(value, FORMAT_KINDS)
    ]
    if not found:
        raise FormatError(f"{path} defines no ToolFormat and no ReasoningFormat")
    return found


class Choice(msgspec.Struct, Generic[FormatT], frozen=True):
    """A format, by the name that it was found under, and why; None when nothing is looked for."""

    format: FormatT | None
    reason: str
    name: str = NONE


def choose_tool_format(name: str, formats: Formats, facts: ModelFacts) -> Choice[ToolFormat]:
    """Choose how a model writes calls; see `_choose`."""
    return _choose(name, formats.tools, TOOL_RULES, facts, "tool call parser")


def choose_reasoning_format(
    name: str, formats: Formats, facts: ModelFacts
) -> Choice[ReasoningFormat]:
    """Choose how a model writes reasoning; see `_choose`."""
    return _choose(name, formats.reasoning, REASONING_RULES, facts, "reasoning parser")


def _choose(
    name: str,
    formats: Mapping[str, FormatT],
    rules: tuple[Rule, ...],
    facts: ModelFacts,
    kind: str,
) -> Choice[FormatT]:
    """Choose a format by its name, by "auto" what the model's files say, by "none" none.

    Raises FormatError for a name that is not known.
    """
    if name.lower() == NONE:
        return Choice(None, "as asked")
    if name.lower() == "auto":
        found = detect(rules, facts)
        if found is None:
            return Choice(None, "nothing tells of one")
        return Choice(formats[found[0]], found[1], found[0])
    if name not in formats:
        known = ", ".join(sorted(formats))
        raise FormatError(f"there is no {kind} {name!r}; there are auto, none, {known}")
    return Choice(formats[name], "as asked", name)
