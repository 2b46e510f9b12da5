"""Tool calls that are JSON objects: `{"name": ..., "arguments": {...}}`."""

import re
from collections.abc import Container
from typing import Literal

from umbel_chat.parsers.json_text import decode_string, json_container, json_string, json_value
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import LONGEST_WAIT, Source, Steps, collect, ignore

BRACKET = re.compile(r"[{}\[\]]")
NAME_STOP = re.compile(r'[{}\[\],"]')
BEFORE_NAME = re.compile(r'\s*(?:\{[^{}\[\],"]*(?:"[^{}\[\],"]*){0,3})?')
NAME = re.compile(r'\s*\{\s*"name"\s*:\s*"([^"\\]+)"')
BEFORE_ARGUMENTS = re.compile(r"[^{}\[\]]*")
ARGUMENTS = re.compile(r'\s*,\s*"(?:arguments|parameters)"\s*:\s*(?=\{)')

ARGUMENT_KEYS = frozenset({"arguments", "parameters"})
BARE_KEYS = ARGUMENT_KEYS | {"name", "type", "id"}


class JsonCall:
    """Reads one call that is a JSON object, its keys in any order.

    The call begins for the sink as soon as its name is known.  With `tools`, nothing but its keys
    says that the object is a call: then it has a name that is one of these, arguments that are an
    object, and little else before both, and begins when both are known.
    """

    __slots__ = (
        "_arguments",
        "_name",
        "_sink",
        "_tools",
        "is_complete",
        "is_other",
        "is_started",
    )

    def __init__(self, sink: Sink, tools: Container[str] | None = None) -> None:
        self._sink = sink
        self._tools = tools
        self._name: str | None = None
        self._arguments: str | None = None
        self.is_started = False
        """Whether the sink knows of the call; what is no call is for the caller to deal with."""
        self.is_complete = False
        """Whether the object was read to its end."""
        self.is_other = False
        """Whether reading ended in the midst of an object that may be good JSON, but is no call."""

    def read(self, source: Source) -> Steps[None]:
        """Read the object as far as it is one."""
        head = yield from self._read_head(source)
        if head == "arguments":
            if not (yield from json_container(source, self._sink.arguments)):
                return
        elif not head:
            yield from source.space()
            if not (yield from source.take("{")) or not (yield from self._read_member(source)):
                return
        separator = yield from _next(source)
        while separator == ",":
            if not (yield from self._read_member(source)):
                return
            separator = yield from _next(source)
        self.is_complete = separator == "}"

    def _read_member(self, source: Source) -> Steps[bool]:
        """Read a key and its value, or nothing before the end of the object."""
        yield from source.space()
        if (yield from source.peek()) == "}":
            return True
        key = yield from json_string(source)
        yield from source.space()
        if key is None or not (yield from source.take(":")):
            return False
        yield from source.space()
        return (yield from self._read_value(source, key))

    def _read_head(self, source: Source) -> Steps[Literal["", "name", "arguments"]]:
        """Read the name, and what is before the arguments, where they come first, as nearly always.

        Says how far that goes; nothing is read where it is otherwise.
        """
        # An object that may be no call must not wait.
        if self._tools is None and (yield from _waits(source, BEFORE_NAME, NAME_STOP)):
            match = NAME.match(source.unread)
            if match is not None:
                self._name = match[1]
                source.read(match.end(), ignore)
                self._start(source)
                if (yield from _waits(source, BEFORE_ARGUMENTS, BRACKET)):
                    match = ARGUMENTS.match(source.unread)
                    if match is not None:
                        self._arguments = ""
                        source.read(match.end(), ignore)
                        return "arguments"
                return "name"
        return ""

    def _read_value(self, source: Source, key: str) -> Steps[bool]:
        if self._tools is not None and not self.is_started and key not in BARE_KEYS:
            self.is_other = True
            return False
        if key == "name" and not self.is_started:
            return (yield from self._read_name(source))
        if key in ARGUMENT_KEYS and self._arguments is None:
            return (yield from self._read_arguments(source))
        return (yield from json_value(source, ignore))

    def _read_name(self, source: Source) -> Steps[bool]:
        self._name = yield from json_string(source)
        if self._tools is not None and self._name not in self._tools:
            self.is_other = self._name is not None
            return False
        if self._name and (self._arguments is not None or self._tools is None):
            self._start(source)
        return self._name is not None

    def _read_arguments(self, source: Source) -> Steps[bool]:
        is_object = (yield from source.peek()) == "{"
        self._arguments = ""
        if self._name and not self.is_started and (is_object or self._tools is None):
            self._start(source)
        if self.is_started and is_object:
            return (yield from json_value(source, self._sink.arguments))
        text, complete = yield from collect(lambda emit: json_value(source, emit))
        if self._tools is not None and not is_object and text != "null":
            self.is_other = complete
            return False
        self._take_arguments(text, complete)
        if self._name and not self.is_started:
            self._start(source)
        return complete

    def _take_arguments(self, text: str, complete: bool) -> None:
        """Take arguments that were read as a whole; some models write them as a JSON string."""
        if text.startswith('"') and complete:
            decoded = decode_string(text)
            text = text if decoded is None else decoded
        self._arguments = "" if text == "null" else text
        if self.is_started and self._arguments:
            self._sink.arguments(self._arguments)

    def _start(self, source: Source) -> None:
        self.is_started = True
        # What is a call is not needed as text.
        source.forget()
        self._sink.start_call(self._name or "")
        if self._arguments:
            self._sink.arguments(self._arguments)


def _waits(source: Source, before: re.Pattern[str], stop: re.Pattern[str]) -> Steps[bool]:
    """Wait while there is only text that comes before something; says whether there is more."""
    while not source.ended and before.fullmatch(source.unread):
        if len(source.unread) >= LONGEST_WAIT:
            return False
        yield from source.wait_while(before.fullmatch, stop.search)
    return True


def _next(source: Source) -> Steps[str]:
    """Read past what follows a member; gives it."""
    yield from source.space()
    return (yield from source.take(",", "}"))


def json_calls(source: Source, sink: Sink, opening: str) -> Steps[bool]:
    """Read calls that are the objects of an array; says whether the text ended in a call.

    `opening` was read and ends with the bracket.  It is content if no call follows, and so is all
    that is no call.
    """
    separator = ","
    source.keep()
    while separator == ",":
        call = JsonCall(sink)
        yield from call.read(source)
        text = source.kept()
        if not call.is_started:
            sink.content(opening + text)
            return False
        if not call.is_complete and not (yield from source.peek()):
            return True
        sink.end_call()
        opening = ""
        source.keep()
        separator = yield from _separator(source)
    source.kept()
    return False


def _separator(source: Source) -> Steps[str]:
    """Read past a comma or the end of an array, and past a comma at the end."""
    yield from source.space()
    separator = yield from source.take(",", "]")
    if separator == ",":
        yield from source.space()
        if (yield from source.take("]")) or not (yield from source.peek()):
            return "]"
    return separator
