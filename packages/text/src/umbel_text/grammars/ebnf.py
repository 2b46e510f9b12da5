"""Grammars in EBNF, as xgrammar reads it (grammar_parser.cc)."""

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
from umbel_text.grammars.escapes import SIGNS, read_escape
from umbel_text.grammars.forms import ANYTHING, Form, characters, literal
from umbel_text.grammars.regex import DASH, QUANTIFIERS, class_bits, read_regex
from umbel_text.grammars.rules import check_rules
from umbel_text.grammars.tokens import A_TOKEN

TOKENS = re.compile(
    r"""(?P<space> (?: [ \t\r\n] | \#[^\r\n]* )+ )
    | (?P<assign> ::= )
    | (?P<name> [A-Za-z_.\-][A-Za-z0-9_.\-]* )
      (?P<attributes> \[ (?: [^\]"\r\n] | "[^"\\\r\n]*" )* \] (?= [ \t]* ::= ) )?
    | (?P<string> "(?: [^"\\\r\n] | \\[^\r\n] )*" )
    | (?P<class> \[ (?: [^\]\\\r\n] | \\[^\r\n] )* \] )
    | (?P<number> \+?[0-9]+ )
    | (?P<lookahead> \(= )
    | (?P<sign> [(){}|,*+?=] )
    """,
    re.VERBOSE,
)

MACROS = frozenset(
    {"TagDispatch", "Token", "ExcludeToken", "TokenTagDispatch", "Regex", "Substring"}
)

KNOWN_ATTRIBUTES = re.compile(
    r"\[[ \t]*(?:(?:max_tokens|max_chars|temperature|capture)\b[^\]]*)?\]"
)
"""Those whose rules are compiled as others are."""

ROOT = "root"


class Token(NamedTuple):
    """A word of a grammar, and the line that it begins in."""

    kind: str
    text: str
    line: int


END = Token("end", "", -1)


def check_ebnf(grammar: str) -> Form:
    """Refuse a grammar that is none (GrammarSyntaxError) or cannot be borne (UnservableError).

    Gives what it matches.
    """
    check_length(grammar, LONGEST_GRAMMAR)
    return check_rules(_Reader(grammar).read(), ROOT)


def _tokens(grammar: str) -> list[Token]:
    tokens: list[Token] = []
    position, line = 0, 1
    while position < len(grammar):
        match = TOKENS.match(grammar, position)
        if match is None:
            raise GrammarSyntaxError(f"Unexpected character: {grammar[position]}")
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "attributes":
            if KNOWN_ATTRIBUTES.fullmatch(match[kind]) is None:
                raise UnservableError(f"rule attributes such as {match[kind]} are not served")
            kind = "name"
        if kind != "space":
            tokens.append(Token(kind, match[kind], line))
        line += match[0].count("\n")
    return tokens


