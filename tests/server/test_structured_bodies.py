"""Two fields of a body ask for the form of an answer; the engine gets one constraint."""

import json

import pytest

from umbel_engine import StructuredOutputs
from umbel_engine.mock import MockStep
from umbel_server.requests.structured import ResponseFormat, constraint_of

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
OTHER = {"type": "object", "properties": {"b": {"type": "string"}}}
TAG = {"type": "tag", "begin": "<a>", "content": {"type": "any_text"}, "end": "</a>"}
LEGACY = {
    "structures": [{"begin": "<a>", "schema": {"type": "object"}, "end": "</a>"}],
    "triggers": ["<a"],
}

kinds = pytest.mark.parametrize("kind", ["ask", "complete"])


def json_schema(schema, **rest):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, **rest}}


async def constraint(served, sent, kind, **body):
    """Ask for two samples; give the constraint that the engine got for both."""
    got = await getattr(served, kind)(n=2, max_tokens=1, **body)
    assert got.status == 200, got.text
    return sent(served.engine).structured_outputs


@kinds
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"response_format": {"type": "json_object"}}, {"json_object": True}),
        ({"response_format": json_schema(SCHEMA, strict=True)}, {"json": SCHEMA}),
        ({"structured_outputs": {"json": SCHEMA}}, {"json": SCHEMA}),
        ({"structured_outputs": {"regex": "[ab]+"}}, {"regex": "[ab]+"}),
        (
            {"structured_outputs": {"choice": ["yes", "no"]}},
            {"grammar": 'root ::= "yes" | "no"', "choice": None},
        ),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, {"grammar": 'root ::= "a"'}),
        (
            {"structured_outputs": {"json": SCHEMA, "whitespace_pattern": " ?"}},
            {"json": SCHEMA, "whitespace_pattern": " ?"},
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            {"json": SCHEMA, "disable_any_whitespace": True},
        ),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_additional_properties": "yes"}},
            {"json": SCHEMA, "disable_additional_properties": True},
        ),
    ],
)
async def test_the_engine_gets_the_constraint_of_either_field(serve, sent, kind, body, expected):
    served = await serve()
    got = await constraint(served, sent, kind, **body)
    for name, value in expected.items():
        assert getattr(got, name) == value
    asked = [
        name for name in ("json", "regex", "choice", "grammar", "json_object") if name in expected
    ]
    for name in {"json", "regex", "choice", "grammar", "json_object", "structural_tag"} - {*asked}:
        assert getattr(got, name) is None
    assert got.backend == "xgrammar"


@kinds
@pytest.mark.parametrize(
    "body", [{}, {"response_format": {"type": "text"}}, {"response_format": None}]
)
async def test_text_is_no_constraint(serve, sent, kind, body):
    served = await serve()
    assert await constraint(served, sent, kind, **body) is None


@kinds
async def test_text_leaves_the_other_field_alone(serve, sent, kind):
    served = await serve()
    body = {"response_format": {"type": "text"}, "structured_outputs": {"regex": "a"}}
    assert (await constraint(served, sent, kind, **body)).regex == "a"


@kinds
async def test_the_format_goes_over_a_constraint_of_the_same_kind(serve, sent, kind):
    served = await serve()
    both = {
        "response_format": json_schema(OTHER),
        "structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True},
    }
    got = await constraint(served, sent, kind, **both)
    assert (got.json, got.disable_any_whitespace) == (OTHER, True)


@pytest.mark.parametrize(
    ("tag", "expected"),
    [
        ({"format": TAG}, {"type": "structural_tag", "format": TAG}),
        (LEGACY, {"type": "structural_tag", **LEGACY}),
        (
            {"structures": [{"begin": "<a>", "end": "</a>"}], "triggers": ["<a"]},
            {
                "type": "structural_tag",
                "structures": [{"begin": "<a>", "schema": None, "end": "</a>"}],
                "triggers": ["<a"],
            },
        ),
    ],
)
def test_a_structural_tag_is_json_in_text(tag, expected):
    asked = ResponseFormat("structural_tag", **tag)
    got = constraint_of(None, asked)
    assert isinstance(got, StructuredOutputs)
    assert json.loads(got.structural_tag) == expected


