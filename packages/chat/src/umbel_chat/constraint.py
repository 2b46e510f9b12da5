"""The constraint that makes an answer call tools."""

import json
from collections.abc import Sequence

from umbel_chat.parsers.formats import ToolFormat
from umbel_chat.parsers.grammar import (
    Format,
    call_list_schema,
    calls_format,
    either,
    named_call_schema,
    structural_tag,
)
from umbel_chat.tools import NamedTool, Tool, ToolChoice
from umbel_engine import StructuredOutputs
from umbel_text import InvalidRequestError
from umbel_text.structured_outputs import check_structured_outputs


def tool_constraint(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    single: bool,
    own: StructuredOutputs | None,
    backend: str,
) -> StructuredOutputs | None:
    """Give the constraint of an answer that may or must call tools.

    `own` is what the request asks for besides.  Where calls must be, it has no effect; where they
    may be, the answer is one or the other.  The rules are those of `_apply_structural_tag` in
    vllm/parser/abstract_parser.py.  Raises InvalidChatError when the schema of a tool that is
    strict cannot be enforced; for one that does not say so, any arguments do then.
    """
    is_auto = choice == "auto"
    grammar = tool_format.grammar
    if grammar is None:
        if is_auto or not tool_format.forced_as_json:
            return own
        return StructuredOutputs(json=_schema(tools, choice, single))
    strict = any(tool.strict for tool in tools)
    if is_auto and not strict and (not single or own is not None):
        return own
    own_format = None if own is None or not is_auto else _format_of(own)
    if own is not None and is_auto and own_format is None:
        return own
    asked: ToolChoice = "required" if own_format is not None else choice

    def constraint(strict_only: bool) -> StructuredOutputs:
        form = calls_format(grammar, tools, asked, single, strict_only)
        if own_format is not None:
            form = either((form, own_format))
        return StructuredOutputs(structural_tag=structural_tag(form))

    if is_auto:
        return constraint(strict_only=True)
    try:
        enforced = constraint(strict_only=False)
        check_structured_outputs(enforced, backend)
    except InvalidRequestError:
        return constraint(strict_only=True)
    return enforced


def _schema(tools: Sequence[Tool], choice: ToolChoice, single: bool) -> dict[str, object]:
    if isinstance(choice, NamedTool):
        return named_call_schema(next(tool for tool in tools if tool.name == choice.name))
    return call_list_schema(tools, single)


def _format_of(constraint: StructuredOutputs) -> Format | None:
    """Give a request's own constraint as a part of a structural tag, None where that cannot be."""
    if constraint.json_object:
        return {"type": "json_schema", "json_schema": {"type": "object"}}
    if constraint.json is not None:
        schema = constraint.json
        if isinstance(schema, str):
            schema = json.loads(schema)
        return {"type": "json_schema", "json_schema": schema}
    if constraint.regex is not None:
        return {"type": "regex", "pattern": constraint.regex}
    if constraint.choice:
        return either({"type": "const_string", "value": text} for text in constraint.choice)
    return None
