"""What answers are held to so that they call tools."""

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_chat import InvalidChatError, NamedTool, Tool
from umbel_chat.call_names import check_names
from umbel_chat.constraint import tool_constraint
from umbel_chat.parsers.registry import TOOL_FORMATS
from umbel_engine import StructuredOutputs

HERMES, GRANITE, MISTRAL = (TOOL_FORMATS[name] for name in ("hermes", "granite4", "mistral"))
QWEN, HARMONY = (TOOL_FORMATS[name] for name in ("qwen3_coder", "openai"))

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ANY = {"type": "object"}
OWN = StructuredOutputs(json={"type": "object", "properties": {"answer": {"type": "integer"}}})


def tool(name="get_weather", parameters=CITY, strict=None):
    return Tool(name, {}, parameters, strict)


def constraint(tools, form=HERMES, choice="required", single=False, own=None, backend="auto"):
    return tool_constraint(form, tools, choice, single, own, backend)


def format_of(made):
    assert made.json is None
    return json.loads(made.structural_tag)["format"]


def schemas_of(form):
    """Give the schemas in a format, in order."""
    if isinstance(form, list):
        return [schema for part in form for schema in schemas_of(part)]
    if not isinstance(form, dict):
        return []
    own = [form["json_schema"]] if "json_schema" in form else []
    return own + [
        schema
        for name, part in form.items()
        if name != "json_schema"
        for schema in schemas_of(part)
    ]


def held_to(*tools, **options):
    """Give what the arguments of the first spelling of each tool are held to."""
    tags = format_of(constraint(tools, **options))["tags"]
    schemas = [tag["content"]["json_schema"] for tag in tags]
    return schemas[::2]


# Calls that must be, in the form of the model.


def test_arguments_keep_to_their_schemas_unless_a_tool_is_not_strict():
    tools = [tool("a"), tool("b", strict=True), tool("c", strict=False), tool("d", None)]
    assert held_to(*tools) == [CITY, CITY, ANY, ANY]


def test_the_arguments_of_tagged_formats_are_free_in_their_own_way():
    form = format_of(constraint([tool(strict=False)], QWEN))
    assert form["tags"][0]["content"] == {
        "type": "json_schema",
        "json_schema": True,
        "style": "qwen_xml",
    }


def test_a_named_tool_is_called_once():
    form = format_of(constraint([tool("a"), tool("b")], choice=NamedTool("b")))
    assert {tag["begin"] for tag in form["tags"]} == {
        '<tool_call>\n{"name": "b", "arguments": ',
        '<tool_call>{"name": "b", "arguments": ',
    }
    assert form["stop_after_first"]


@pytest.mark.parametrize("single", [False, True])
def test_calls_may_be_one_or_many(single):
    form = format_of(constraint([tool()], single=single))
    assert (form["at_least_one"], form["stop_after_first"]) == (True, single)


def test_names_are_written_as_the_format_does():
    name = 'a "b"\n{json_name} {name} é'
    (first, _) = format_of(constraint([tool(name)]))["tags"]
    assert first["begin"] == (
        '<tool_call>\n{"name": "a \\"b\\"\\n{json_name} {name} é", "arguments": '
    )
    name = "{json_name}é"
    (tag,) = format_of(constraint([tool(name)], QWEN))["tags"]
    assert tag["begin"] == f"<tool_call>\n<function={name}>\n"


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("hermes", ["", "</tool_call>"]),
        ("llama3_json", [""]),
        ("kimi_k2", ["", "<|tool_call_end|>"]),
        ("deepseek_v3", ["", "a\nb", "a```"]),
        ("deepseek_v31", ["", "<｜tool▁sep｜>", " a"]),
        ("deepseek_v32", ["", "a b", 'a"', "a>"]),
        ("qwen3_coder", ["", "a b", "a>", "</function>"]),
        ("minimax_m2", ["", "a b", "a<", "a\n"]),
        ("glm45", ["", "a b", "{a}", "<arg_key>"]),
        ("openai", ["", "a b", "<|call|>"]),
        ("granite4", [""]),
    ],
)
def test_a_name_that_could_not_be_read_is_refused_where_calls_must_be(form, names):
    for name in names:
        tools = [tool("a"), tool(name, strict=True)]
        with pytest.raises(InvalidChatError, match="cannot be written") as raised:
            constraint(tools, TOOL_FORMATS[form])
        assert raised.value.parameter == "tools"
        assert constraint(tools, TOOL_FORMATS[form], NamedTool("a")) is not None
        constraint(tools, TOOL_FORMATS[form], "auto")
    for name in ("a.b-c_9", "wetter_für_東京_🎉"):
        assert constraint([tool(name)], TOOL_FORMATS[form]) is not None


