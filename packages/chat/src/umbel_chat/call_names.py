"""Names of tools that calls in the format of a model can have."""

import re
from collections.abc import Sequence

from umbel_chat.errors import InvalidChatError
from umbel_chat.events import ContentDelta, ToolCallStart
from umbel_chat.parsers.formats import ToolFormat
from umbel_chat.parsers.grammar import CallGrammar, written_call
from umbel_chat.parsers.sample import SampleParser
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Markers, Source, Steps
from umbel_chat.tools import Tool

PLAIN = re.compile(r"[A-Za-z0-9_.-]+")
"""Names that every format can have."""


def check_names(tool_format: ToolFormat, tools: Sequence[Tool]) -> None:
    """Refuse tools that must be called and whose calls could not be read; raises InvalidChatError."""
    grammar = tool_format.grammar
    for tool in tools:
        name = tool.name
        if PLAIN.fullmatch(name):
            continue
        if not name or (grammar is not None and not _is_read(tool_format, grammar, name)):
            raise InvalidChatError(
                f"A call of the tool {name!r} cannot be written in the format of this model. Names of "
                "letters, digits, '_', '-' and '.' always can.",
                "tools",
            )


def _is_read(tool_format: ToolFormat, grammar: CallGrammar, name: str) -> bool:
    """Tell whether a call of a tool is read as one."""

    def read(source: Source, sink: Sink) -> Steps[None]:
        yield from tool_format.parse(source, sink, {name: {}})

    parser = SampleParser(Source(Markers()), Sink(), read)
    events = parser.feed(written_call(grammar, name), []) + parser.finish()
    names = [event.name for event in events if isinstance(event, ToolCallStart)]
    return names == [name] and not any(isinstance(event, ContentDelta) for event in events)
