"""Structured outputs: what is refused, and what goes to the engine."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_engine import StructuredOutputs
from umbel_text import InvalidRequestError
from umbel_text.structured_outputs import check_structured_outputs


def nested(levels: int) -> dict[str, object]:
    value: dict[str, object] = {}
    for _ in range(levels - 1):
        value = {"properties": value}
    return value


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "You must use one kind of structured outputs constraint but none are specified: {"),
        (
            {"regex": "a", "grammar": "x"},
            "You can only use one kind of structured outputs constraint but multiple are specified",
        ),
        ({"choice": []}, "Choice '[]' cannot be an empty list"),
        ({"grammar": " \n"}, "structured_outputs.grammar cannot be an empty string"),
        ({"json": ""}, "structured_outputs.json cannot be an empty string"),
        ({"structural_tag": " "}, "structured_outputs.structural_tag cannot be an empty string"),
        ({"structural_tag": "[" * 100_000}, "The JSON schema is nested too deeply: "),
        ({"json": "{"}, "Invalid JSON grammar specification."),
        ({"json": nested(65)}, "The JSON schema is nested too deeply"),
        ({"json": json.dumps(nested(65))}, "The JSON schema is nested too deeply"),
        ({"json": "[" * 100_000}, "The JSON schema is nested too deeply"),
        ({"json_object": False}, "structured_outputs.json_object must be True if set"),
        ({"regex": "a\0b"}, "structured_outputs.regex must not contain a NUL character ('\\x00')"),
        ({"structural_tag": "{}"}, "Invalid structured_outputs structural_tag specification."),
        ({"structural_tag": "x"}, "Invalid structured_outputs structural_tag specification."),
        (
            {"structural_tag": '{"structures": [{"begin": "a", "end": "b"}], "triggers": ["a"]}'},
            "Invalid structured_outputs structural_tag specification.",
        ),
        (
            {"json": {"type": "integer", "multipleOf": 3}},
            "The provided JSON schema contains features not supported by xgrammar.",
        ),
        (
            {"json": "5"},
            "Failed to transform json schema into a grammar: Schema should be an object",
        ),
        ({"json": '{"const": NaN}'}, "Failed to transform json schema into a grammar: "),
        (
            {"json": {"type": "string", "pattern": "("}},
            "Failed to transform json schema into a grammar: Regex parsing error at position 2: ",
        ),
        (
            {"regex": "(?=a)b"},
            "Failed to transform regex into a grammar: Regex parsing error at position 3: Lookahead "
            "is not supported yet.",
        ),
        ({"regex": "*"}, "Failed to transform regex into a grammar: "),
        ({"grammar": "hello world"}, "Invalid grammar specification."),
        ({"grammar": 'root ::= "a'}, "Invalid grammar specification."),
        ({"grammar": 'a ::= "a"'}, "Invalid grammar specification."),
        ({"grammar": "root ::= a"}, "Invalid grammar specification."),
        ({"grammar": 'a: "a"'}, "Invalid grammar specification."),
        ({"grammar": "start: a"}, "Invalid grammar specification."),
        (
            {"structural_tag": '{"format": {"type": "color"}}'},
            "Invalid structural tag specification.",
        ),
        (
            {"structural_tag": '{"format": {"type": "regex", "pattern": "("}}'},
            "Invalid structural tag specification.",
        ),
    ],
)
def test_what_vllm_refuses_is_refused_in_its_words(fields: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_structured_outputs(msgspec.convert(fields, StructuredOutputs), "xgrammar")
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "\ud800"},
        {"choice": ["\udfff"]},
        {"json": {"const": 2**64}},
        {"json": {"const": "\ud800"}},
        {"regex": "a" * 20_000},
        {"grammar": 'root ::= "' + "a" * 70_000 + '"'},
        {"choice": ["a"] * 10_000},
        {"choice": ["a" * 70_000]},
        {"json": {"const": "a" * 300_000}},
        {"json": {"type": "string", "pattern": "a" * 20_000}},
        {"json": '{"type": "string", "type": "integer"}'},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_what_the_wire_or_the_compiler_has_no_room_for_is_refused(
    fields: dict[str, object],
) -> None:
    constraint = StructuredOutputs(**fields)  # type: ignore[arg-type]
    with pytest.raises(InvalidRequestError) as caught:
        check_structured_outputs(constraint, "xgrammar")
    assert caught.value.parameter == "structured_outputs"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "number", "multipleOf": 2},
        {"type": ["string", "integer"], "multipleOf": 2},
        {"type": "array", "uniqueItems": True},
        {"type": "array", "contains": {}},
        {"type": "string", "format": "color"},
        {"type": "string", "format": 7},
        {"type": "string", "pattern": "a", "maxLength": 3},
        {"type": "object", "propertyNames": {"pattern": "a", "minLength": 1}},
        {"type": "object", "propertyNames": {}, "properties": {}},
        {"type": "object", "propertyNames": {}, "unevaluatedProperties": False},
        {"type": "object", "patternProperties": {"a": {}}, "properties": {}},
        {"type": "object", "patternProperties": {"a": {}, "b": {}}},
        {"allOf": [{}, {}]},
        {"anyOf": [{}, {"items": {"type": "array", "minContains": 1}}]},
    ],
    ids=str,
)
def test_what_xgrammar_would_not_enforce_is_refused(schema: dict[str, object]) -> None:
    constraint = StructuredOutputs(json={"properties": {"a": schema}})
    with pytest.raises(InvalidRequestError, match="features not supported by xgrammar"):
        check_structured_outputs(constraint, "xgrammar")
    instead = "outlines" if "patternProperties" in schema else "guidance"
    assert check_structured_outputs(constraint, "auto").backend == instead
    assert check_structured_outputs(constraint, "outlines").backend == "outlines"


@pytest.mark.parametrize(
    "schema",
    [
        {},
        {"type": "string", "multipleOf": 2},
        {"type": "array", "items": {"type": "integer", "minimum": 3}},
        {"type": "string", "format": "date-time"},
        {"type": "string", "pattern": "a"},
        {"type": "object", "propertyNames": {"pattern": "a"}},
        {"type": "object", "patternProperties": {"a": {}}},
        {"allOf": [{"type": "string"}]},
        nested(64),
    ],
    ids=str,
)
def test_other_schemas_pass_as_they_are(schema: dict[str, object]) -> None:
    for json_schema in (schema, json.dumps(schema)):
        got = check_structured_outputs(StructuredOutputs(json=json_schema), "auto")
        assert got == StructuredOutputs(json=json_schema, backend="xgrammar")


def test_a_choice_becomes_a_grammar() -> None:
    choice = ["yes", 'a "quoted" \\ one', "two\nlines\t\r", "\x00\x7f", "naïve"]
    got = check_structured_outputs(StructuredOutputs(choice=choice), "xgrammar")
    assert got.choice is None
    assert got.grammar == (
        'root ::= "yes" | "a \\"quoted\\" \\\\ one" | "two\\nlines\\t\\r" | "\\u0000\\u007f" | "naïve"'
    )


def test_other_backends_get_the_choice_itself() -> None:
    got = check_structured_outputs(StructuredOutputs(choice=["a"]), "guidance")
    assert got == StructuredOutputs(choice=["a"], backend="guidance")


@pytest.mark.parametrize(
    ("fields", "backend"),
    [
        ({"regex": "a+"}, "xgrammar"),
        ({"regex": "(?=a)b"}, "guidance"),
        ({"choice": ["a"]}, "xgrammar"),
        ({"json_object": True}, "xgrammar"),
        ({"json": {"type": "string"}}, "xgrammar"),
        ({"json": {"type": "integer", "multipleOf": 2}}, "guidance"),
        ({"json": '{"type": "array", "uniqueItems": true}'}, "guidance"),
        ({"json": {"type": "object", "properties": {}, "patternProperties": {}}}, "outlines"),
        ({"grammar": 'root ::= "a"'}, "xgrammar"),
        ({"grammar": 'start: "a"'}, "xgrammar"),
        ({"grammar": "start: /(?=a)b/"}, "guidance"),
    ],
)
def test_auto_takes_the_backend_that_vllm_would(fields: dict[str, object], backend: str) -> None:
    got = check_structured_outputs(msgspec.convert(fields, StructuredOutputs), "auto")
    assert got.backend == backend


@pytest.mark.parametrize(
    "fields",
    [
        {"regex": "\\c\U0010ffff"},
        {"regex": r"(\w+\s*){1,1000}"},
        {"json": {"type": "string", "multipleOf": 2, "pattern": '^"(([a-z]{1,99}){1,99}){1,99}'}},
        {"grammar": "root ::= root{2,}"},
    ],
    ids=str,
)
def test_auto_hands_nothing_that_would_do_harm_to_another_backend(
    fields: dict[str, object],
) -> None:
    # An engine of 0.32 goes on with the backend that it began with.
    with pytest.raises(InvalidRequestError):
        check_structured_outputs(msgspec.convert(fields, StructuredOutputs), "auto")


LEGACY_TAG = {
    "structures": [{"begin": "<a>", "schema": {}, "end": "</a>"}],
    "triggers": ["<a"],
}


@pytest.mark.parametrize(
    ("backend", "fields", "message"),
    [
        ("guidance", {"json": "5"}, "Invalid grammar specification: Expecting object schema"),
        (
            "guidance",
            {"structural_tag": '{"format": {"type": "any_text"}}'},
            "Invalid grammar specification: 'triggers'",
        ),
        (
            "guidance",
            {"structural_tag": json.dumps({**LEGACY_TAG, "triggers": ["<b"]})},
            "Trigger <a> not found in triggers ['<b']",
        ),
        (
            "guidance",
            {"structural_tag": '{"structures": [], "triggers": ["<b"]}'},
            "No structural tags found in the grammar spec.",
        ),
        ("outlines", {"json": "{"}, "Invalid JSON grammar specification."),
        (
            "outlines",
            {"json_object": True},
            "Outlines structured outputs backend does not support json_object specifications",
        ),
        (
            "outlines",
            {"grammar": "x"},
            "Outlines structured outputs backend does not support grammar specifications",
        ),
        (
            "outlines",
            {"structural_tag": json.dumps(LEGACY_TAG)},
            "Outlines structured outputs backend does not support structural_tag specifications",
        ),
        ("outlines", {"regex": "("}, "Error parsing regex: missing ), unterminated subpattern"),
        ("outlines", {"regex": "(" * 5000}, "Error parsing regex: "),
        ("outlines", {"regex": "a{1,99999999999}"}, "Error parsing regex: "),
        (
            "outlines",
            {"regex": r"(a)\1"},
            "Regex uses unsupported feature for structured outputs: Backreferences are unsupported.. "
            "Only basic matching constructs are supported",
        ),
        (
            "outlines",
            {"regex": "a(?=b)"},
            "Regex uses unsupported feature for structured outputs: Look-Around assertion are",
        ),
        (
            "outlines",
            {"regex": r"a\b"},
            "Regex uses unsupported feature for structured outputs: Unicode word boundaries are",
        ),
        ("outlines", {"regex": "(^a|b)c"}, "Regex does not have a anchored universal start state"),
        ("outlines", {"regex": "(x*|$)c"}, "Regex does not have a anchored universal start state"),
        (
            "lm-format-enforcer",
            {"grammar": "x"},
            "LM Format Enforcer structured outputs backend does not support grammar specifications",
        ),
        ("lm-format-enforcer", {"json": "{"}, "Invalid JSON grammar specification."),
    ],
)
def test_other_backends_refuse_what_vllm_refuses_for_them(
    backend: str, fields: dict[str, object], message: str
) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        check_structured_outputs(msgspec.convert(fields, StructuredOutputs), backend)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("backend", "fields"),
    [
        ("guidance", {"json": {"type": "integer", "multipleOf": 2}}),
        ("guidance", {"regex": "(?=a)"}),
        ("guidance", {"structural_tag": json.dumps(LEGACY_TAG)}),
        ("outlines", {"regex": "(ab|c)+[0-9]{1,3}$"}),
        ("outlines", {"regex": "[[a]"}),
        ("outlines", {"choice": ["a*"]}),
        ("outlines", {"json": {"patternProperties": {"a": {}, "b": {}}}}),
        ("lm-format-enforcer", {"regex": "a+"}),
        ("lm-format-enforcer", {"json_object": True}),
        ("lm-format-enforcer", {"choice": ["a"]}),
    ],
)
def test_other_backends_get_what_they_take_as_it_is(
    backend: str, fields: dict[str, object]
) -> None:
    constraint = msgspec.convert(fields, StructuredOutputs)
    got = check_structured_outputs(constraint, backend)
    assert got == msgspec.structs.replace(constraint, backend=backend)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=20,
)


@given(schema=st.dictionaries(st.text(), anything, max_size=4), as_text=st.booleans())
def test_what_passes_can_be_sent(schema: dict[str, object], as_text: bool) -> None:
    value = json.dumps(schema) if as_text else schema
    try:
        got = check_structured_outputs(StructuredOutputs(json=value), "xgrammar")
    except InvalidRequestError:
        return
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(got), type=StructuredOutputs) == got
