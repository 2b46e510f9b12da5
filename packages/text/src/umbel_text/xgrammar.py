"""What the backend xgrammar supports; its library is not imported, since it needs torch.

The rules are those of vllm/v1/structured_output/backend_xgrammar.py and utils.py.  What is read of a
grammar beyond those is in `umbel_text.grammars`.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from umbel_engine import StructuredOutputs
from umbel_text.errors import InvalidRequestError
from umbel_text.grammars.assembly import LONGEST_GRAMMAR, check_length, evaluate
from umbel_text.grammars.ebnf import check_ebnf
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import check_bearable
from umbel_text.grammars.lark import check_lark
from umbel_text.grammars.regex import read_regex
from umbel_text.grammars.schemas import check_schema_work, objects_in
from umbel_text.grammars.tags import check_tag

FORMATS = frozenset(
    {
        "date",
        "date-time",
        "duration",
        "email",
        "hostname",
        "ipv4",
        "ipv6",
        "json-pointer",
        "relative-json-pointer",
        "time",
        "uri",
        "uri-reference",
        "uri-template",
        "uuid",
    }
)
"""The formats of strings that it enforces."""

ARRAY_LIMITS = ("uniqueItems", "contains", "minContains", "maxContains")

MOST_CHOICES = 8192

COMMENT = re.compile(r"(?:#|//).*")

ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


def check_for_xgrammar(constraint: StructuredOutputs) -> StructuredOutputs:
    """Refuse what xgrammar has no grammar for, or its engine would suffer from.

    Gives the constraint with its choices written as a grammar, which is the form that engines take.
    Raises InvalidRequestError for what vLLM refuses, UnservableError for the rest.
    """
    if constraint.regex is not None:
        _check_regex(constraint.regex)
    elif constraint.choice:
        grammar = choice_grammar(constraint.choice)
        check_length(grammar, LONGEST_GRAMMAR)
        return msgspec.structs.replace(constraint, choice=None, grammar=grammar)
    elif constraint.json is not None:
        _check_schema(constraint.json)
    elif constraint.grammar:
        _check_grammar(constraint.grammar)
    elif constraint.structural_tag:
        _check_tag(constraint.structural_tag)
    return constraint


def _check_regex(pattern: str) -> None:
    try:
        check_bearable(evaluate(read_regex(pattern), {}))
    except GrammarSyntaxError as error:
        raise InvalidRequestError(f"Failed to transform regex into a grammar: {error}") from None


def _check_schema(value: str | dict[str, object]) -> None:
    try:
        schema = _read_json(value) if isinstance(value, str) else value
        check_schema_work(schema)
        if has_unsupported_features(schema):
            raise InvalidRequestError(
                "The provided JSON schema contains features not supported by xgrammar."
            )
        if not isinstance(schema, (Mapping, bool)):
            raise GrammarSyntaxError(f"Schema should be an object or bool, but got {value}")
    except GrammarSyntaxError as error:
        raise InvalidRequestError(
            f"Failed to transform json schema into a grammar: {error}"
        ) from None


def _read_json(text: str) -> object:
    try:
        value: object = json.loads(text, object_pairs_hook=_object, parse_constant=_no_number)
    except ValueError:
        raise InvalidRequestError("Invalid JSON grammar specification.") from None
    return value


def _no_number(name: str) -> float:
    raise GrammarSyntaxError(f"Failed to parse JSON: {name}")


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Make an object, of which a parser might take the first of two values and another the last."""
    made = dict(pairs)
    if len(made) < len(pairs):
        raise UnservableError("a name occurs twice in an object")
    return made


def _check_grammar(grammar: str) -> None:
    try:
        if is_likely_lark(grammar):
            check_lark(grammar)
        else:
            check_ebnf(grammar)
    except GrammarSyntaxError:
        raise InvalidRequestError("Invalid grammar specification.") from None


def is_likely_lark(grammar: str) -> bool:
    """Say whether a grammar is in Lark's language rather than in EBNF, as vLLM tells them apart."""
    return not any("::=" in COMMENT.sub("", line) for line in grammar.split("\n"))


def _check_tag(text: str) -> None:
    try:
        tag = _read_json(text)
        if not isinstance(tag, Mapping):
            raise GrammarSyntaxError("Structural tag must be an object")
        check_tag(tag)
    except GrammarSyntaxError:
        raise InvalidRequestError("Invalid structural tag specification.") from None


def choice_grammar(choices: Sequence[str]) -> str:
    """Write the choice between texts as a grammar in EBNF."""
    return "root ::= " + " | ".join(f'"{_escaped(choice)}"' for choice in choices)


def _escaped(text: str) -> str:
    return "".join(ESCAPES.get(character) or _printable(character) for character in text)


def _printable(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code < 0x20 or code == 0x7F else character


def has_unsupported_features(schema: object) -> bool:
    """Say whether a JSON schema asks for something that would not be enforced."""
    return any(map(_is_unsupported, objects_in(schema)))


def _is_unsupported(node: Mapping[str, object]) -> bool:
    types = _types(node)
    all_of = node.get("allOf")
    return (
        (not types.isdisjoint(("integer", "number")) and "multipleOf" in node)
        or ("array" in types and any(name in node for name in ARRAY_LIMITS))
        or ("string" in types and _is_unsupported_string(node))
        or ("object" in types and _is_unsupported_object(node))
        or (isinstance(all_of, list) and len(all_of) > 1)
    )


def _types(node: Mapping[str, object]) -> set[str]:
    given = node.get("type")
    names: Iterable[object] = given if isinstance(given, list) else (given,)
    return {name for name in names if isinstance(name, str)}


def _is_unsupported_string(node: Mapping[str, object]) -> bool:
    if "format" in node:
        name = node["format"]
        if not isinstance(name, str) or name not in FORMATS:
            return True
    return _has_pattern_and_length(node)


def _has_pattern_and_length(node: Mapping[str, object]) -> bool:
    has_pattern = "pattern" in node or "format" in node
    return has_pattern and ("minLength" in node or "maxLength" in node)


def _is_unsupported_object(node: Mapping[str, object]) -> bool:
    patterns = node.get("patternProperties")
    if isinstance(patterns, Mapping) and ("properties" in node or len(patterns) > 1):
        return True
    if "propertyNames" not in node:
        return False
    names = node["propertyNames"]
    return (
        (isinstance(names, Mapping) and _has_pattern_and_length(names))
        or "patternProperties" in node
        or "properties" in node
        or node.get("unevaluatedProperties", True) is not True
    )