class _Reader:
    def __init__(self, grammar: str) -> None:
        self._tokens = _tokens(grammar)
        self._index = 0
        self._rules: dict[str, Program] = {}

    def read(self) -> dict[str, Program]:
        while self._peek() is not END:
            name = self._take("name", "Expect rule name")
            if self._index >= 2 and self._tokens[self._index - 2].line == name.line:
                raise GrammarSyntaxError("The rule name should be at the beginning of the line")
            self._take("assign", "Expect ::=")
            if name.text in self._rules:
                raise GrammarSyntaxError(f'Rule "{name.text}" is defined multiple times')
            self._rules[name.text] = self._read_body()
        if ROOT not in self._rules:
            raise GrammarSyntaxError(f'The root rule with name "{ROOT}" is not found')
        return self._rules

    def _peek(self, ahead: int = 0) -> Token:
        index = self._index + ahead
        return self._tokens[index] if index < len(self._tokens) else END

    def _take(self, kind: str, complaint: str) -> Token:
        token = self._peek()
        if token.kind != kind and token.text != kind:
            raise GrammarSyntaxError(complaint)
        self._index += 1
        return token

    def _read_body(self) -> Program:
        """Read alternatives until the next rule begins."""
        assembler = Assembler()
        is_looking_ahead = False
        while (token := self._peek()) is not END and self._peek(1).kind != "assign":
            self._index += 1
            match token.kind, token.text:
                case "lookahead", _:
                    is_looking_ahead = True
                    self._check_complete(assembler)
                    assembler.open()
                case "sign", "(":
                    assembler.open()
                    if self._peek().text == ")":
                        assembler.add(literal(""))
                case "sign", ")":
                    self._check_complete(assembler)
                    if not assembler.depth:
                        raise GrammarSyntaxError("Expect rule name")
                    assembler.close()
                    if is_looking_ahead and not assembler.depth:
                        # What must follow is compiled, and not a part of this rule.
                        assembler.repeat(0, 0)
                        break
                case "sign", "|":
                    self._check_complete(assembler)
                    assembler.alternative()
                case "sign", ("*" | "+" | "?") as sign:
                    assembler.repeat(*QUANTIFIERS[sign])
                case "sign", "{":
                    assembler.repeat(*self._read_count())
                case _:
                    self._add_item(assembler, token)
        self._check_complete(assembler)
        if assembler.depth:
            raise GrammarSyntaxError("Expect )")
        return assembler.finish()

    def _check_complete(self, assembler: Assembler) -> None:
        if assembler.is_empty:
            raise GrammarSyntaxError("Expect element")

    def _add_item(self, assembler: Assembler, token: Token) -> None:
        match token.kind:
            case "string":
                assembler.add(literal(_text(token.text)))
            case "class":
                assembler.add(characters(_class(token.text)))
            case "name" if token.text in MACROS:
                self._add_macro(assembler, token.text)
            case "name":
                assembler.add(Reference(token.text))
            case _:
                raise GrammarSyntaxError(f"Expect element, but got {token.text}")

    def _read_count(self) -> tuple[int, int | None]:
        low = int(self._take_number())
        high: int | None = low
        if self._peek().text == ",":
            self._index += 1
            if self._peek().text in ("}", "-1"):
                self._index += self._peek().text == "-1"
                high = None
            else:
                high = int(self._take_number())
        self._take("}", "Expect }")
        return low, high

    def _take_number(self) -> str:
        number = self._take("number", "Expect integer").text
        if len(number) > 16:
            raise GrammarSyntaxError("Integer is too large")
        return number

    def _add_macro(self, assembler: Assembler, macro: str) -> None:
        """Read a macro with its arguments, and put in what it stands for."""
        arguments = self._read_arguments()
        texts = [_text(token.text) for token in arguments if token.kind == "string"]
        if macro == "Regex":
            assembler.add(evaluate(read_regex("".join(texts[:1]), True), {}, unrolls=True))
        elif macro == "Substring":
            assembler.add(ANYTHING._replace(work=4 * sum(map(len, texts))))
        elif macro.endswith("Dispatch"):
            names = [token.text for token in arguments if token.kind == "name"]
            assembler.open()
            assembler.add(ANYTHING._replace(work=50 + 2 * sum(map(len, texts))))
            for target in names:
                if target not in ARGUMENT_WORDS:
                    # What triggers a rule stands before it.
                    assembler.alternative()
                    assembler.add(A_TOKEN)
                    assembler.add(Reference(target))
            assembler.close()
        else:
            assembler.add(A_TOKEN)

    def _read_arguments(self) -> list[Token]:
        self._take("(", "Expect ( after macro function name")
        arguments: list[Token] = []
        depth = 1
        while depth:
            token = self._peek()
            if token is END or token.kind in ("assign", "class", "lookahead"):
                raise GrammarSyntaxError("Expect ) after macro arguments")
            self._index += 1
            depth += (token.text == "(") - (token.text == ")")
            arguments.append(token)
        return arguments


ARGUMENT_WORDS = frozenset({"loop_after_dispatch", "excludes", "true", "false"})


def _text(quoted: str) -> str:
    """Give the text of a string in quotes."""
    return "".join(map(chr, _codes(quoted[1:-1], frozenset())))


def _class(bracketed: str) -> int:
    inner = bracketed[1:-1]
    is_negated = inner.startswith("^")
    return class_bits(_codes(inner[is_negated:], SIGNS, dashes=True), 0, is_negated)


def _codes(text: str, signs: frozenset[str], dashes: bool = False) -> list[int]:
    codes: list[int] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character != "\\":
            codes.append(DASH if dashes and character == "-" else ord(character))
            position += 1
            continue
        read = read_escape(text, position, signs)
        if read is None:
            raise GrammarSyntaxError("Invalid escape sequence")
        codes.append(read[0])
        position = read[1]
    return codes
