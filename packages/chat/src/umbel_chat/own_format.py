"""A request's own constraint as a part of a structural tag."""

import json
from collections.abc import Mapping

from umbel_chat.parsers.call_schemas import ANY_OBJECT
from umbel_chat.parsers.grammar import Format, either, text_format
from umbel_engine import StructuredOutputs
from umbel_text import InvalidRequestError
from umbel_text.structured_outputs import check_structured_outputs
from umbel_text.xgrammar import is_likely_lark


def own_format(constraint: StructuredOutputs) -> Format | None:
    """Give a request's own constraint as a format, None where it can be none.

    What is refused on its own, or needs another backend than xgrammar, can be none.
    """
    try:
        check_structured_outputs(constraint, "xgrammar")
    except InvalidRequestError:
        return None
    if constraint.json_object:
        return _json(ANY_OBJECT)
    if constraint.json is not None:
        schema = constraint.json
        return _json(json.loads(schema) if isinstance(schema, str) else schema)
    if constraint.regex:
        return {"type": "regex", "pattern": constraint.regex}
    if constraint.choice:
        return either(text_format(text) for text in constraint.choice)
    if constraint.grammar and not is_likely_lark(constraint.grammar):
        return {"type": "grammar", "grammar": constraint.grammar}
    if constraint.structural_tag is not None:
        return _format_of_tag(json.loads(constraint.structural_tag))
    return None


def _json(schema: object) -> Format:
    return {"type": "json_schema", "json_schema": schema}


def _format_of_tag(tag: Mapping[str, object]) -> Format | None:
    form = tag.get("format")
    return dict(form) if isinstance(form, Mapping) else None
