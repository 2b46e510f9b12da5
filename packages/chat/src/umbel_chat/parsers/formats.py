"""The formats in which models write reasoning and tool calls."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps

Schemas: TypeAlias = Mapping[str, Mapping[str, object]]
"""The tools of a request: the JSON schema of the parameters by the name of the tool."""


Parse: TypeAlias = Callable[[Source, Sink, Schemas], Steps[None]]
"""Reads an answer, or what comes after its reasoning, to the end."""


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models writes tool calls.

    `names` are those it is chosen by, vLLM's first.  `parse` reads a whole answer after the
    reasoning: content and calls; with `reads_reasoning` it reads that, too.  `starts` are the markers with which calls begin, `markers` all
    that may be tokens; each is a token where the tokenizer has it as one.  `trims_content` says that
    whitespace before a call is part of the format.  `summary`, `models`, `example` and
    `differences` (from vLLM's parser of the same name) are for readers.
    """

    names: tuple[str, ...]
    parse: Parse
    reads_reasoning: bool = False
    starts: tuple[str, ...]
    markers: tuple[str, ...] = ()
    trims_content: bool = True
    summary: str
    models: tuple[str, ...]
    example: str
    differences: tuple[str, ...] = ()


class ReasoningFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models marks its reasoning.

    `start` and `end` stand around it.  `begins_open` says that an answer whose prompt tells nothing
    begins with reasoning, even without the first marker.  `interrupts` says that a tool call ends
    reasoning without a marker.  Where reasoning does not stand before the answer, but among its
    parts, `parse` reads an answer as a whole, and `markers` are all that may be tokens.
    """

    names: tuple[str, ...]
    start: str
    end: str
    begins_open: bool = True
    interrupts: bool = False
    trims_reasoning: bool = False
    parse: Parse | None = None
    markers: tuple[str, ...] = ()
    summary: str
    models: tuple[str, ...]
    differences: tuple[str, ...] = ()
