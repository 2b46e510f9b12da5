"""Strings of Python as a model writes them, read as they come and given as JSON."""

import json
import re
from types import MappingProxyType

from umbel_chat.parsers.source import Emit, Source, Steps

PLAIN_END = re.compile(r"['\"\\]")
ESCAPES = MappingProxyType(
    {
        "\n": "",
        "\\": "\\\\",
        "'": "'",
        '"': '\\"',
        "a": "\\u0007",
        "b": "\\b",
        "f": "\\f",
        "n": "\\n",
        "r": "\\r",
        "t": "\\t",
        "v": "\\u000b",
    }
)
HEXADECIMAL = MappingProxyType({"x": 2, "u": 4, "U": 8})
OCTAL_DIGITS = "01234567"
HEXADECIMAL_DIGITS = "0123456789abcdefABCDEF"


def python_string(source: Source, emit: Emit, is_raw: bool = False) -> Steps[bool]:
    """Read a string; says whether it is complete.

    It may go over several lines whatever its quotes: models write it so.  In a raw string a
    backslash stands for itself.
    """
    quote = yield from source.take('"""', "'''", '"', "'")
    emit('"')
    while True:
        yield from source.up_to(PLAIN_END, lambda text: emit(_quoted(text)))
        character = yield from source.peek()
        if character == "":
            return False
        if character == "\\":
            if escaped := (yield from _escape(source, is_raw)):
                emit(escaped)
        elif (yield from source.take(quote)):
            emit('"')
            return True
        else:
            source.advance()
            emit(_quoted(character))


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escape(source: Source, is_raw: bool) -> Steps[str]:
    """Read past an escape and give the JSON for it; what is none stands for itself."""
    source.advance()
    character = yield from source.peek()
    if character == "":
        return ""
    source.advance()
    if is_raw:
        return _quoted("\\" + character)
    if character in ESCAPES:
        return ESCAPES[character]
    if character in OCTAL_DIGITS:
        digits = character + (yield from _digits(source, OCTAL_DIGITS, 2))
        return json.dumps(chr(int(digits, 8)))[1:-1]
    count = HEXADECIMAL.get(character, 0)
    digits = yield from _digits(source, HEXADECIMAL_DIGITS, count)
    if count == 0 or len(digits) < count or int(digits, 16) > 0x10FFFF:
        return _quoted("\\" + character + digits)
    # Halves of a pair have no UTF-8, so they stay escapes.
    return json.dumps(chr(int(digits, 16)))[1:-1]


def _digits(source: Source, digits: str, count: int) -> Steps[str]:
    text = ""
    while len(text) < count:
        character = yield from source.peek()
        if character == "" or character not in digits:
            break
        source.advance()
        text += character
    return text
