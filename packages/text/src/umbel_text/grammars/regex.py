"""Regular expressions in xgrammar's dialect, which is that of JavaScript with a few things missing.

What is refused, and how it is said, is as in xgrammar's regex_converter.cc, which reads out of bounds
at characters that are not ASCII where it expects letters.
"""

import re
from collections.abc import Sequence
from string import ascii_letters

from umbel_text.grammars.assembly import LONGEST_REGEX, Assembler, Program, check_length
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.escapes import LAST_CODE, SIGNS, read_escape
from umbel_text.grammars.forms import NOTHING, characters, literal
from umbel_text.grammars.heads import EVERYTHING, OTHERS, bit, span

DIGITS = span(0x30, 0x39)
WORD = DIGITS | span(0x41, 0x5A) | span(0x61, 0x7A) | bit(0x5F)
SPACE = span(0x09, 0x0D) | bit(0x20) | bit(0xA0)
# Of the characters beyond ASCII, a class and its complement both may have some.
CLASSES = {
    "d": DIGITS,
    "D": EVERYTHING & ~DIGITS,
    "w": WORD,
    "W": EVERYTHING & ~WORD,
    "s": SPACE,
    "S": EVERYTHING & ~span(0x09, 0x0D) & ~bit(0x20),
}

PLAIN = re.compile(r"[^\^$\[(){*+?|\\.]+")
COUNT = re.compile(r"\{([0-9]{1,18})(?:(,)([0-9]{0,18}))?\}")
SPACED_COUNT = re.compile(r"\{ *([0-9]{1,18}) *(?:(,) *([0-9]{0,18}) *)?\}")
GROUP_NAME = re.compile(r"<[A-Za-z]*>")
WIDER_GROUP_NAME = re.compile(r"P?<[A-Za-z0-9_]*>")
IGNORING_CASE = "(?i)"
UNICODE_ESCAPE = re.compile(r"\\u\{([0-9a-fA-F]{1,6})\}")

DASH, SET = -1, -2
"""What may stand in a class besides the code points of characters."""

SIGNS_OF_MORE = ("{", "*", "+", "?")
QUANTIFIERS = {"*": (0, None), "+": (1, None), "?": (0, 1)}


def read_regex(pattern: str, is_automaton: bool = False, dot: int = EVERYTHING) -> Program:
    """Read a regular expression; raises GrammarSyntaxError for what is none.

    One that is too long is refused with UnservableError.  `is_automaton` says that xgrammar makes an
    automaton of it (fsm_builder.cc): for those it reads some more, and passes over what is only
    looked ahead at.  `dot` has the characters that a dot stands for.
    """
    check_length(pattern, LONGEST_REGEX)
    return _Reader(pattern, is_automaton, dot).read()


