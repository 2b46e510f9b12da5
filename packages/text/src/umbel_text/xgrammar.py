"""What the backend xgrammar supports; its library is not imported, since it needs torch.

The rules are those of vllm/v1/structured_output/backend_xgrammar.py and utils.py.
"""

from collections.abc import Iterable, Mapping, Sequence

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

ESCAPES = {"\\": r"\\", '"': r"\"", "\n": r"\n", "\r": r"\r", "\t": r"\t"}


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
    pending = [schema]
    while pending:
        node = pending.pop()
        if not isinstance(node, Mapping):
            continue
        if _is_unsupported(node):
            return True
        for value in node.values():
            if isinstance(value, Mapping):
                pending.append(value)
            elif isinstance(value, list):
                pending += value
    return False


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
