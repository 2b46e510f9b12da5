"""Arguments as Gemma 4 writes them: objects with bare keys, and strings between marks of its own."""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from umbel_chat.parsers.gemma4_strings import QUOTE, goes_on, read_marked, read_quoted
from umbel_chat.parsers.parameters import Value
from umbel_chat.parsers.schema_types import STRING, items_of, property_of, types_of
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect, ignore

NO_SEPARATOR = re.compile(r"[^\s,]")
KEY_END = re.compile(r"[:=,{}\[\]]")
BARE_END = re.compile(r"[,}\]]")
BARE_END_IN_PARENTHESES = re.compile(r"[,}\])]")


class Level(NamedTuple):
    """An object or an array that is being read."""

    end: str
    schema: object


class Gemma4Arguments:
    """Writes the arguments of a call as JSON, as they come.

    `schema` is that of the parameters of the tool, None if it is not known, and `opening` the
    bracket before the arguments.  Bare values are what the schema says, or the JSON that they are,
    or strings.
    """

    __slots__ = ("_bare", "_ends", "_is_first", "_levels", "_root", "_sink", "_value")

    def __init__(self, sink: Sink, schema: Mapping[str, object] | None, opening: str) -> None:
        self._sink = sink
        self._root = schema or {}
        self._bare = BARE_END if opening == "{" else BARE_END_IN_PARENTHESES
        self._ends = "}]" if opening == "{" else "}])"
        self._levels: list[Level] = []
        # Whether nothing stands in the innermost level yet.
        self._is_first = True
        # The value that has no end yet.
        self._value: Value | None = None
        self._open("{", self._root)

    @property
    def is_complete(self) -> bool:
        """Whether the arguments were read to their end."""
        return not self._levels

    def read(self, source: Source) -> Steps[None]:
        """Read the arguments after what opens them, as far as they are some."""
        while self._levels:
            yield from source.up_to(NO_SEPARATOR, ignore)
            character = yield from source.peek()
            if character == "":
                return
            if character in self._ends:
                source.advance()
                self._close()
            elif self._levels[-1].end == "}":
                yield from self._read_member(source)
            else:
                self._separate()
                yield from self._read_value(source, items_of(self._levels[-1].schema, self._root))

    def end(self) -> None:
        """End what is open where a call ends."""
        self._end_value()
        while self._levels:
            self._close()

    def _open(self, character: str, schema: object) -> None:
        self._sink.arguments(character)
        self._levels.append(Level("}" if character == "{" else "]", schema))
        self._is_first = True

    def _close(self) -> None:
        self._sink.arguments(self._levels.pop().end)
        self._is_first = False

    def _separate(self) -> None:
        if not self._is_first:
            self._sink.arguments(", ")
        self._is_first = False

    def _end_value(self) -> None:
        if self._value is not None:
            self._value.end()
        self._value = None

    def _read_member(self, source: Source) -> Steps[None]:
        if (yield from source.take(QUOTE)):
            name, _ = yield from collect(lambda emit: source.until((QUOTE,), emit))
        else:
            name, _ = yield from collect(lambda emit: source.up_to(KEY_END, emit))
        yield from source.space()
        # In parentheses, some models write calls of Python.
        if not (yield from source.take(":", "=")):
            # What is no member is left out, with a bracket that would be found there again.
            if (yield from source.peek()) in ("{", "["):
                source.advance()
            return
        name = name.strip()
        self._separate()
        self._sink.arguments(f"{json.dumps(name, ensure_ascii=False)}: ")
        schema = property_of(self._levels[-1].schema, name, self._root)
        yield from self._read_value(source, schema)

    def _read_value(self, source: Source, schema: object) -> Steps[None]:
        yield from source.space()
        opening = yield from source.take(QUOTE, "{", "[")
        if opening == "{" or opening == "[":
            self._open(opening, schema)
            return
        types = types_of(schema, self._root)
        quoted = STRING if not types or "string" in types else types
        if opening == QUOTE:
            self._value = Value(self._sink, quoted)
            if (yield from read_marked(source, self._value.text, self._closers)):
                self._end_value()
            return
        if (first := (yield from source.peek())) and first in "\"'":
            text, types = (yield from read_quoted(source, self._closers)), quoted
        else:
            text = (yield from self._read_bare(source)).strip()
            if text.endswith(QUOTE) and text.count(QUOTE) == 1:
                text, types = text.removesuffix(QUOTE), quoted
        self._value = Value(self._sink, types)
        self._value.text(text)
        # A value may go on as long as nothing follows it.
        if (yield from source.peek()) != "":
            self._end_value()

    @property
    def _closers(self) -> str:
        """The characters that may follow a value."""
        return "," + self._levels[-1].end + self._ends[2:]

    def _read_bare(self, source: Source) -> Steps[str]:
        """Read a value that no mark begins; models forget the first of a string."""
        is_member = self._levels[-1].end == "}"
        text, _ = yield from collect(lambda emit: source.up_to(self._bare, emit))
        while is_member and (yield from source.peek()) == "," and (yield from goes_on(source)):
            source.advance()
            rest, _ = yield from collect(lambda emit: source.up_to(self._bare, emit))
            text += "," + rest
        return text
