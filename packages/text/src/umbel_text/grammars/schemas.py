"""JSON schemas: what of them is hard for the compiler."""

import json
import re
from collections.abc import Iterator, Mapping

from umbel_text.grammars.assembly import evaluate
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import (
    ENDLESS,
    EVERYTHING,
    MOST_WORK,
    STEP,
    UNROLLED,
    Form,
    bit,
    check_bearable,
    span,
)
from umbel_text.grammars.regex import SPACED_COUNT, read_regex

DEEPEST = 64
"""How deep objects and arrays may nest in a schema (vllm/sampling_params.py)."""

LENGTH_WORK = 15
"""What a string's limit takes to compile, per character; each limit is compiled once."""

LARGEST_UNROLLED = 128
"""The largest limit of a repetition that an automaton is unrolled for."""

EASY = re.compile(
    r"""(?: [^\\\[\]"\x00-\x1f\x7f-\U0010ffff(]
    | \( (?! \? ) | \(\?:
    | \\ [dDwWsS.+*?()\[\]{}|^$/\-]
    | \[ (?: [^\\\[\]"\x00-\x1f\x7f-\U0010ffff] | \\ [dws.+*?()\[\]{}|^$/\-] )+ \]
    )*""",
    re.VERBOSE,
)
"""Patterns that xgrammar makes one automaton of; others become rules."""

VALUE = Form(
    first=span(0x30, 0x39) | sum(bit(ord(sign)) for sign in '{["-tfn \t\r\n'),
    rest=span(0x30, 0x39) | sum(bit(ord(sign)) for sign in ".eE+- \t\r\n"),
    alphabet=EVERYTHING,
    shortest=1,
    longest=ENDLESS,
    ways=STEP,
    second=EVERYTHING,
)
"""Any JSON value."""


def check_schema(text: str) -> Form:
    """Refuse a schema in text that the engine could not bear; gives what it matches.

    Raises GrammarSyntaxError for a pattern that is none, UnservableError for the rest.
    """
    try:
        schema: object = json.loads(text)
    except (ValueError, RecursionError):
        raise GrammarSyntaxError("the schema is not JSON") from None
    check_schema_work(schema)
    return VALUE


def check_schema_work(schema: object, is_json: bool = True) -> None:
    """Refuse a schema that the engine could not bear; see `check_schema`.

    `is_json` is false for values in another notation, for which patterns become rules.
    """
    limits: set[tuple[int, int]] = set()
    patterns: set[str] = set()
    work = 0
    for node in _nodes(schema):
        limits.add((_number(node, "minLength"), _number(node, "maxLength")))
        patterns.update(_patterns(node))
        work += _properties_work(node)
        work += _names_work(node)
        if work > MOST_WORK:
            break
    work += sum(LENGTH_WORK * min(UNROLLED, max(low, high)) for low, high in limits)
    check_bearable(Form(work=work))
    for pattern in patterns:
        work += _pattern_work(pattern, is_json)
        check_bearable(Form(work=work))


def _nodes(schema: object) -> Iterator[Mapping[str, object]]:
    """Give every object in a schema that is not empty; refuses one that is nested too deeply."""
    level: list[object] = [schema]
    for _ in range(DEEPEST + 1):
        yield from (node for node in level if isinstance(node, Mapping) and node)
        level = [inner for node in level for inner in _inner(node)]
        if not level:
            return
    raise UnservableError(f"objects and arrays are nested more than {DEEPEST} levels deep")


def _inner(node: object) -> list[object]:
    inner: list[object] = []
    if isinstance(node, Mapping):
        inner = list(node.values())
    elif isinstance(node, list):
        inner = node
    return [value for value in inner if isinstance(value, (Mapping, list))]


def _number(node: Mapping[str, object], name: str) -> int:
    value = node.get(name)
    return int(min(value, ENDLESS)) if isinstance(value, (int, float)) and value > 0 else 0


def _patterns(node: Mapping[str, object]) -> Iterator[str]:
    pattern = node.get("pattern")
    if isinstance(pattern, str):
        yield pattern
    by_pattern = node.get("patternProperties")
    if isinstance(by_pattern, Mapping):
        yield from by_pattern


def _properties_work(node: Mapping[str, object]) -> int:
    """Give the work for properties: each that may be left out is looked at from each before it."""
    properties = node.get("properties")
    if not isinstance(properties, Mapping):
        return 0
    count = len(properties)
    if "minProperties" in node or "maxProperties" in node:
        return count**4 // 5000
    required = node.get("required")
    optional = count - (len(required) if isinstance(required, list) else 0)
    return max(0, optional) ** 2 // 20


def _names_work(node: Mapping[str, object]) -> int:
    values = node.get("enum")
    if not isinstance(values, list):
        return 0
    return len(values) ** 2 // 2000


def _pattern_work(pattern: str, is_json: bool) -> int:
    """Give the work for a pattern; refuses one that cannot be borne as an automaton or as rules."""
    program = read_regex(pattern, is_automaton=True)
    automaton = evaluate(program, {}, unrolls=True)
    counts = [
        int(count) for match in SPACED_COUNT.findall(pattern) for count in match[::2] if count
    ]
    is_easy = EASY.fullmatch(pattern) is not None and max(counts, default=0) <= LARGEST_UNROLLED
    if not is_json or not is_easy:
        check_bearable(evaluate(program, {}))
    return automaton.work