NAME = st.text(string.ascii_letters + string.digits + "_-.", min_size=1, max_size=12)


@pytest.mark.parametrize("form", TOOL_FORMATS)
@given(name=NAME)
def test_names_of_which_the_refusal_says_so_can_be_written_in_every_format(form, name):
    check_names(TOOL_FORMATS[form], [tool(name)])


@pytest.mark.parametrize(
    "parameters",
    [{"type": "string"}, {"type": ["array", "null"]}, {"type": "integer", "minimum": 3}],
)
@pytest.mark.parametrize("strict", [None, True])
def test_arguments_are_an_object_whatever_a_schema_says(parameters, strict):
    assert held_to(tool(parameters=parameters, strict=strict)) == [ANY]
    made = constraint([tool(parameters=parameters)], GRANITE, NamedTool("get_weather"))
    assert made.json == ANY


@pytest.mark.parametrize(
    "parameters",
    [{}, {"type": ["object", "null"]}, {"properties": {"a": {}}}, {"anyOf": [CITY]}],
)
def test_a_schema_may_leave_out_that_it_is_of_objects(parameters):
    assert held_to(tool(parameters=parameters)) == [parameters]


@pytest.mark.parametrize(
    "part",
    [
        {"type": "float"},
        {"type": ["string", "any"]},
        {"$ref": "#/nowhere"},
        {"$ref": "#/$defs/b"},
        {"$ref": "#anchor"},
        {"$ref": "https://example.com/schema"},
        {"type": "integer", "maximum": 2**64},
        {"type": "integer", "exclusiveMinimum": -1e300},
        {"type": "array", "items": [[[{"type": "dict"}]]]},
        {"type": None},
        {"type": ["string", None]},
        {"type": "object", "properties": None},
        {"type": "object", "properties": {"b": None}},
        {"type": "object", "properties": {"b": "string"}},
        {"type": "object", "properties": {"b": False}},
        {"type": "object", "required": None},
        {"type": "object", "required": [5]},
        {"type": "object", "additionalProperties": None},
        {"type": "object", "propertyNames": {"type": "integer"}},
        {"type": "object", "minProperties": 1},
        {"type": "object", "minProperties": 3, "maxProperties": 2, "additionalProperties": True},
        {"type": "array", "items": None},
        {"type": "array", "items": [{"type": "string"}]},
        {"type": "array", "prefixItems": [True]},
        {"type": "array", "minItems": 1},
        {"type": "string", "enum": None},
        {"enum": []},
        {"type": "string", "pattern": None},
        {"type": "string", "format": 5},
        {"type": "string", "minLength": 1.5},
        {"type": "string", "minLength": True},
        {"type": "string", "minLength": 3, "maxLength": 2},
        {"type": "integer", "minimum": 0.5},
        {"type": "integer", "minimum": 0, "exclusiveMinimum": True},
        {"type": "integer", "exclusiveMinimum": 2, "maximum": 2},
        {"type": "number", "minimum": "0"},
        {"type": "number", "multipleOf": 0},
        {"anyOf": None},
        {"oneOf": ["string"]},
        {"allOf": [None]},
        {"$ref": None},
        {"properties": None},
    ],
)
def test_a_schema_that_no_compiler_takes_is_enforced_only_if_strict(part):
    bad = {"type": "object", "properties": {"a": part}}
    tools = [tool("a", bad), tool("b"), tool("c", bad, strict=True)]
    assert held_to(*tools) == [ANY, CITY, bad]


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a~1b"},
        {"type": "number", "maximum": 1e300},
        {"type": "integer", "maximum": 2**63 - 1},
        {"default": {"type": "float"}, "enum": [{"$ref": "#/nowhere"}]},
        {"type": "string", "required": True, "items": None, "minimum": None},
        {"type": "array", "minItems": 2, "maxItems": 2, "items": {}},
        {"type": "array", "minItems": 1, "prefixItems": [{}]},
        {"type": "object", "minProperties": 1, "additionalProperties": {}},
        {"type": "object", "properties": {"b": True}, "required": [], "minProperties": 1},
        {"type": "integer", "minimum": 2.0, "maximum": 2, "multipleOf": 0.5},
    ],
)
def test_a_schema_that_compilers_take_is_enforced(part):
    schema = {
        "type": "object",
        "properties": {"type": {"type": "string"}, "a": part},
        "$defs": {"a/b": {}},
    }
    assert held_to(tool(parameters=schema)) == [schema]


