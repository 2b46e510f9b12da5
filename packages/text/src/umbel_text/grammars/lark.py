"""Grammars in Lark's language, as far as xgrammar reads it (lark_converter.cc).

Nested grammars, substrings and what ends a rule early are known to xgrammar and not served here: they
become automata that may take a very long time to make.
"""

import json
import re
from typing import NamedTuple

from umbel_text.grammars.assembly import (
    LONGEST_GRAMMAR,
    Assembler,
    Program,
    Reference,
    check_length,
    evaluate,
)
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import Form, characters, literal, sequence
from umbel_text.grammars.heads import EVERYTHING, any_of, bit, first_of, span
from umbel_text.grammars.regex import QUANTIFIERS, read_regex
from umbel_text.grammars.rules import check_rules
from umbel_text.grammars.schemas import VALUE, check_schema
from umbel_text.grammars.tokens import A_TOKEN

TOKENS = re.compile(
    r"""(?P<space> (?: [ \t\f] | \#[^\r\n]* | //[^\r\n]* )+ )
    | (?P<newline> \r?\n | \r )
    | (?P<name> [?!]?[A-Za-z_][A-Za-z0-9_\-]* )
    | (?P<string> "(?: [^"\\\r\n] | \\[^\r\n] )*"i? )
    | (?P<regex> /(?: [^/\\] | \\. )*/[A-Za-z]* )
    | (?P<number> [+\-]?[0-9]+ (?: \.(?!\.)[0-9]* )? (?: [eE][+\-]?[0-9]* )? )
    | (?P<special> <[^\s<>]*> )
    | (?P<directive> %[A-Za-z_]* )
    | (?P<sign> \.\. | -> | [:,.=()\[\]{}|~?*+] )
    """,
    re.VERBOSE | re.DOTALL,
)

NUMBER = r"([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?"

COMMON = {
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[a-fA-F0-9]",
    "INT": "[0-9]+",
    "SIGNED_INT": "[+-]?[0-9]+",
    "DECIMAL": r"[0-9]+\.[0-9]*|\.[0-9]+",
    "_EXP": "[eE][+-]?[0-9]+",
    "FLOAT": NUMBER,
    "SIGNED_FLOAT": f"[+-]?{NUMBER}",
    "NUMBER": NUMBER,
    "SIGNED_NUMBER": f"[+-]?{NUMBER}",
    "ESCAPED_STRING": r'"([^"\\]|\\.)*"',
    "LCASE_LETTER": "[a-z]",
    "UCASE_LETTER": "[A-Z]",
    "LETTER": "[A-Za-z]",
    "WORD": "[A-Za-z]+",
    "CNAME": "[_A-Za-z][_A-Za-z0-9]*",
    "WS_INLINE": r"[ \t]+",
    "WS": r"[ \t\f\r\n]+",
    "CR": r"\r",
    "LF": r"\n",
    "NEWLINE": r"(\r?\n)+",
    "SH_COMMENT": r"#[^\n]*",
    "CPP_COMMENT": r"//[^\n]*",
    "C_COMMENT": r"/\*[^*]*\*+(?:[^/*][^*]*\*+)*/",
    "SQL_COMMENT": r"--[^\n]*",
}
"""What can be imported, near enough to tell how hard it is."""

ATTRIBUTES = frozenset({"max_tokens", "max_chars", "temperature", "capture"})
"""Those whose rules are compiled as others are."""

OPTIONS = "%grammar_options"
IGNORE = "%ignore"
START = "start"


class Token(NamedTuple):
    """A word of a grammar."""

    kind: str
    text: str


END = Token("end", "")


def check_lark(grammar: str) -> None:
    """Refuse a grammar that is none (GrammarSyntaxError) or cannot be borne (UnservableError)."""
    check_length(grammar, LONGEST_GRAMMAR)
    check_rules(_Reader(grammar).read(), START)


def _tokens(grammar: str) -> list[Token]:
    tokens: list[Token] = []
    position = 0
    while position < len(grammar):
        match = TOKENS.match(grammar, position)
        if match is None:
            raise GrammarSyntaxError(f"unexpected character '{grammar[position]}'")
        position = match.end()
        kind = match.lastgroup or ""
        if match[0] in ("%json", OPTIONS):
            kind = match[0]
            position, value = _json_end(grammar, position)
            tokens.append(Token(kind, value))
        elif kind != "space":
            tokens.append(Token(kind, match[0]))
    return tokens


