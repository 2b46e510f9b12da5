"""Values that models write as plain text, as the schema of a tool says."""

import itertools
import json

import pytest

from umbel_chat.parsers.schema_types import items_of, json_of, property_of, types_of

LOOP = {"anyOf": [{"$ref": "#/$defs/loop"}, {"type": "null"}]}
ROOT: dict[str, object] = {
    "properties": {
        "count": {"$ref": "#/$defs/count"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "several": {"type": ["number", "string"]},
        "one": {"oneOf": [{"allOf": [{"type": "bool"}, {"description": "?"}]}]},
        "choice": {"enum": ["a", 1, 2.5, None, True, [], {}]},
        "fixed": {"const": 5},
        "maybe": {"type": "string", "nullable": True},
        "loop": LOOP,
        "nowhere": {"$ref": "#/$defs/missing/deeper"},
        "escaped": {"$ref": "#/$defs/a~1b~0c"},
        "anything": {},
        "members": {"properties": {"a": {}}},
        "map": {"anyOf": [{"additionalProperties": {"type": "string"}}, {"type": "null"}]},
        "untyped": {"items": {"type": "string"}},
        "always": True,
        "odd": {"type": 5, "enum": "a", "anyOf": {}, "$ref": 1},
        "list": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
    },
    "$defs": {"count": {"type": "INTEGER"}, "loop": LOOP, "a/b~c": {"type": "object"}},
}


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("count", {"integer"}),
        ("either", {"integer", "null"}),
        ("several", {"number", "string"}),
        ("one", {"boolean"}),
        ("choice", {"string", "integer", "number", "null", "boolean", "array", "object"}),
        ("fixed", {"integer"}),
        ("maybe", {"string", "null"}),
        ("loop", {"null"}),
        ("nowhere", set()),
        ("escaped", {"object"}),
        ("anything", set()),
        ("members", {"object"}),
        ("map", {"object", "null"}),
        ("untyped", {"array"}),
        ("always", set()),
        ("odd", set()),
        ("list", {"array", "null"}),
        ("missing", set()),
    ],
)
def test_a_schema_says_which_types_a_parameter_may_have(name: str, types: set[str]) -> None:
    assert types_of(property_of(ROOT, name, ROOT), ROOT) == types


def test_items_are_found_in_an_alternative() -> None:
    assert items_of(property_of(ROOT, "list", ROOT), ROOT) == {"type": "integer"}


def test_references_that_multiply_are_followed_once() -> None:
    names = [f"n{index}" for index in range(60)]
    pairs = itertools.pairwise(names)
    definitions: dict[str, object] = {
        name: {"anyOf": [{"$ref": f"#/$defs/{after}"}] * 2} for name, after in pairs
    }
    definitions[names[-1]] = {"type": "integer"}
    root: dict[str, object] = {"$defs": definitions}
    assert types_of({"$ref": "#/$defs/n0"}, root) == {"integer"}


@pytest.mark.parametrize(
    ("text", "types", "expected"),
    [
        ("5", {"string"}, '"5"'),
        ("5", {"string", "integer"}, "5"),
        (" +007 ", {"integer"}, "7"),
        ("-0", {"integer"}, "-0"),
        ("1_000", {"integer"}, '"1_000"'),
        ("٣", {"integer"}, '"٣"'),
        ("5.0", {"integer"}, "5.0"),
        ("5", {"number"}, "5"),
        ("1.50e3", {"number"}, "1.50e3"),
        (".5", {"number"}, "0.5"),
        ("5.", {"number", "string"}, "5.0"),
        ("inf", {"number"}, '"inf"'),
        ("NaN", {"number"}, '"NaN"'),
        ("1e999", {"number"}, '"1e999"'),
        (" TRUE ", {"boolean"}, "true"),
        ("1", {"boolean"}, "true"),
        ("1", {"boolean", "integer"}, "1"),
        ("False", {"boolean", "string"}, "false"),
        ("yes", {"boolean"}, '"yes"'),
        ("Null", {"null", "string"}, "null"),
        ("null", {"string"}, '"null"'),
        ("null", {"integer"}, "null"),
        ("None", {"integer", "null"}, "null"),
        ("None", {"string", "null"}, '"None"'),
        ('{"a":  1}', {"object"}, '{"a":  1}'),
        (' {"a": 1}\n', {"object", "string"}, '{"a": 1}'),
        ("5", {"object", "string"}, '"5"'),
        ("[1, 1e999]", {"array"}, '"[1, 1e999]"'),
        ('{"a": NaN}', {"object"}, '"{\\"a\\": NaN}"'),
        ("[" * 100_000, {"array"}, json.dumps("[" * 100_000)),
        ("9" * 200_000 + "x", {"number"}, json.dumps("9" * 200_000 + "x")),
        (" a ", {"integer"}, '" a "'),
        ("[1]", set(), "[1]"),
        ("a", set(), '"a"'),
        ("ü", set(), '"ü"'),
    ],
)
def test_a_value_is_of_a_type_that_it_may_have(text: str, types: set[str], expected: str) -> None:
    assert json_of(text, types) == expected