def test_a_schema_that_is_refused_leaves_arguments_free_unless_strict():
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(((("}}}
    assert held_to(tool("a", bad), tool("b"), tool("c", strict=True)) == [ANY, ANY, CITY]
    with pytest.raises(InvalidChatError, match="Calls of these tools cannot be enforced") as raised:
        constraint([tool("a", bad, strict=True)])
    assert raised.value.parameter == "tools"


def deep(levels):
    schema = {}
    for _ in range(levels):
        schema = {"type": "array", "items": schema}
    return {"type": "object", "properties": {"a": schema}}


def test_a_schema_that_is_too_deep_leaves_arguments_free():
    assert held_to(tool(parameters=deep(100))) == [ANY]
    with pytest.raises(InvalidChatError):
        constraint([tool(parameters=deep(100), strict=True)])
    with pytest.raises(InvalidChatError):
        constraint([tool(parameters=deep(5000), strict=True)])


def test_more_tools_than_fit_are_refused():
    with pytest.raises(InvalidChatError, match="bytes") as raised:
        constraint([tool(f"tool_{index}") for index in range(3000)])
    assert raised.value.parameter == "tools"


# Calls that must be, as JSON.


def test_calls_in_json_are_an_array():
    made = constraint([tool("a"), tool("b", None), tool("c", strict=False)], GRANITE)
    assert made.json == {
        "type": "array",
        "minItems": 1,
        "items": {
            "type": "object",
            "anyOf": [
                {
                    "properties": {
                        "name": {"type": "string", "enum": [name]},
                        "parameters": parameters,
                    },
                    "required": ["name", "parameters"],
                }
                for name, parameters in (
                    ("a", CITY),
                    ("b", {"type": "object", "properties": {}}),
                    ("c", ANY),
                )
            ],
        },
    }
    assert constraint([tool()], GRANITE, single=True).json["maxItems"] == 1


def test_a_named_call_in_json_is_its_arguments():
    tools = [tool("a"), tool("b", None)]
    assert constraint(tools, GRANITE, NamedTool("a")).json == CITY
    nothing = {"type": "object", "properties": {}}
    assert constraint(tools, GRANITE, NamedTool("b")).json == nothing


def defining(name, **definitions):
    schema = {"type": "object", "properties": {"x": {"$ref": "#/$defs/x"}}, "$defs": definitions}
    return tool(name, schema)


def test_definitions_move_to_the_top_and_must_not_conflict():
    first = defining("a", x={"type": "string"})
    second = defining("b", x={"type": "string"}, y={})
    made = constraint([first, second], GRANITE)
    assert made.json["$defs"] == {"x": {"type": "string"}, "y": {}}
    assert "$defs" in first.parameters
    for form in made.json["items"]["anyOf"]:
        assert "$defs" not in form["properties"]["parameters"]
    with pytest.raises(InvalidChatError) as raised:
        constraint([first, defining("b", x={"type": "integer"})], GRANITE)
    assert str(raised.value) == (
        "Tool definition 'x' has multiple schemas, which is not supported."
    )
    assert raised.value.parameter == "tools"
    # Elsewhere, each tool has a schema of its own.
    assert constraint([first, defining("b", x={"type": "integer"})]) is not None


def test_definitions_must_be_an_object():
    with pytest.raises(InvalidChatError, match="must be an object, got list") as raised:
        constraint([tool(parameters={"type": "object", "$defs": [1]})], GRANITE)
    assert raised.value.parameter == "tools"


def test_a_bad_schema_leaves_arguments_in_json_free():
    bad = {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}}
    made = constraint([tool(parameters=bad)], GRANITE, NamedTool("get_weather"), backend="xgrammar")
    assert made.json == ANY
    with pytest.raises(InvalidChatError, match="xgrammar"):
        constraint(
            [tool(parameters=bad, strict=True)],
            GRANITE,
            NamedTool("get_weather"),
            backend="xgrammar",
        )


# Calls that may be.


@pytest.mark.parametrize("form", [GRANITE, MISTRAL])
@pytest.mark.parametrize("own", [None, OWN])
def test_calls_that_may_be_are_free_without_a_grammar(form, own):
    assert constraint([tool(strict=True)], form, "auto", own=own) is own


def test_calls_are_free_where_a_format_cannot_be_enforced():
    assert constraint([tool(strict=True)], MISTRAL) is None
    assert constraint([tool()], MISTRAL, own=OWN) is OWN


@pytest.mark.parametrize("own", [None, OWN])
def test_calls_that_may_be_are_free_unless_a_tool_is_strict(own):
    assert constraint([tool(), tool("b", strict=False)], choice="auto", own=own) is own


def test_a_call_at_most_is_enforced_without_strict_tools():
    form = format_of(constraint([tool()], choice="auto", single=True))
    assert (form["type"], form["stop_after_first"]) == ("triggered_tags", True)
    assert schemas_of(form) == [ANY, ANY]
    assert constraint([tool()], choice="auto", single=True, own=OWN) is OWN


def test_only_strict_tools_keep_to_their_schemas_where_calls_may_be():
    tools = [tool("a", strict=True), tool("b"), tool("c", strict=False)]
    assert held_to(*tools, choice="auto") == [CITY, ANY, ANY]


def test_a_strict_tool_that_cannot_be_enforced_is_refused_where_calls_may_be():
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(((("}}}
    with pytest.raises(InvalidChatError) as raised:
        constraint([tool(parameters=bad, strict=True)], choice="auto")
    assert raised.value.parameter == "tools"


@pytest.mark.parametrize(
    ("own", "form"),
    [
        (OWN, {"type": "json_schema", "json_schema": OWN.json}),
        (
            StructuredOutputs(json=json.dumps(OWN.json)),
            {"type": "json_schema", "json_schema": OWN.json},
        ),
        (StructuredOutputs(json="true"), {"type": "json_schema", "json_schema": True}),
        (StructuredOutputs(json_object=True), {"type": "json_schema", "json_schema": ANY}),
        (StructuredOutputs(regex="[0-9]+"), {"type": "regex", "pattern": "[0-9]+"}),
        (
            StructuredOutputs(choice=["yes", "no"]),
            {
                "type": "or",
                "elements": [
                    {"type": "const_string", "value": "yes"},
                    {"type": "const_string", "value": "no"},
                ],
            },
        ),
        (
            StructuredOutputs(grammar='root ::= "a"'),
            {"type": "grammar", "grammar": 'root ::= "a"'},
        ),
        (
            StructuredOutputs(structural_tag='{"format": {"type": "any_text"}}'),
            {"type": "any_text"},
        ),
    ],
)
def test_an_answer_may_also_be_what_a_request_asks_for_besides(own, form):
    made = format_of(constraint([tool(strict=True)], choice="auto", own=own))
    calls, beside = made["elements"]
    assert made["type"] == "or"
    assert (calls["type"], calls["at_least_one"]) == ("tags_with_separator", True)
    assert beside == form


@pytest.mark.parametrize(
    "own",
    [
        StructuredOutputs(json="{"),
        StructuredOutputs(json="[" * 100_000),
        StructuredOutputs(json={"type": "array", "uniqueItems": True}),
        StructuredOutputs(regex="(" * 300),
        StructuredOutputs(regex=""),
        StructuredOutputs(choice=[]),
        StructuredOutputs(grammar='start: "a"'),
        StructuredOutputs(regex="a", json_object=True),
        StructuredOutputs(structural_tag='{"structures": [], "triggers": ["<a"]}'),
        StructuredOutputs(),
    ],
)
def test_what_can_be_no_part_of_a_tag_stands_alone(own):
    assert constraint([tool(strict=True)], choice="auto", own=own) is own


def test_what_a_request_asks_for_besides_has_no_effect_where_calls_must_be():
    assert constraint([tool()], own=OWN) == constraint([tool()])
    assert constraint([tool()], GRANITE, own=OWN) == constraint([tool()], GRANITE)


# Formats of messages.


def test_a_call_is_the_last_of_several_messages():
    form = format_of(constraint([tool()], HARMONY))
    before, last = form["elements"]
    assert before["type"] == "star"
    assert all(tag["end"] == "" for tag in last["elements"])
    assert schemas_of(last) == [CITY] * 3


def test_the_last_message_may_be_an_answer():
    for own, content in ((None, "any_text"), (OWN, "json_schema")):
        form = format_of(constraint([tool(strict=True)], HARMONY, "auto", own=own))
        *_, answer = form["elements"][1]["elements"]
        begin, text = answer["elements"]
        assert begin["value"] == "<|channel|>final<|message|>"
        assert text["type"] == content