def _json_end(grammar: str, start: int) -> tuple[int, str]:
    """Give where the JSON value ends that begins at `start`, and its text."""
    while grammar[start : start + 1].isspace():
        start += 1
    try:
        _, end = json.JSONDecoder().raw_decode(grammar, start)
    except (ValueError, RecursionError):
        raise GrammarSyntaxError("failed to parse JSON value") from None
    return end, grammar[start:end]


class _Reader:
    def __init__(self, grammar: str) -> None:
        self._tokens = _tokens(grammar)
        self._index = 0
        self._rules: dict[str, Program] = {}
        self._ignored: list[Program] = []

    def read(self) -> dict[str, Program]:
        has_ignored = Token("directive", IGNORE) in self._tokens
        while (token := self._next()) is not END:
            match token.kind, token.text:
                case "newline", _:
                    continue
                case "directive", "%import":
                    self._read_import()
                case "directive", "%ignore":
                    self._ignored.append(self._read_body(is_plain=True))
                case "%grammar_options", _:
                    pass
                case "name", name:
                    self._read_definition(name.lstrip("?!"), has_ignored)
                case _:
                    raise GrammarSyntaxError("expected rule or terminal name")
            if self._peek() is not END and self._peek().kind != "newline":
                raise GrammarSyntaxError("expected end of grammar item")
        if START not in self._rules:
            raise GrammarSyntaxError("no start rule found")
        if self._ignored:
            assembler = Assembler()
            assembler.open()
            for index, program in enumerate(self._ignored):
                self._rules[f"{IGNORE} {index}"] = program
                if index:
                    assembler.alternative()
                assembler.add(Reference(f"{IGNORE} {index}"))
            assembler.close()
            # It may come any number of times; how hard that is, one time tells.
            assembler.repeat(0, 1)
            self._rules[IGNORE] = assembler.finish()
        return self._rules

    def _peek(self) -> Token:
        return self._tokens[self._index] if self._index < len(self._tokens) else END

    def _next(self) -> Token:
        token = self._peek()
        self._index += 1
        return token

    def _take(self, text: str) -> None:
        if self._next().text != text:
            raise GrammarSyntaxError(f"expected '{text}'")

    def _match(self, text: str) -> bool:
        is_there = self._peek().text == text
        self._index += is_there
        return is_there

    def _read_import(self) -> None:
        """Take what is imported from the common terminals; there are no others."""
        path = [self._next().text]
        names: list[tuple[str, str]] = []
        while self._match("."):
            path.append(self._next().text)
        if self._match("("):
            while True:
                name = self._next().text
                names.append((".".join([*path, name]), name))
                if not self._match(","):
                    break
            self._take(")")
        else:
            alias = self._next().text if self._match("->") else path[-1]
            names.append((".".join(path), alias))
        for full, alias in names:
            library, _, name = full.partition(".")
            if library != "common" or name not in COMMON:
                raise GrammarSyntaxError(f"unknown common import '{full}'")
            self._rules[alias] = read_regex(COMMON[name])

    def _read_definition(self, name: str, has_ignored: bool) -> None:
        if self._match("["):
            while not self._match("]"):
                token = self._next()
                if token is END:
                    raise GrammarSyntaxError("expected ']' after rule attributes")
                if token.kind == "name" and token.text not in ATTRIBUTES:
                    raise UnservableError(f"the rule attribute {token.text} is not served")
        self._take(":")
        is_plain = not has_ignored or not _is_rule(Token("name", name))
        self._rules[name] = self._read_body(is_plain)

    def _read_body(self, is_plain: bool) -> Program:
        """Read alternatives up to the end of the line that nothing goes on after."""
        assembler = Assembler()
        brackets: list[str] = []
        while True:
            token = self._next()
            match token.kind, token.text:
                case (("newline" | "end"), _):
                    after = self._after_newlines()
                    if after == "|" or (brackets and after in (")", "]")):
                        continue
                    self._index -= 1
                    break
                case "sign", ("(" | "[") as bracket:
                    assembler.open()
                    brackets.append(")" if bracket == "(" else "]")
                case "sign", (")" | "]") as bracket:
                    if not brackets or brackets.pop() != bracket:
                        raise GrammarSyntaxError(f"unexpected '{bracket}'")
                    assembler.close()
                    if bracket == "]":
                        assembler.repeat(0, 1, again=True)
                case "sign", "|":
                    assembler.alternative()
                case "sign", "->":
                    self._next()
                case "sign", ("?" | "*" | "+" | "~" | "{") as sign:
                    assembler.repeat(*self._read_repetition(sign))
                case _:
                    if not is_plain and not _is_rule(token):
                        assembler.add(Reference(IGNORE))
                    self._add_item(assembler, token)
        if brackets:
            raise GrammarSyntaxError(f"expected '{brackets[-1]}'")
        return assembler.finish()

    def _after_newlines(self) -> str:
        """Skip line ends if what follows them goes on with a body; gives it."""
        index = self._index
        while index < len(self._tokens) and self._tokens[index].kind == "newline":
            index += 1
        text = self._tokens[index].text if index < len(self._tokens) else ""
        if text in ("|", ")", "]"):
            self._index = index
        return text

    def _read_repetition(self, sign: str) -> tuple[int, int | None]:
        if sign in QUANTIFIERS:
            return QUANTIFIERS[sign]
        if sign == "~":
            low = self._read_number()
            return low, self._read_number() if self._match("..") else low
        low = 0 if self._peek().text == "," else self._read_number()
        high: int | None = low
        if self._match(","):
            high = None if self._peek().text == "}" else self._read_number()
        self._take("}")
        return low, high

    def _read_number(self) -> int:
        text = self._next().text
        if not text.isdecimal() or not text.isascii() or len(text) > 16:
            raise GrammarSyntaxError("invalid repetition count")
        return int(text)

    def _add_item(self, assembler: Assembler, token: Token) -> None:
        match token.kind:
            case "string":
                low = _literal(token.text)
                if self._match(".."):
                    low = _range(low, _literal(self._next().text))
                assembler.add(low)
            case "regex":
                assembler.add(_regex(token.text))
            case "name":
                assembler.add(Reference(token.text.lstrip("?!")))
            case "special":
                assembler.add(A_TOKEN)
            case "%json":
                check_schema(token.text)
                assembler.add(VALUE)
            case "directive" if token.text in ("%lark", "%regex"):
                raise UnservableError(f"{token.text} is not served")
            case _:
                raise GrammarSyntaxError("expected grammar expression")


