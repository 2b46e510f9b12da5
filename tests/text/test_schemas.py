"""What an engine can bear of JSON schemas; see `test_grammars.py`."""

import json

import pytest

from umbel_text.grammars.schemas import schemas_in

from .constraints import refusal


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {f"k{index}": {} for index in range(1000)}},
        {
            "type": "object",
            "properties": {f"k{index}": {} for index in range(5000)},
            "required": [f"k{index}" for index in range(5000)],
        },
        {"anyOf": [{"type": "string", "maxLength": size} for size in range(90, 120)]},
        {"anyOf": [{"type": "string", "maxLength": 200}] * 500},
        {"enum": [f"value {index}" for index in range(5000)]},
        {"type": "string", "minLength": 1, "maxLength": 10**9},
        {"type": "array", "minItems": 10**9, "items": {"type": "array", "minItems": 1000}},
        {
            "type": "object",
            "minProperties": 1,
            "properties": {f"k{index}": {} for index in range(50)},
        },
        {"type": "string", "pattern": r"^(\w+ ?){1,50}$"},
        {"type": "string", "pattern": r"^(?=.*[A-Z])(?=.*\d)[A-Za-z\d]{8,64}$"},
        {"type": "string", "pattern": "(?i)^(?P<name_1>a)$"},
        {
            "$ref": "#/$defs/a",
            "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#"}}}},
        },
        {"properties": {"pattern": {"type": "string"}, "minLength": {"type": "integer"}}},
        {"type": "object", "examples": [{"pattern": "*.py"}], "default": {"pattern": "("}},
        {"enum": [{"pattern": "("}]},
        {"type": "integer", "pattern": "("},
        {"properties": {"default": {"type": "string"}}, "x-editor": {"pattern": "*"}},
        {"minLength": "no number", "maxLength": True, "properties": [], "enum": 5, "required": 7},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_a_schema_of_daily_use_passes(schema: dict[str, object]) -> None:
    assert refusal(json=schema) is None
    assert refusal(json=json.dumps(schema)) is None


@pytest.mark.parametrize(
    "schema",
    [
        {"anyOf": [{"type": "string", "minLength": size} for size in range(1000)]},
        {"type": "object", "properties": {f"k{index}": {} for index in range(5000)}},
        {
            "type": "object",
            "maxProperties": 200,
            "properties": {f"k{index}": {} for index in range(300)},
        },
        {"enum": list(range(60_000))},
        {"type": "string", "pattern": "^([a-z]{1,100}){1,100}$"},
        {"type": "string", "pattern": r'^"(\w+ ?){1,50}$'},
        {"type": "string", "pattern": r"^(\w+é? ?){1,50}$"},
        {"type": "object", "patternProperties": {r"^(\w+ ?){1,500}$": {}}},
        {"properties": {"default": {"pattern": "^([a-z]{1,100}){1,100}$"}}},
        {"$ref": "#/x-a", "x-a": {"pattern": "^([a-z]{1,100}){1,100}$"}},
        {"anyOf": [{"pattern": f"{index}" + "(a|b)" * 50} for index in range(900)]},
    ],
    ids=lambda schema: str(schema)[:40],
)
def test_a_schema_that_would_stall_the_engine_is_refused(schema: dict[str, object]) -> None:
    assert (refusal(json=schema) or "").startswith("structured_outputs.json cannot be served: ")


@pytest.mark.timeout(20)
def test_many_references_and_keywords_of_editors_take_no_longer_than_others() -> None:
    count = 40_000
    schema: dict[str, object] = {f"x-{index}": {"type": "float"} for index in range(count)}
    reference = "#/x-3" + "/x" * 10
    schema["properties"] = {f"p{index}": {"$ref": reference} for index in range(count)}
    # The schema itself, its properties, and the one keyword that is referred to.
    assert sum(1 for _ in schemas_in(schema)) == 1 + count + 1
