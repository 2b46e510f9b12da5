"""Schemas that the engine can compile, as far as that is easily seen."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias, TypeGuard

from umbel_chat.parsers.schema_types import target_of
from umbel_text.grammars.errors import UnservableError
from umbel_text.grammars.schemas import schemas_in

Schema: TypeAlias = Mapping[str, object]

Check: TypeAlias = Callable[[object], bool]
"""Tells whether a keyword may have a value."""

LARGEST_NUMBER = 2**63 - 1


def is_compilable(schema: Schema) -> bool:
    """Tell whether a schema has what every compiler understands, as far as is easily seen.

    Many clients send schemas that nobody has compiled before, with nulls for what is not there.
    """
    try:
        return all(_is_known(node, schema) for node in schemas_in(schema))
    except UnservableError:
        return False


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _is_schema(value: object) -> bool:
    return isinstance(value, (Mapping, bool))


def _allows_something(value: object) -> bool:
    return isinstance(value, Mapping) or value is True


def _are_schemas(value: object) -> bool:
    return isinstance(value, list) and all(map(_allows_something, value))


def _are_objects(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(item, Mapping) for item in value)


def _are_named_schemas(value: object) -> bool:
    return isinstance(value, Mapping) and all(map(_allows_something, value.values()))


def _is_of_strings(value: object) -> bool:
    return isinstance(value, Mapping) and value.get("type", "string") == "string"


def _are_values(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _is_positive(value: object) -> bool:
    return _is_number(value) and value > 0


def _is_whole(value: object) -> bool:
    return _is_number(value) and abs(value) <= LARGEST_NUMBER and value == int(value)


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value <= LARGEST_NUMBER


BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")

OF_ANY: Mapping[str, Check] = MappingProxyType(
    {
        "$ref": _is_text,
        "enum": _are_values,
        **dict.fromkeys(("anyOf", "oneOf", "allOf"), _are_schemas),
    }
)
"""What keywords may have that are read whatever the type is."""

OF_TYPE: Mapping[str, Mapping[str, Check]] = MappingProxyType(
    {
        "object": {
            **dict.fromkeys(("properties", "patternProperties"), _are_named_schemas),
            **dict.fromkeys(("additionalProperties", "unevaluatedProperties"), _is_schema),
            **dict.fromkeys(("minProperties", "maxProperties"), _is_count),
            "propertyNames": _is_of_strings,
            "required": _are_texts,
        },
        "array": {
            **dict.fromkeys(("items", "unevaluatedItems"), _is_schema),
            **dict.fromkeys(("minItems", "maxItems"), _is_count),
            "prefixItems": _are_objects,
        },
        "string": {
            **dict.fromkeys(("pattern", "format"), _is_text),
            **dict.fromkeys(("minLength", "maxLength"), _is_count),
        },
        "number": {**dict.fromkeys(BOUNDS, _is_number), "multipleOf": _is_positive},
        "integer": {**dict.fromkeys(BOUNDS, _is_whole), "multipleOf": _is_positive},
        "boolean": {},
        "null": {},
    }
)
"""What keywords may have that are read where a value may be of a type."""

LIMITS = (
    ("minLength", "maxLength"),
    ("minItems", "maxItems"),
    ("minProperties", "maxProperties"),
    *((low, high) for low in BOUNDS[::2] for high in BOUNDS[1::2]),
)

ROOM: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType(
    {
        "minItems": ("prefixItems", ("items", "unevaluatedItems")),
        "minProperties": (
            "properties",
            ("additionalProperties", "unevaluatedProperties"),
        ),
    }
)
"""By a number of parts: where parts are named, and what allows more of them."""


def _is_known(node: Schema, root: Schema) -> bool:
    said = node.get("type", [])
    types = [said] if isinstance(said, str) else said
    if not isinstance(types, list) or not all(isinstance(name, str) for name in types):
        return False
    if not OF_TYPE.keys() >= set(types):
        return False
    checks = dict(OF_ANY)
    # A schema without a type has that of its keywords; limits of integers are the narrower ones.
    for name in types or ("object", "array", "string", "integer"):
        checks |= OF_TYPE[name]
    if not all(check(node[name]) for name, check in checks.items() if name in node):
        return False
    reference = node.get("$ref")
    if isinstance(reference, str) and not _leads_somewhere(reference, root):
        return False
    return all(_are_in_order(node, *names) for names in LIMITS) and all(
        _has_room(node, name, *places) for name, places in ROOM.items()
    )


def _leads_somewhere(reference: str, root: Schema) -> bool:
    is_pointer = reference == "#" or reference.startswith("#/")
    return is_pointer and target_of(reference, root) is not None


def _are_in_order(node: Schema, low: str, high: str) -> bool:
    least, most = node.get(low), node.get(high)
    if not isinstance(least, (int, float)) or not isinstance(most, (int, float)):
        return True
    return least < most if "exclusive" in low + high else least <= most


def _has_room(node: Schema, name: str, places: str, further: tuple[str, ...]) -> bool:
    least, named = node.get(name), node.get(places)
    count = len(named) if isinstance(named, (Mapping, list)) else 0
    if not isinstance(least, int) or least <= count:
        return True
    return any(node.get(keyword, False) is not False for keyword in further)
