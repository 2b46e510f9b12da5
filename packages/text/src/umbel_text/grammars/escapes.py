"""Escape sequences, as xgrammar reads them in regular expressions and in EBNF."""

from umbel_text.grammars.errors import GrammarSyntaxError

SIMPLE = {
    "'": 0x27,
    '"': 0x22,
    "?": 0x3F,
    "\\": 0x5C,
    "/": 0x2F,
    "a": 0x07,
    "b": 0x08,
    "f": 0x0C,
    "n": 0x0A,
    "r": 0x0D,
    "t": 0x09,
    "v": 0x0B,
    "0": 0x00,
    "e": 0x1B,
}
SIGNS = frozenset("^$.*+?\\()[]{}|/-")
"""What a backslash makes an ordinary character of, besides those."""

LAST_CODE = 0x10FFFF
HEXADECIMAL = frozenset("0123456789abcdefABCDEF")


def read_escape(text: str, start: int, signs: frozenset[str] = SIGNS) -> tuple[int, int] | None:
    """Read the escape sequence that begins at `start`; gives its code point and where it ends.

    Gives None for what is no escape sequence; raises GrammarSyntaxError for a code point that is
    none.
    """
    kind = text[start + 1 : start + 2]
    if kind in signs:
        return ord(kind), start + 2
    if kind in SIMPLE:
        return SIMPLE[kind], start + 2
    digits = start + 2
    if kind == "x":
        end = digits
        while text[end : end + 1] in HEXADECIMAL:
            end += 1
    elif kind in ("u", "U"):
        end = digits + (4 if kind == "u" else 8)
        if len(text) < end or not HEXADECIMAL.issuperset(text[digits:end]):
            return None
    else:
        return None
    if end == digits:
        return None
    return _code(text[digits:end]), end


def _code(digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    if len(significant) > 6 or int(significant, 16) > LAST_CODE:
        raise GrammarSyntaxError("Invalid Unicode escape sequence.")
    return int(significant, 16)
