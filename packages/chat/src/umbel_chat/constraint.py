"""The constraint that makes an answer call tools."""

from collections.abc import Sequence

from umbel_chat.errors import InvalidChatError
from umbel_chat.own_format import own_format
from umbel_chat.parsers.call_schemas import call_list_schema, named_call_schema
from umbel_chat.parsers.formats import ToolFormat
from umbel_chat.parsers.grammar import Format, calls_format, structural_tag
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
    if tool_format.grammar is None and (is_auto or not tool_format.forced_as_json):
        return own
    beside: Format | None = None
    if is_auto:
        if not any(tool.strict for tool in tools) and (not single or own is not None):
            return own
        beside = None if own is None else own_format(own)
        if own is not None and beside is None:
            return own

    def constraint(strict_only: bool) -> StructuredOutputs:
        if tool_format.grammar is None:
            return StructuredOutputs(json=_schema(tools, choice, single, strict_only))
        form = calls_format(tool_format.grammar, tools, choice, single, strict_only, beside)
        return StructuredOutputs(structural_tag=structural_tag(form))

    if not is_auto:
        enforced = constraint(strict_only=False)
        if _refusal(enforced, backend) is None:
            return enforced
    enforced = constraint(strict_only=True)
    refusal = _refusal(enforced, backend)
    if refusal is not None:
        raise InvalidChatError(f"Calls of these tools cannot be enforced: {refusal}", "tools")
    return enforced


def _refusal(constraint: StructuredOutputs, backend: str) -> str | None:
    try:
        check_structured_outputs(constraint, backend)
    except InvalidRequestError as error:
        return str(error)
    return None


def _schema(
    tools: Sequence[Tool], choice: ToolChoice, single: bool, strict_only: bool
) -> dict[str, object]:
    if isinstance(choice, NamedTool):
        named = next(tool for tool in tools if tool.name == choice.name)
        return named_call_schema(named, strict_only)
    return call_list_schema(tools, single, strict_only)
