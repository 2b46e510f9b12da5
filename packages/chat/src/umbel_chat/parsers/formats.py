"""The formats in which models write reasoning and tool calls."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import msgspec

from umbel_chat.answer import CallIdStyle
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps

Schemas: TypeAlias = Mapping[str, Mapping[str, object]]
"""The tools of a request: the JSON schema of the parameters by the name of the tool."""


Parse: TypeAlias = Callable[[Source, Sink, Schemas], Steps[None]]
"""Reads an answer, or what comes after its reasoning, to the end."""


class ToolFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models writes tool calls.

    `names` are those it is chosen by, vLLM's first.  `parse` reads a whole answer after the
    reasoning: content and calls; with `reads_reasoning` it reads that, too.  `starts` are the markers
    with which calls begin, `markers` all that may be tokens; each is a token where the tokenizer has
    it as one.  `trims_content` says that whitespace before a call is part of the format.  `grammar`
    is how calls are enforced; without one, calls that must be are enforced, and read, as JSON if
    `forced_as_json`.  `call_ids` is what ids of calls look like.  `summary`, `models`, `example` and
    `differences` (from vLLM's parser of the same name) are for readers.
    """

    names: tuple[str, ...]
    parse: Parse
    reads_reasoning: bool = False
    starts: tuple[str, ...]
    markers: tuple[str, ...] = ()
    trims_content: bool = True
    grammar: CallGrammar | None = None
    forced_as_json: bool = True
    call_ids: CallIdStyle = "vllm"
    summary: str
    models: tuple[str, ...]
    example: str
    differences: tuple[str, ...] = ()


class ReasoningFormat(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models marks its reasoning.

    `start` and `end` stand around it; `label` is text after the former that belongs to it, and
    `other_starts` and `other_ends` are how some models write them instead.  `begins_open` says that
    an answer whose prompt tells nothing begins with reasoning, even without the first marker.
    `interrupts` says that a tool call ends reasoning without a marker, `on_request` that there is
    none unless a request asks for it.  Where reasoning
    does not stand before the answer, but among its parts, `parse` reads an answer as a whole, and
    `markers` are all that may be tokens.
    """

    names: tuple[str, ...]
    start: str
    end: str
    label: str = ""
    other_starts: tuple[str, ...] = ()
    other_ends: tuple[str, ...] = ()
    begins_open: bool = True
    interrupts: bool = False
    on_request: bool = False
    trims_reasoning: bool = False
    parse: Parse | None = None
    markers: tuple[str, ...] = ()
    summary: str
    models: tuple[str, ...]
    differences: tuple[str, ...] = ()

    @property
    def starts(self) -> tuple[str, ...]:
        """The markers of which one begins reasoning."""
        return (self.start, *self.other_starts)

    @property
    def ends(self) -> tuple[str, ...]:
        """The markers of which one ends reasoning."""
        return (self.end, *self.other_ends)
