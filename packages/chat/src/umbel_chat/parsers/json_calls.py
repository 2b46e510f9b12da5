"""Tool calls that are JSON objects: `{"name": ..., "arguments": {...}}`."""

from umbel_chat.parsers.json_text import decode_string, json_string, json_value
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect, ignore

ARGUMENT_KEYS = frozenset({"arguments", "parameters"})


class JsonCall:
    """Reads one call that is a JSON object, its keys in any order.

    The call begins for the sink as soon as its name is known.  With `bare`, nothing but its keys
    says that the object is a call, so it begins when there are arguments, too.
    """

    __slots__ = ("_arguments", "_bare", "_name", "_sink", "is_complete", "is_started")

    def __init__(self, sink: Sink, bare: bool = False) -> None:
        self._sink = sink
        self._bare = bare
        self._name: str | None = None
        self._arguments: str | None = None
        self.is_started = False
        """Whether the sink knows of the call; what is no call is for the caller to deal with."""
        self.is_complete = False
        """Whether the object was read to its end."""

    def read(self, source: Source) -> Steps[None]:
        """Read the object as far as it is one."""
        yield from source.space()
        if not (yield from source.take("{")):
            return
        separator = ","
        while separator == ",":
            yield from source.space()
            if (yield from source.take("}")):
                break
            key = yield from json_string(source)
            yield from source.space()
            if key is None or not (yield from source.take(":")):
                return
            yield from source.space()
            if not (yield from self._read_value(source, key)):
                return
            yield from source.space()
            separator = yield from source.take(",", "}")
            if not separator:
                return
        self.is_complete = True

    def _read_value(self, source: Source, key: str) -> Steps[bool]:
        if key == "name" and not self.is_started:
            self._name = yield from json_string(source)
            if self._name and (self._arguments is not None or not self._bare):
                self._start()
            return self._name is not None
        if key not in ARGUMENT_KEYS or self._arguments is not None:
            return (yield from json_value(source, ignore))
        self._arguments = ""
        if self._name and not self.is_started:
            self._start()
        first = yield from source.peek()
        if first == "{" and self.is_started:
            return (yield from json_value(source, self._sink.arguments))
        text, complete = yield from collect(lambda emit: json_value(source, emit))
        self._take_arguments(text, complete)
        return complete

    def _take_arguments(self, text: str, complete: bool) -> None:
        """Take arguments that were read as a whole; some models write them as a JSON string."""
        if text.startswith('"') and complete:
            text = decode_string(text) or ""
        self._arguments = "" if text == "null" else text
        if self.is_started and self._arguments:
            self._sink.arguments(self._arguments)

    def _start(self) -> None:
        self.is_started = True
        self._sink.start_call(self._name or "")
        if self._arguments:
            self._sink.arguments(self._arguments)
