"""JSON schemas: what of them is hard for the compiler."""

import json
import re
from collections.abc import Iterator, Mapping, Set

from umbel_text.grammars.assembly import evaluate
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import ENDLESS, MOST_WORK, STEP, UNROLLED, Form, check_bearable
from umbel_text.grammars.heads import EVERYTHING, any_of, bit, span
from umbel_text.grammars.regex import SPACED_COUNT, read_regex

DEEPEST_SCHEMA = 64
"""How deep objects and arrays may nest in a schema (vllm/sampling_params.py)."""

LONGEST_PATTERNS = 32 * 1024
"""Characters of all patterns of a schema; more take noticeable time to read."""

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

BY_NAME = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
"""Keywords whose objects have a schema for each name."""

VALUES = frozenset({"const", "default", "enum", "examples"})
"""Keywords that have values rather than schemas."""

VALUE = Form(
    heads=any_of(span(0x30, 0x39) | sum(bit(ord(sign)) for sign in '{["-tfn \t\r\n')),
    rest=any_of(span(0x30, 0x39) | sum(bit(ord(sign)) for sign in ".eE+- \t\r\n")),
    inner=EVERYTHING,
    final=span(0x30, 0x39) | sum(bit(ord(sign)) for sign in '}]"el \t\r\n'),
    shortest=1,
    longest=ENDLESS,
    ways=STEP,
)
"""Any JSON value."""


def check_schema(text: str) -> None:
    """Refuse a schema in text that the engine could not bear.

    Raises GrammarSyntaxError for a pattern that is none, UnservableError for the rest.
    """
    try:
        schema: object = json.loads(text)
    except (ValueError, RecursionError):
        raise GrammarSyntaxError("the schema is not JSON") from None
    check_schema_work(schema)


def check_schema_work(schema: object, is_json: bool = True) -> None:
    """Refuse a schema that the engine could not bear; see `check_schema`.

    `is_json` is false for values in another notation, for which patterns become rules.
    """
    limits: set[tuple[int, int]] = set()
    patterns: set[str] = set()
    work = 0
    for node in schemas_in(schema):
        limits.add((_number(node, "minLength"), _number(node, "maxLength")))
        patterns.update(_patterns(node))
        work += _properties_work(node)
        work += _names_work(node)
        if work > MOST_WORK:
            break
    work += sum(LENGTH_WORK * min(UNROLLED, max(low, high)) for low, high in limits)
    check_bearable(Form(work=work))
    length = sum(map(len, patterns))
    if length > LONGEST_PATTERNS:
        raise UnservableError(
            f"its patterns have {length} characters, more than {LONGEST_PATTERNS}"
        )
    for pattern in patterns:
        work += _pattern_work(pattern, is_json)
        check_bearable(Form(work=work))


def schemas_in(schema: object) -> Iterator[Mapping[str, object]]:
    """Give every schema in a schema that is not empty; refuses what is nested too deeply."""
    referred = _referred_names(schema)
    level: list[tuple[object, bool]] = [(schema, False)]
    while level:
        below: list[tuple[object, bool]] = []
        for node, is_by_name in level:
            if isinstance(node, Mapping):
                if node and not is_by_name:
                    yield node
                below += [
                    (inner, not is_by_name and name in BY_NAME)
                    for name, inner in node.items()
                    if is_by_name or not _is_value(name, referred)
                ]
            elif isinstance(node, list):
                below += [(inner, False) for inner in node]
        level = below


def _is_value(name: str, referred: Set[str]) -> bool:
    """Say whether what a keyword has is no schema, and nothing refers to it as to one."""
    return (name in VALUES or name.startswith("x-")) and name not in referred


def _referred_names(schema: object) -> Set[str]:
    """Give the names that references in a schema go through; refuses one nested too deeply."""
    if is_deeper(schema, DEEPEST_SCHEMA):
        raise UnservableError(
            f"objects and arrays are nested more than {DEEPEST_SCHEMA} levels deep"
        )
    level, names = [schema], set[str]()
    while level:
        for node in level:
            if isinstance(node, Mapping) and isinstance(reference := node.get("$ref"), str):
                names.update(reference.split("/"))
        level = [child for node in level for child in _children(node)]
    return names


def objects_in(schema: object) -> Iterator[Mapping[str, object]]:
    """Give the objects in a schema that vLLM's checks look at: those in objects and in their lists."""
    pending = [schema]
    while pending:
        node = pending.pop()
        if not isinstance(node, Mapping):
            continue
        yield node
        for value in node.values():
            if isinstance(value, Mapping):
                pending.append(value)
            elif isinstance(value, list):
                pending += value


def is_deeper(value: object, deepest: int) -> bool:
    """Say whether the objects and arrays of a value nest more than so deep."""
    level = [value]
    for _ in range(deepest):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


def _children(node: object) -> list[object]:
    inner: list[object] = []
    if isinstance(node, Mapping):
        inner = list(node.values())
    elif isinstance(node, list):
        inner = node
    return [child for child in inner if isinstance(child, (Mapping, list))]


def _number(node: Mapping[str, object], name: str) -> int:
    value = node.get(name)
    return int(min(value, ENDLESS)) if isinstance(value, (int, float)) and value > 0 else 0


def _patterns(node: Mapping[str, object]) -> Iterator[str]:
    pattern = node.get("pattern")
    types = node.get("type", "string")
    if isinstance(pattern, str) and (
        "string" in types if isinstance(types, list) else types == "string"
    ):
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
