"""Parameters that come one by one, written as one JSON object as they come."""

import json
from collections.abc import Mapping
from collections.abc import Set as AbstractSet

import msgspec

from umbel_chat.parsers.schema_types import STRING, json_of, property_of, types_of
from umbel_chat.parsers.sink import Sink

encode = msgspec.json.encode

ENVELOPES = frozenset({"arguments", "input"})


class Parameters:
    """Writes the parameters of a call as its arguments.

    `schema` is that of the parameters of the tool, None if it is not known.  `trims_newlines` says
    that a line break at either end of a value is part of the format.
    """

    __slots__ = ("_schema", "_sink", "_trims_newlines", "is_empty")

    def __init__(
        self, sink: Sink, schema: Mapping[str, object] | None, trims_newlines: bool = False
    ) -> None:
        self._sink = sink
        self._schema = schema or {}
        self._trims_newlines = trims_newlines
        self.is_empty = True
        """Whether there is no parameter yet."""

    def types_of(self, name: str) -> frozenset[str]:
        """Tell which types a parameter may have; none if the schema does not say."""
        return types_of(property_of(self._schema, name, self._schema), self._schema)

    def begin(self, name: str, types: AbstractSet[str] | None = None) -> "Value":
        """Begin a parameter; gives what takes its value, as text.

        `types` are those that it may have; without, they are what the schema says, or a string.
        """
        separator = "{" if self.is_empty else ", "
        self.is_empty = False
        self._sink.arguments(f"{separator}{json.dumps(name, ensure_ascii=False)}: ")
        if types is None:
            types = self.types_of(name) or STRING
        return Value(self._sink, types, self._trims_newlines)

    def begin_envelope(self, name: str) -> "Envelope | None":
        """Begin what may be all parameters in one, None if it is none.

        Some models write `arguments` or `input` where the parameters should be.
        """
        properties = property_of(self._schema, name, self._schema)
        if not self.is_empty or name not in ENVELOPES or properties is not None:
            return None
        return Envelope(self, name)

    def take_all(self, text: str) -> bool:
        """Take a JSON object of parameters that the schema tells of; says whether it is one."""
        try:
            members = json.loads(text)
        except (ValueError, RecursionError):
            return False
        if not isinstance(members, dict) or any(
            property_of(self._schema, name, self._schema) is None for name in members
        ):
            return False
        if members:
            self.is_empty = False
            self._sink.arguments(text.strip().removesuffix("}").rstrip())
        return True

    def end(self) -> None:
        """End the arguments."""
        if not self.is_empty:
            self._sink.arguments("}")


class Value:
    """Takes one value as text and writes it as JSON of one of some types.

    Strings are written as they come, others at their end: only then it is known what they are.
    """

    __slots__ = ("_held", "_is_begun", "_pieces", "_sink", "_streams", "_trims_newlines", "_types")

    def __init__(self, sink: Sink, types: AbstractSet[str], trims_newlines: bool = False) -> None:
        self._sink = sink
        self._types = types
        self._trims_newlines = trims_newlines
        self._streams = types == STRING
        self._is_begun = False
        # A line break that may be the last.
        self._held = ""
        self._pieces: list[str] = []
        if self._streams:
            sink.arguments('"')

    def text(self, text: str) -> None:
        """Append to the value."""
        if not text:
            return
        if self._trims_newlines:
            if not self._is_begun:
                text = text.removeprefix("\n")
            text = self._held + text
            self._held = "\n" if text.endswith("\n") else ""
            text = text.removesuffix("\n")
        self._is_begun = True
        if not self._streams:
            self._pieces.append(text)
        elif text:
            self._sink.arguments(encode(text)[1:-1].decode())

    def end(self) -> None:
        """End the value."""
        if self._streams:
            self._sink.arguments('"')
        else:
            self._sink.arguments(json_of("".join(self._pieces), self._types))


class Envelope:
    """Takes a value that may be all parameters in one."""

    __slots__ = ("_name", "_parameters", "_pieces")

    def __init__(self, parameters: Parameters, name: str) -> None:
        self._parameters = parameters
        self._name = name
        self._pieces: list[str] = []

    def text(self, text: str) -> None:
        """Append to the value."""
        self._pieces.append(text)

    def end(self) -> None:
        """End the value."""
        text = "".join(self._pieces)
        if not self._parameters.take_all(text):
            value = self._parameters.begin(self._name, frozenset())
            value.text(text)
            value.end()
