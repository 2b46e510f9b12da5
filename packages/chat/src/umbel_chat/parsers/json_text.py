"""JSON as a model writes it, read as it comes: the bytes are the model's own."""

import json
import re

from umbel_chat.parsers.source import Emit, Source, Steps, collect, ignore

WORD = re.compile(r"\w+")
PLAIN = re.compile(r'[^"\\]+')
BETWEEN = re.compile(r'[^"{}\[\]]+')
SCALAR = re.compile(r"[^\s,\]}\[{\":]+")


def json_value(source: Source, emit: Emit) -> Steps[bool]:
    """Read a JSON value as it stands; says whether it is complete.

    Only strings and brackets are looked at, so what is not quite JSON comes through as it is.
    """
    first = yield from source.peek()
    if first == '"':
        return (yield from _string(source, emit))
    if first == "{" or first == "[":
        return (yield from json_container(source, emit))
    number = yield from collect(lambda part: source.run(SCALAR, part))
    if number[0]:
        emit(number[0])
    # A number may go on as long as nothing follows it.
    return number[0] != "" and not source.is_empty


def json_document(source: Source, emit: Emit) -> Steps[bool]:
    """Read a JSON object that is all of a text; says whether it is complete.

    Whitespace around it and a Markdown fence are left out.  What is no object comes through as it
    is.
    """
    yield from source.space()
    is_fenced = yield from source.take("```")
    if is_fenced:
        yield from source.run(WORD, ignore)
        yield from source.space()
    is_complete = False
    if (yield from source.peek()) == "{":
        is_complete = yield from json_value(source, emit)
        yield from source.space()
    yield from source.rest(ignore if is_complete and is_fenced else emit)
    return is_complete


def json_container(source: Source, emit: Emit, depth: int = 0) -> Steps[bool]:
    """Read an object or an array, or what is left of one; says whether it is complete.

    `depth` is how many brackets are open.
    """
    while True:
        yield from source.run(BETWEEN, emit)
        character = yield from source.peek()
        if character == "":
            return False
        if character == '"':
            if not (yield from _string(source, emit)):
                return False
            continue
        source.advance()
        emit(character)
        depth += 1 if character in "{[" else -1
        if depth <= 0:
            return depth == 0


def _string(source: Source, emit: Emit) -> Steps[bool]:
    source.advance()
    emit('"')
    while True:
        yield from source.run(PLAIN, emit)
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
