"""JSON as a model writes it, read as it comes: the bytes are the model's own."""

import json
import re

from umbel_chat.parsers.source import Emit, Source, Steps, collect, ignore

WORD_END = re.compile(r"\W")
PLAIN_END = re.compile(r'["\\]')
STRUCTURE = re.compile(r'["{}\[\]]')
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
    find, in_string = STRUCTURE.search, False
    while True:
        text, place = source.unread, 0
        while (match := find(text, place)) is not None:
            place, character = match.end(), match.group()
            if character == '"':
                in_string = not in_string
                find = PLAIN_END.search if in_string else STRUCTURE.search
            elif character == "\\":
                # What it escapes may not be there yet.
                if place == len(text) and not source.ended:
                    place -= 1
                    break
                place += 1
            else:
                depth += 1 if character in "{[" else -1
                if depth <= 0:
                    source.in_string = False
                    source.read(place, emit)
                    return depth == 0
        source.read(len(text) if match is None else place, emit)
        source.in_string = in_string
        if source.ended:
            return False
        yield from source.wait(find, emit)


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
