"""Python literals as a model writes them, read as they come and given as JSON."""

import json
import re
from collections.abc import Callable
from types import MappingProxyType

from umbel_chat.parsers.python_strings import python_string
from umbel_chat.parsers.source import Emit, Source, Steps, collect

WORD_END = re.compile(r"[\s,()\[\]{}:='\"]")
DECIMAL = re.compile(r"([+-]?)(?=\.?[0-9])0*([1-9][0-9]*)?(\.[0-9]*)?([eE][+-]?[0-9]+)?")
OTHER_BASE = re.compile(r"[+-]?0[xXoObB][0-9a-fA-F]{1,32}")
CONSTANTS = MappingProxyType(
    {
        "True": "true",
        "False": "false",
        "None": "null",
        "true": "true",
        "false": "false",
        "null": "null",
    }
)
STRING_PREFIXES = frozenset({"r", "u", "f", "fr", "rf"})
CLOSINGS = MappingProxyType({"[": "]", "(": ")", "{": "}"})

DEEPEST = 64
"""How many brackets may be open within a literal."""


def python_value(source: Source, emit: Emit, depth: int = DEEPEST) -> Steps[bool]:
    """Read a literal; says whether it is complete.

    A word that is no literal comes through as it is, and so do the braces of an f-string.  Tuples
    and sets are arrays in JSON, and keys are strings.
    """
    yield from source.space()
    first = yield from source.peek()
    if first == "'" or first == '"':
        return (yield from python_string(source, emit))
    if first in CLOSINGS:
        return depth > 0 and (yield from _collection(source, emit, first, depth - 1))
    word, _ = yield from collect(lambda part: source.up_to(WORD_END, part))
    if word.lower() in STRING_PREFIXES and (yield from source.peek()) in ("'", '"'):
        return (yield from python_string(source, emit, is_raw="r" in word.lower()))
    if word:
        emit(_scalar(word))
    return word != ""


def _scalar(word: str) -> str:
    if word in CONSTANTS:
        return CONSTANTS[word]
    digits = word.replace("_", "")
    if match := DECIMAL.fullmatch(digits):
        sign, whole, fraction, exponent = (group or "" for group in match.groups())
        fraction = ".0" if fraction == "." else fraction
        return f"{sign.strip('+')}{whole or '0'}{fraction}{exponent}"
    try:
        return str(int(digits, 0)) if OTHER_BASE.fullmatch(digits) else word
    except ValueError:
        return word


def _collection(source: Source, emit: Emit, opening: str, depth: int) -> Steps[bool]:
    closing = CLOSINGS[opening]
    source.advance()
    yield from source.space()
    if (yield from source.take(closing)):
        emit("{}" if opening == "{" else "[]")
        return True
    if opening == "[":
        emit("[")
        if not (yield from python_value(source, emit, depth)):
            return False
        return (yield from _items(source, emit, python_value, "]", "]", depth))
    # What comes first tells a dict from a set, and a tuple from a value in brackets.
    first, complete = yield from collect(lambda part: python_value(source, part, depth))
    yield from source.space()
    if complete and opening == "{" and (yield from source.take(":")):
        emit(f"{{{_key(first)}: ")
        if not (yield from python_value(source, emit, depth)):
            return False
        return (yield from _items(source, emit, _entry, "}", "}", depth))
    if complete and opening == "(" and (yield from source.take(")")):
        emit(first)
        return True
    emit(f"{'[' if complete else opening}{first}")
    return complete and (yield from _items(source, emit, python_value, closing, "]", depth))


def _items(
    source: Source,
    emit: Emit,
    read: Callable[[Source, Emit, int], Steps[bool]],
    closing: str,
    end: str,
    depth: int,
) -> Steps[bool]:
    """Read what follows the first item of a collection, to its end, which is `end` in JSON."""
    while (separator := (yield from next_item(source, closing))) == ",":
        emit(", ")
        if not (yield from read(source, emit, depth)):
            return False
    if separator:
        emit(end)
    return separator != ""


def next_item(source: Source, closing: str) -> Steps[str]:
    """Read past a comma or past the end of a collection; gives which, "" if there is neither.

    A comma before the end belongs to it.
    """
    yield from source.space()
    separator = yield from source.take(",", closing)
    if separator == ",":
        yield from source.space()
        separator = (yield from source.take(closing)) or separator
    return separator


def _entry(source: Source, emit: Emit, depth: int) -> Steps[bool]:
    key, complete = yield from collect(lambda part: python_value(source, part, depth))
    yield from source.space()
    if not complete or not (yield from source.take(":")):
        emit(key)
        return False
    emit(f"{_key(key)}: ")
    return (yield from python_value(source, emit, depth))


def _key(text: str) -> str:
    return text if text.startswith('"') else json.dumps(text)
