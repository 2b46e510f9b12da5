"""Structural tags: constraints made of texts, schemas and grammars (xgrammar's structural_tag.cc)."""

from collections.abc import Iterator, Mapping, Sequence

from umbel_text.grammars.assembly import MOST_TURNS, evaluate
from umbel_text.grammars.ebnf import check_ebnf
from umbel_text.grammars.errors import GrammarSyntaxError, UnservableError
from umbel_text.grammars.forms import (
    ANYTHING,
    STEP,
    Form,
    check_bearable,
    choice,
    literal,
    repeated,
    sequence,
)
from umbel_text.grammars.heads import EVERYTHING, any_of
from umbel_text.grammars.regex import read_regex
from umbel_text.grammars.schemas import VALUE, check_schema_work
from umbel_text.grammars.tokens import A_TOKEN

Node = Mapping[str, object]

LOOPS: dict[str, tuple[int, int | None]] = {
    "optional": (0, 1),
    "plus": (1, None),
    "star": (0, None),
}
NAMES_OF_SCHEMAS = ("schema", "json_schema")


def check_tag(tag: Node) -> None:
    """Refuse a structural tag that is none (GrammarSyntaxError) or cannot be borne.

    The latter is an UnservableError.  The tag must not nest so deeply that it could not be followed
    by recursion.
    """
    nodes = list(_nodes(tag))
    for is_json in (True, False):
        schemas = [
            node[name]
            for node in nodes
            for name in NAMES_OF_SCHEMAS
            if name in node and _is_json(node) == is_json
        ]
        check_schema_work(schemas, is_json)
    kinds = {node.get("type") for node in nodes if isinstance(node.get("type"), str)}
    if {"repeat", "token_dispatch"} <= kinds:
        raise UnservableError("a repeated dispatch on tokens is not served")
    if "structures" in tag:
        items = [_legacy(item) for item in _list(tag, "structures")]
        check_bearable(_dispatched(items))
    else:
        check_bearable(_form(tag.get("format")))


def _nodes(value: object) -> Iterator[Node]:
    pending = [value]
    while pending:
        node = pending.pop()
        if isinstance(node, Mapping):
            yield node
            pending += [inner for name, inner in node.items() if name not in NAMES_OF_SCHEMAS]
        elif isinstance(node, list):
            pending += node


def _is_json(node: Node) -> bool:
    """Say whether the values that a schema in a node is for are written as JSON."""
    return node.get("style", "json") == "json" and node.get("type") != "qwen_xml_parameter"


def _legacy(item: object) -> Form:
    node = _node(item)
    return sequence((literal(_text(node, "begin")), VALUE, literal(_text(node, "end"))))


def _form(value: object) -> Form:
    """Give what a format matches."""
    node = _node(value)
    kind = node.get("type")
    match kind:
        case "const_string":
            return literal(_text(node, "value"))
        case "json_schema" | "qwen_xml_parameter":
            if not isinstance(node.get("json_schema"), (Mapping, bool)):
                raise GrammarSyntaxError("json_schema must be an object or a bool")
            return (
                VALUE
                if _is_json(node)
                else VALUE._replace(heads=any_of(EVERYTHING), rest=any_of(EVERYTHING))
            )
        case "any_text" | "any_tokens":
            return ANYTHING
        case "token" | "exclude_token":
            return A_TOKEN
        case "regex":
            return evaluate(read_regex(_text(node, "pattern")), {})
        case "grammar":
            return check_ebnf(_text(node, "grammar"))
        case "sequence":
            return sequence([_form(inner) for inner in _list(node, "elements")])
        case "or":
            return choice([_form(inner) for inner in _list(node, "elements")])
        case "optional" | "plus" | "star":
            return repeated(_form(node.get("content")), *LOOPS[str(kind)])
        case "repeat":
            return repeated(_form(node.get("content")), *_limits(node))
        case _:
            return _tags(node)


def _tags(node: Node) -> Form:
    match node.get("type"):
        case "tag":
            return _tag(node)
        case "triggered_tags" | "token_triggered_tags":
            return _dispatched([_tag(inner) for inner in _list(node, "tags")])
        case "tags_with_separator":
            tags = choice([_tag(inner) for inner in _list(node, "tags")])
            return repeated(sequence((tags, literal(_text(node, "separator")))), 0, None)
        case "dispatch" | "token_dispatch":
            rules = _list(node, "rules")
            if not all(isinstance(rule, list) and len(rule) == 2 for rule in rules):
                raise GrammarSyntaxError("a rule of a dispatch must be a pair")
            return _dispatched([_form(rule[1]) for rule in rules if isinstance(rule, list)])
        case None:
            raise UnservableError("formats without a type are not served")
        case _:
            raise GrammarSyntaxError("Format type not recognized")


def _tag(value: object) -> Form:
    node = _node(value)
    begin, end = node.get("begin"), node.get("end")
    ends = end if isinstance(end, list) else [end]
    if not ends:
        raise GrammarSyntaxError("a tag must have an end")
    return sequence(
        (_edge(begin), _form(node.get("content")), choice([_edge(one) for one in ends]))
    )


def _edge(value: object) -> Form:
    return literal(value) if isinstance(value, str) else A_TOKEN


def _dispatched(forms: Sequence[Form]) -> Form:
    """Give the form of text in which what triggers one of the pieces is followed by it."""
    return ANYTHING._replace(
        ways=STEP + max((form.ways for form in forms), default=0),
        work=ANYTHING.work + sum(form.work for form in forms),
    )


def _limits(node: Node) -> tuple[int, int | None]:
    limits: list[int] = []
    for name in ("min", "max"):
        limit = node.get(name)
        if not isinstance(limit, (int, float)) or limit != limit // 1 or limit > MOST_TURNS:
            raise GrammarSyntaxError("the limits of a repetition must be whole numbers")
        limits.append(int(limit))
    low, high = limits
    if low < 0 or high < -1:
        raise GrammarSyntaxError("the limits of a repetition must not be negative")
    return low, None if high == -1 else high


def _node(value: object) -> Node:
    if not isinstance(value, Mapping):
        raise GrammarSyntaxError("Format must be an object")
    return value


def _list(node: Node, name: str) -> list[object]:
    value = node.get(name)
    if not isinstance(value, list) or not value:
        raise GrammarSyntaxError(f"{name} must be a non-empty array")
    return value


def _text(node: Node, name: str) -> str:
    value = node.get(name)
    if not isinstance(value, str):
        raise GrammarSyntaxError(f"{name} must be a string")
    return value