class _Reader:
    def __init__(self, pattern: str, is_automaton: bool, dot: int) -> None:
        self._pattern = pattern
        self._dot = dot
        self._is_automaton = is_automaton
        self._position = 0
        if is_automaton and pattern.startswith(IGNORING_CASE):
            self._position = len(IGNORING_CASE)
        self._assembler = Assembler()

    def read(self) -> Program:
        assembler = self._assembler
        while self._position < len(self._pattern):
            character = self._pattern[self._position]
            match character:
                case "^" | "$":
                    self._position += 1
                case "[":
                    assembler.add(characters(self._read_class()))
                case "(":
                    self._open()
                case ")":
                    self._close()
                case "*" | "+" | "?" | "{":
                    self._read_quantifier(character)
                case "|":
                    self._position += 1
                    assembler.alternative()
                case "\\":
                    self._read_escape()
                case ".":
                    self._position += 1
                    assembler.add(characters(self._dot))
                case _:
                    self._read_plain()
        if assembler.depth:
            raise self._fault("The parenthesis is not closed.")
        return assembler.finish()

    def _fault(self, message: str) -> GrammarSyntaxError:
        return GrammarSyntaxError(
            f"Regex parsing error at position {self._position + 1}: {message}"
        )

    def _read_plain(self) -> None:
        """Read characters that stand for themselves; a quantifier takes the last of them."""
        match = PLAIN.match(self._pattern, self._position)
        assert match is not None
        text = match[0]
        self._position += len(text)
        if len(text) > 1:
            self._assembler.add(literal(text[:-1]))
        self._assembler.add(literal(text[-1]))

    def _open(self) -> None:
        if self._is_automaton and self._pattern.startswith(("(?=", "(?!"), self._position):
            self._skip_lookahead()
            return
        self._assembler.open()
        self._position += 1
        if self._pattern[self._position : self._position + 1] != "?":
            return
        self._position += 1
        rest = self._pattern[self._position : self._position + 2]
        if rest[:1] == ":":
            self._position += 1
        elif rest[:1] in ("=", "!"):
            raise self._fault("Lookahead is not supported yet.")
        elif rest in ("<=", "<!"):
            raise self._fault("Lookbehind is not supported yet.")
        elif rest[:1] == "<" or (rest == "P<" and self._is_automaton):
            names = WIDER_GROUP_NAME if self._is_automaton else GROUP_NAME
            name = names.match(self._pattern, self._position)
            if name is None:
                self._check_ascii(self._pattern[self._position + 1 :].lstrip(ascii_letters))
                raise self._fault("Invalid named capturing group.")
            self._position = name.end()
        elif rest:
            raise self._fault("Group modifier flag is not supported yet.")
        else:
            raise self._fault("Group modifier is not finished.")

    def _check_ascii(self, text: str) -> None:
        """Refuse a first character that xgrammar would look up beyond the end of a table."""
        if not text[:1].isascii():
            raise UnservableError("a name or a control character is not ASCII")

    def _skip_lookahead(self) -> None:
        depth = 0
        while True:
            character = self._pattern[self._position : self._position + 1]
            if not character:
                raise self._fault("The parenthesis is not closed")
            if character == "[":
                self._read_class()
                continue
            depth += (character == "(") - (character == ")")
            self._position += 2 if character == "\\" else 1
            if not depth:
                break
        self._assembler.add(NOTHING)

    def _close(self) -> None:
        if not self._assembler.depth:
            raise self._fault("Unmatched ')'")
        self._position += 1
        self._assembler.close()

    def _read_quantifier(self, character: str) -> None:
        low: int
        high: int | None
        if character == "{":
            low, high = self._read_count()
        else:
            low, high = QUANTIFIERS[character]
            self._position += 1
        self._assembler.repeat(low, high, again=self._is_automaton)
        # What asks for the shortest match is the same to a parser.
        if self._pattern[self._position : self._position + 1] == "?":
            self._position += 1
        if (
            not self._is_automaton
            and self._pattern[self._position : self._position + 1] in SIGNS_OF_MORE
        ):
            raise self._fault("Two consecutive repetition modifiers are not allowed.")

    def _read_count(self) -> tuple[int, int | None]:
        counts = SPACED_COUNT if self._is_automaton else COUNT
        match = counts.match(self._pattern, self._position)
        if match is None:
            raise self._fault("Invalid repetition count.")
        self._position = match.end()
        low, comma, high = match.groups()
        if comma is None:
            return int(low), int(low)
        return int(low), int(high) if high else None

    def _read_escape(self) -> None:
        kind = self._pattern[self._position + 1 : self._position + 2]
        if kind in CLASSES:
            self._position += 2
            self._assembler.add(characters(CLASSES[kind]))
        elif kind and kind in "123456789k":
            raise self._fault("Backreference is not supported yet.")
        elif kind in ("p", "P"):
            raise self._fault("Unicode character class escape sequence is not supported yet.")
        elif kind in ("b", "B"):
            raise self._fault("Word boundary is not supported yet.")
        else:
            self._assembler.add(characters(bit(self._read_character(SIGNS - {"-"}))))

    def _read_character(self, signs: frozenset[str]) -> int:
        """Read an escaped character; gives its code point."""
        pattern, start = self._pattern, self._position
        kind = pattern[start + 1 : start + 2]
        left = len(pattern) - start
        if left < {"u": 5, "x": 4, "c": 3}.get(kind, 2):
            raise self._fault("Escape sequence is not finished.")
        if (read := read_escape(pattern, start, signs)) is not None:
            code, self._position = read
            return code
        if kind == "u" and pattern[start + 2] == "{":
            match = UNICODE_ESCAPE.match(pattern, start)
            if match is None or int(match[1], 16) > LAST_CODE:
                raise self._fault("Invalid Unicode escape sequence.")
            self._position = match.end()
            return int(match[1], 16)
        if kind == "c":
            letter = pattern[start + 2]
            self._check_ascii(letter)
            if not (letter.isascii() and letter.isalpha()):
                raise self._fault("Invalid control character escape sequence.")
            self._position += 3
            return ord(letter) % 32
        self._position += 2
        return ord(kind)

    def _read_class(self) -> int:
        """Read a set of characters in brackets."""
        pattern = self._pattern
        self._position += 1
        if pattern[self._position : self._position + 1] == "]":
            raise self._fault("Empty character class is not allowed in regex.")
        is_negated = pattern[self._position : self._position + 1] == "^"
        self._position += is_negated
        bits = 0
        units: list[int] = []
        while (character := pattern[self._position : self._position + 1]) != "]":
            if not character or character in "\r\n":
                raise self._fault("Unclosed '['")
            if character != "\\":
                self._position += 1
                units.append(DASH if character == "-" else ord(character))
            elif (kind := pattern[self._position + 1 : self._position + 2]) in CLASSES:
                self._position += 2
                bits |= CLASSES[kind]
                units.append(SET)
            else:
                units.append(self._read_character(SIGNS))
        self._position += 1
        return class_bits(units, bits, is_negated)


def class_bits(units: Sequence[int], bits: int, is_negated: bool) -> int:
    """Give the characters of a class: those of `bits`, and what its units stand for.

    Raises GrammarSyntaxError for a range that has its ends the wrong way round.
    """
    index = 0
    while index < len(units):
        low = ord("-") if units[index] == DASH else units[index]
        high = low
        if units[index + 1 : index + 2] == [DASH] and index + 2 < len(units):
            high = ord("-") if units[index + 2] == DASH else units[index + 2]
        if SET in (low, high) or high == low:
            bits |= 0 if low == SET else bit(low)
            index += 1
            continue
        if high < low:
            raise GrammarSyntaxError(
                "Invalid character class: lower bound is larger than upper bound"
            )
        bits |= span(low, high)
        index += 3
    return (EVERYTHING & ~bits) | OTHERS if is_negated else bits
