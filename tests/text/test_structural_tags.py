"""What an engine can bear of structural tags; see `test_grammars.py`."""

import json

import pytest

from .constraints import refusal


def tag_refusal(**fields: object) -> str | None:
    return refusal(structural_tag=json.dumps({"type": "structural_tag", "format": fields}))


ANY_TEXT = {"type": "any_text"}
A_TAG = {"begin": "<a>", "content": ANY_TEXT, "end": ["</a>", "\n"]}


WEATHER = {"type": "object", "properties": {"city": {"type": "string"}, "style": {}}}


def calls(count: int, content: dict[str, object]) -> dict[str, object]:
    """Give a tag around calls of one of many tools, as the tools of a model are called."""
    tags = [
        {"type": "tag", "begin": f"<call>tool_{index}", "content": content, "end": "</call>"}
        for index in range(count)
    ]
    separated = {"type": "tags_with_separator", "separator": "", "tags": tags}
    return {"type": "tag", "begin": "<calls>", "content": separated, "end": "</calls>"}


def argument(name: str, content: dict[str, object]) -> dict[str, object]:
    return {"type": "tag", "begin": f"<{name}>", "content": content, "end": f"</{name}>"}


ARGUMENTS = {
    "type": "star",
    "content": {"type": "or", "elements": [argument("a", ANY_TEXT), argument("b", ANY_TEXT)]},
}


@pytest.mark.parametrize(
    "fields",
    [
        calls(100, {"type": "json_schema", "json_schema": WEATHER}),
        calls(100, {"type": "json_schema", "json_schema": WEATHER, "style": "deepseek_xml"}),
        calls(100, ARGUMENTS),
        calls(
            40,
            {"type": "sequence", "elements": [{"type": "regex", "pattern": "[0-9]+"}, ARGUMENTS]},
        ),
        {"type": "plus", "content": argument("p", {"type": "plus", "content": ARGUMENTS})},
        {"type": "const_string", "value": "a"},
        {"type": "json_schema", "json_schema": {"type": "object"}, "style": "qwen_xml"},
        {"type": "tag", **A_TAG},
        {"type": "triggered_tags", "triggers": ["<a"], "tags": [A_TAG]},
        {"type": "tags_with_separator", "tags": [{"type": "tag", **A_TAG}], "separator": ","},
        {"type": "sequence", "elements": [ANY_TEXT, {"type": "regex", "pattern": "[0-9]+"}]},
        {"type": "or", "elements": [{"type": "grammar", "grammar": 'root ::= "a"'}]},
        {"type": "optional", "content": ANY_TEXT},
        {"type": "repeat", "min": 1.0, "max": -1, "content": {"type": "any_text"}},
        {"type": "dispatch", "rules": [["<a>", ANY_TEXT]]},
        {"type": "token_dispatch", "rules": [[17, ANY_TEXT]]},
        {"type": "sequence", "elements": [{"type": "token", "token": 3}, {"type": "any_tokens"}]},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_structural_tag_of_daily_use_passes(fields: dict[str, object]) -> None:
    assert tag_refusal(**fields) is None


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "repeat", "min": 1, "max": 3, "content": {"type": "token_dispatch", "rules": []}},
        {
            "type": "repeat",
            "min": 1,
            "max": 3000,
            "content": {"type": "star", "content": ANY_TEXT},
        },
        {"type": "star", "content": {"type": "star", "content": ANY_TEXT}},
        {"type": "regex", "pattern": r"(\w+\s*){1,1000}"},
        {"type": "grammar", "grammar": "root ::= root root | [a-z]"},
        {
            "type": "json_schema",
            "style": "qwen_xml",
            "json_schema": {"type": "string", "pattern": r"^(\w+ ?){1,50}$"},
        },
        {"elements": [ANY_TEXT]},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_structural_tag_that_would_harm_the_engine_is_refused(fields: dict[str, object]) -> None:
    assert (tag_refusal(**fields) or "").startswith(
        "structured_outputs.structural_tag cannot be served: "
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "color"},
        {"type": "sequence", "elements": []},
        {"type": "sequence", "elements": ["a"]},
        {"type": "const_string"},
        {"type": "tag", "begin": "<", "content": ANY_TEXT, "end": []},
        {"type": "repeat", "min": -1, "max": 3, "content": ANY_TEXT},
        {"type": "repeat", "min": 1, "max": -2, "content": ANY_TEXT},
        {"type": "repeat", "min": 0.5, "max": 2, "content": ANY_TEXT},
        {"type": "dispatch", "rules": [["<a>"]]},
        {"type": "regex", "pattern": "("},
        {"type": "grammar", "grammar": "root ::= a"},
        {"type": "json_schema", "json_schema": 5},
        {"type": "qwen_xml_parameter"},
    ],
    ids=lambda fields: str(fields)[:40],
)
def test_a_structural_tag_that_is_none_is_refused(fields: dict[str, object]) -> None:
    assert tag_refusal(**fields) == "Invalid structural tag specification."
