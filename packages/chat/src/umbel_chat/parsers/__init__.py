"""Parsers of what models write, reasoning and tool calls, and what parsers are made of."""

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Emit, Source, Steps, collect, ignore, within

__all__ = [
    "REASONING_FORMATS",
    "TOOL_FORMATS",
    "CallGrammar",
    "Emit",
    "ReasoningFormat",
    "Schemas",
    "Sink",
    "Source",
    "Steps",
    "ToolFormat",
    "collect",
    "ignore",
    "within",
]
