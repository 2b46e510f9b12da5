"""What a body asks of the form of an answer: `response_format` and `structured_outputs`.

The rules are those of vllm/entrypoints/generate/base/protocol.py.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

import msgspec
from msgspec import Struct

from umbel_engine import RepetitionDetection, StructuredOutputs
from umbel_server.errors import validation_error
from umbel_server.requests.fields import CheckedReader, Reader
from umbel_text.sampling import check_repetition_detection
from umbel_text.structured_outputs import check_one_kind, check_structural_tag


class JsonSchemaFormat(Struct, frozen=True):
    """A JSON schema that the answer must follow."""

    name: str
    description: str | None = None
    schema: dict[str, object] | None = None
    strict: bool | None = None


class ResponseFormat(Struct, frozen=True):
    """The form that the answer must have; "text" asks for nothing.

    A structural tag has a `format`, or the older `structures` with their `triggers`.
    """

    type: Literal["text", "json_object", "json_schema", "structural_tag"]
    json_schema: JsonSchemaFormat | None = None
    format: object = msgspec.UNSET
    structures: list[object] | None = None
    triggers: list[str] | None = None


class StructuredOutputsRequest(Struct, frozen=True):
    """A constraint on the answer, of one kind."""

    json: str | dict[str, object] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None


def constraint_of(
    structured_outputs: StructuredOutputsRequest | None, response_format: ResponseFormat | None
) -> StructuredOutputs | None:
    """Give the one constraint that the two fields ask for; the format goes over the other."""
    given = {} if structured_outputs is None else msgspec.structs.asdict(structured_outputs)
    if response_format is None or response_format.type == "text":
        return None if structured_outputs is None else StructuredOutputs(**given)
    if response_format.type == "json_object":
        given["json_object"] = True
    elif response_format.type == "json_schema":
        schema = response_format.json_schema
        given["json"] = None if schema is None else schema.schema
    else:
        given["structural_tag"] = _structural_tag(response_format)
    return StructuredOutputs(**given)


def _structural_tag(response_format: ResponseFormat) -> str:
    tag: dict[str, object] = {"type": "structural_tag"}
    if response_format.format is not msgspec.UNSET:
        tag["format"] = response_format.format
    else:
        # A structure without a schema has a null one there.
        structures = [
            {**structure, "schema": structure.get("schema")}
            for structure in response_format.structures or ()
            if isinstance(structure, dict)
        ]
        tag |= {"structures": structures, "triggers": response_format.triggers}
    return json.dumps(tag)


def check_response_format(body: dict[str, object]) -> None:
    """Refuse the format "json_schema" without a schema, and a structural tag that is none."""
    response_format = body.get("response_format")
    if not isinstance(response_format, dict):
        return
    kind = response_format.get("type")
    if kind == "json_schema" and response_format.get("json_schema") is None:
        raise validation_error(
            "When response_format type is 'json_schema', the 'json_schema' field must be provided.",
            "response_format",
        )
    if kind == "structural_tag" and not _is_structural_tag(response_format):
        raise validation_error(
            "Invalid response_format structural_tag specification.", "response_format"
        )


def _is_structural_tag(tag: dict[str, object]) -> bool:
    if "format" in tag:
        return isinstance(tag["format"], dict)
    structures, triggers = tag.get("structures"), tag.get("triggers")
    return (
        isinstance(structures, list)
        and all(_is_structure(structure) for structure in structures)
        and isinstance(triggers, list)
        and bool(triggers)
        and all(isinstance(trigger, str) and trigger for trigger in triggers)
    )


def _is_structure(structure: object) -> bool:
    return (
        isinstance(structure, dict)
        and isinstance(structure.get("begin"), str)
        and isinstance(structure.get("end"), str)
        and isinstance(structure.get("schema"), dict | None)
    )


def count_constraints(body: dict[str, object], parameter: str | None) -> int:
    """Count the kinds of constraints in `structured_outputs`, of which there may be one.

    A structural tag among them must be one.
    """
    constraints = body.get("structured_outputs")
    if not isinstance(constraints, dict):
        return 0
    count = sum(constraints.get(kind) is not None for kind in ("json", "regex", "choice"))
    if count > 1:
        raise validation_error(
            "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
            "'choice').",
            parameter,
        )
    tag = constraints.get("structural_tag")
    if tag is not None:
        # What is no text is no tag.
        check_structural_tag(tag if isinstance(tag, str) else "", "structured_outputs")
    return count


def check_kinds(structured_outputs: StructuredOutputsRequest) -> None:
    """Refuse a field that holds no constraint, or several."""
    check_one_kind(StructuredOutputs(**msgspec.structs.asdict(structured_outputs)))


CHECKED_FIELDS: Mapping[str, Reader] = MappingProxyType(
    {
        "structured_outputs": CheckedReader(StructuredOutputsRequest, check_kinds),
        "repetition_detection": CheckedReader(RepetitionDetection, check_repetition_detection),
    }
)
"""The readers of fields that are told of before what is wrong with the types of others."""
