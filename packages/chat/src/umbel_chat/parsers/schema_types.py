"""What the JSON schema of a tool says of a parameter, and values written as it says."""

import json
import math
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType

STRING = frozenset({"string"})

SPELLINGS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("str", "text", "varchar", "char", "enum"), "string"),
        **dict.fromkeys(("int", "int32", "int64", "uint", "uint32", "uint64"), "integer"),
        **dict.fromkeys(("long", "short", "unsigned"), "integer"),
        **dict.fromkeys(("float", "float32", "float64", "double"), "number"),
        "bool": "boolean",
        "dict": "object",
        **dict.fromkeys(("arr", "list", "sequence"), "array"),
    }
)
"""Types as some clients call them, and what JSON schema calls them."""

# Each can be told to fail in one pass, however long the text is.
INTEGER = re.compile(r"([+-]?)([0-9]+)")
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


TELLING: Mapping[str, str] = MappingProxyType(
    {"properties": "object", "additionalProperties": "object", "items": "array"}
)
"""Keywords that tell the type of a value, and the type."""

MOST_PARTS = 256
"""Alternatives and parts of a schema that are looked at for the type of a parameter."""


def property_of(schema: object, name: str, root: Mapping[str, object]) -> object:
    """Give the schema of a property, None if there is none."""
    for part in _parts(schema, root):
        properties = part.get("properties")
        if isinstance(properties, Mapping) and name in properties:
            return properties[name]
    return None


def items_of(schema: object, root: Mapping[str, object]) -> object:
    """Give the schema of the items of an array, None if there is none."""
    return next((part["items"] for part in _parts(schema, root) if "items" in part), None)


def types_of(schema: object, root: Mapping[str, object]) -> frozenset[str]:
    """Tell which types a value may have; none if the schema does not say.

    `root` is where references lead.
    """
    types: set[str] = set()
    for part in _parts(schema, root):
        said = part.get("type")
        names = said if isinstance(said, list) else [said]
        types.update(_type_name(name) for name in names if isinstance(name, str))
        if said is None:
            # Many schemas leave out the type where another keyword tells it.
            types.update(kind for keyword, kind in TELLING.items() if keyword in part)
        values = part.get("enum")
        types.update(_type_of(value) for value in (values if isinstance(values, list) else []))
        if "const" in part:
            types.add(_type_of(part["const"]))
        if part.get("nullable") is True:
            types.add("null")
    return frozenset(types)


def _parts(schema: object, root: Mapping[str, object]) -> list[Mapping[str, object]]:
    """List a schema and the alternatives and parts that it is made of, each reference once.

    No more than `MOST_PARTS` are looked at: it is done for every parameter, while others wait.
    """
    parts: list[object] = [schema]
    followed: set[str] = set()
    # The list grows while it is read.
    for part in parts:
        if not isinstance(part, Mapping):
            continue
        reference = part.get("$ref")
        if isinstance(reference, str) and reference not in followed:
            followed.add(reference)
            parts.append(target_of(reference, root))
        for key in ("anyOf", "oneOf", "allOf"):
            choices = part.get(key)
            room = MOST_PARTS - len(parts)
            parts += choices[:room] if isinstance(choices, list) and room > 0 else []
    return [part for part in parts if isinstance(part, Mapping)]


def target_of(reference: str, root: Mapping[str, object]) -> object:
    """Give what a reference leads to, None if that is nothing; `root` is where it begins."""
    place: object = root
    for step in reference.removeprefix("#").split("/")[1:]:
        if not isinstance(place, Mapping):
            return None
        place = place.get(step.replace("~1", "/").replace("~0", "~"))
    return place


def _type_name(name: str) -> str:
    name = name.strip().lower()
    return SPELLINGS.get(name, name)


def _type_of(value: object) -> str:
    if value is None:
        return "null"
    # A truth value is an integer for Python, so it comes first.
    for kind, name in (
        (bool, "boolean"),
        (int, "integer"),
        (float, "number"),
        (str, "string"),
        (list, "array"),
    ):
        if isinstance(value, kind):
            return name
    return "object"


def json_of(text: str, types: AbstractSet[str]) -> str:
    """Write a value that a model wrote as plain text as JSON of one of some types.

    Text that is of none of them is the JSON that it says, or else a string; without types, too.
    """
    value = text.strip()
    if "null" in types and (value.lower() == "null" or (value == "None" and "string" not in types)):
        return "null"
    if types & {"integer", "number"} and (whole := INTEGER.fullmatch(value)):
        return whole[1].replace("+", "") + (whole[2].lstrip("0") or "0")
    if "number" in types and NUMBER.fullmatch(value) and math.isfinite(float(value)):
        return value if _is_json(value) else repr(float(value))
    if "boolean" in types and value.lower() in ("true", "1", "false", "0"):
        return "true" if value.lower() in ("true", "1") else "false"
    may_be_json = "string" not in types or (
        bool(types & {"object", "array"}) and value.startswith(("{", "["))
    )
    if may_be_json and _is_json(value):
        return value
    return json.dumps(text, ensure_ascii=False)


def _is_json(text: str) -> bool:
    """Tell whether text is JSON that any client can read: numbers are finite."""
    try:
        json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(text: str) -> None:
    raise ValueError(text)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
