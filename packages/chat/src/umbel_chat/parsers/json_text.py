"""JSON as a model writes it, read as it comes: the bytes are the model's own."""

import json
import re

from umbel_chat.parsers.source import Emit, Source, Steps, collect, ignore, is_in_none

WORD_END = re.compile(r"\W")
PLAIN_END = re.compile(r'["\\]')
find_string_end = PLAIN_END.search
find_structure = re.compile(r'["{}\[\]]').search
SCALAR_END = re.compile(r"[\s,\]}\[{\":]")


def json_value(source: Source, emit: Emit) -> Steps[bool]:
    """Read a JSON value as it stands; says whether it is complete.

    Only strings and brackets are looked at, so what is not quite JSON comes through as it is.
    """
    first = yield from source.peek()
    if first == '"':
        return (yield from _string(source, emit))
    if first == "{" or first == "[":
        return (yield from json_container(source, emit))
    number = yield from collect(lambda part: source.up_to(SCALAR_END, part))
    if number[0]:
        emit(number[0])
    # A number may go on as long as nothing follows it.
    return number[0] != "" and not source.is_empty


def json_document(source: Source, emit: Emit) -> Steps[bool]:
    """Read a JSON object that is all of a text; says whether it is complete.

    Whitespace around it and a Markdown fence are left out.  An object may be written as a string;
    what is no object comes through as it is.
    """
    yield from source.space()
    is_fenced = yield from source.take("```")
    if is_fenced:
        yield from source.up_to(WORD_END, ignore)
        yield from source.space()
    is_complete = False
    if (yield from source.peek()) == "{":
        is_complete = yield from json_value(source, emit)
        yield from source.space()
    elif (yield from source.peek()) == '"':
        text, is_complete = yield from collect(lambda part: _string(source, part))
        inner = decode_string(text) if is_complete else None
        emit(inner if inner is not None and inner.lstrip().startswith("{") else text)
    yield from source.rest(ignore if is_complete and is_fenced else emit)
    return is_complete


def json_container(source: Source, emit: Emit, depth: int = 0) -> Steps[bool]:
    """Read an object or an array, or what is left of one; says whether it is complete.

    `depth` is how many brackets are open.
    """
    # In one piece, strings and all: for each token of the arguments of a call it is run.
    scan = ContainerScan(depth)
    source.is_in_string = scan.is_in_string
    while True:
        text = source.unread
        end = scan.find(text)
        source.read(len(text) if end is None else abs(end), emit)
        if end is not None:
            source.is_in_string = is_in_none
            return end > 0
        if source.ended:
            return False
        yield from source.wait(scan.find, emit)


class ContainerScan:
    """Finds where an object or an array ends, in text that comes in pieces."""

    __slots__ = ("_depth", "_is_escaped", "_search")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._search = find_structure
        self._is_escaped = False

    def is_in_string(self) -> bool:
        """Say whether what was read ends in the midst of a string."""
        return self._search is find_string_end

    def find(self, text: str) -> int | None:
        """Give the place in the next piece after the last bracket, None if it is further on.

        The place is negative if more brackets are closed than were open.  The piece that has it may
        be shown again.
        """
        if not text:
            return None
        depth, search = self._depth, self._search
        place = 1 if self._is_escaped else 0
        while (match := search(text, place)) is not None:
            place, character = match.end(), match.group()
            if character == '"':
                search = find_string_end if search is find_structure else find_structure
            elif character == "\\":
                place += 1
            else:
                depth += 1 if character in "{[" else -1
                if depth <= 0:
                    return place if depth == 0 else -place
        self._depth, self._search, self._is_escaped = depth, search, place > len(text)
        return None


def _string(source: Source, emit: Emit) -> Steps[bool]:
    source.advance()
    emit('"')
    while True:
        yield from source.up_to(PLAIN_END, emit)
        character = yield from source.peek()
        if character == "":
            return False
        source.advance()
        emit(character)
        if character == '"':
            return True
        escaped = yield from source.peek()
        if escaped == "":
            return False
        source.advance()
        emit(escaped)


def json_string(source: Source) -> Steps[str | None]:
    """Read a JSON string; gives what it says, None if there is none or it is not complete."""
    if (yield from source.peek()) != '"':
        return None
    text, complete = yield from collect(lambda emit: _string(source, emit))
    return decode_string(text) if complete else None


def decode_string(text: str) -> str | None:
    """Give what a JSON string says, None if it is none; control characters may stand in it."""
    try:
        value = json.loads(text, strict=False)
    except ValueError:
        return None
    return value if isinstance(value, str) else None