@kinds
@pytest.mark.parametrize(
    "tag",
    [
        {},
        {"structures": [], "triggers": None},
        {"structures": [{"begin": "<a>"}], "triggers": ["<a"]},
        {"structures": ["<a>"], "triggers": ["<a"]},
        {"structures": [{"begin": "<", "end": ">", "schema": []}], "triggers": ["<a"]},
        {"structures": [{"begin": "<", "end": ">"}], "triggers": [1]},
        {"structures": {"begin": "<", "end": ">"}, "triggers": ["<"]},
    ],
)
async def test_a_structural_tag_that_is_none_is_refused(serve, kind, tag):
    served = await serve()
    refused = await getattr(served, kind)(response_format={"type": "structural_tag", **tag})
    assert (refused.status, refused.error["message"]) == (
        400,
        "Invalid response_format structural_tag specification. (parameter=response_format)",
    )
    assert (refused.error["type"], refused.error["param"]) == (
        "BadRequestError",
        "response_format",
    )


@kinds
@pytest.mark.parametrize("given", [{}, {"json_schema": None}])
async def test_a_schema_is_needed_where_one_was_promised(serve, kind, given):
    served = await serve()
    refused = await getattr(served, kind)(response_format={"type": "json_schema", **given})
    assert (refused.status, refused.error["message"]) == (
        400,
        "When response_format type is 'json_schema', the 'json_schema' field must be provided. "
        "(parameter=response_format)",
    )
    assert refused.error["param"] == "response_format"


@pytest.mark.parametrize(
    ("kind", "suffix", "param"),
    [
        ("ask", "", None),
        ("complete", " (parameter=structured_outputs)", "structured_outputs"),
    ],
)
@pytest.mark.parametrize("second", [{"regex": "a"}, {"choice": ["a"]}])
async def test_one_kind_of_constraint_at_a_time(serve, kind, suffix, param, second):
    served = await serve()
    body = {"structured_outputs": {"json": SCHEMA, **second}}
    refused = await getattr(served, kind)(**body)
    assert (refused.status, refused.error["message"]) == (
        400,
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        f"'choice').{suffix}",
    )
    assert refused.error["param"] == param
    assert served.engine.adds == []


@kinds
@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"response_format": {"type": "yaml"}}, "body.response_format"),
        ({"response_format": "json_object"}, "body.response_format"),
        ({"response_format": {}}, "body.response_format"),
        ({"structured_outputs": {"regex": 5}}, "body.structured_outputs.regex"),
        ({"structured_outputs": {"choice": ["a", 1]}}, "body.structured_outputs.choice.1"),
        ({"structured_outputs": [1]}, "body.structured_outputs"),
    ],
)
async def test_values_of_other_types_are_faults_of_the_body(serve, kind, body, param):
    served = await serve()
    refused = await getattr(served, kind)(**body)
    assert (refused.status, refused.error["type"]) == (400, "Bad Request")
    assert refused.error["param"].startswith(param)


@pytest.mark.parametrize("kind", ["ask", "complete"])
@pytest.mark.parametrize("stream", [False, True])
async def test_a_constraint_that_the_engine_cannot_compile_is_the_request_s_fault(
    serve, kind, stream
):
    served = await serve(lambda request: [MockStep(finish="error")])
    constraint = {"json": {"$ref": "#/nowhere"}}
    refused = await getattr(served, kind)(n=2, structured_outputs=constraint, stream=stream)
    assert (refused.status, refused.error["type"]) == (400, "BadRequestError")
    assert refused.error["message"].startswith("Invalid structured outputs: ")
    failed = await getattr(served, kind)(n=2, stream=stream)
    assert failed.status == 500


async def test_an_error_after_the_first_token_is_not_the_constraint_s(serve):
    served = await serve(lambda request: [MockStep(token_ids=[300]), MockStep(finish="error")])
    failed = await served.complete(structured_outputs={"regex": "a+"})
    assert failed.status == 500