def _is_rule(token: Token) -> bool:
    """Say whether a word names a rule; the names of terminals are in upper case."""
    return token.kind == "name" and not token.text.lstrip("?!").removeprefix("_")[:1].isupper()


def _literal(quoted: str) -> Form:
    try:
        text = json.loads(quoted.removesuffix("i"))
    except ValueError:
        raise GrammarSyntaxError("invalid string literal") from None
    if not text or not quoted.endswith("i"):
        return literal(text)
    return sequence(
        characters(bit(ord(lower[0])) | bit(ord(lower.upper()[0]))) for lower in text.lower()
    )


def _range(low: Form, high: Form) -> Form:
    first, last = low.text or "", high.text or ""
    if len(first) != 1 or len(last) != 1 or first > last:
        raise GrammarSyntaxError("invalid character range")
    return characters(span(ord(first), ord(last)))


def _regex(token: str) -> Form:
    pattern, _, flags = token[1:].rpartition("/")
    if not set(flags) <= set("isu"):
        raise GrammarSyntaxError("regular-expression flag is not supported")
    is_automaton = "i" in flags
    dot = EVERYTHING if "s" in flags else EVERYTHING & ~bit(ord("\n"))
    form = evaluate(read_regex(pattern, is_automaton, dot), {}, is_automaton)
    if not is_automaton:
        return form
    return form._replace(
        heads=any_of(_folded(form.first)),
        rest=any_of(_folded(first_of(form.rest))),
        inner=_folded(form.inner),
        final=_folded(form.final),
    )


def _folded(bits: int) -> int:
    """Add the other case of the letters in a set."""
    lower, upper = span(0x61, 0x7A), span(0x41, 0x5A)
    return bits | (bits & lower) >> 32 | (bits & upper) << 32
