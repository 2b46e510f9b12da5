"""The constraint that makes an answer call tools."""

from collections.abc import Sequence

from umbel_chat.call_names import check_names
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
    strict cannot be enforced, or the name of one that must be called cannot be written; where a
    tool does not say whether it is strict, any arguments do then.
    """
    is_auto = choice == "auto"
    if tool_format.grammar is None and (is_auto or not tool_format.forced_as_json):
        return own
    if not is_auto:
        check_names(tool_format, _callable(tools, choice))
        enforced = _constraint(tool_format, tools, choice, single, strict_only=False)
        if _refusal(enforced, backend) is None:
            return enforced
        return _checked(_constraint(tool_format, tools, choice, single, strict_only=True), backend)
    if not any(tool.strict for tool in tools) and (not single or own is not None):
        return own
    beside = None if own is None else own_format(own)
    if own is not None and beside is None:
        return own
    return _checked(_constraint(tool_format, tools, choice, single, True, beside), backend)


def constraint_beside_reasoning(
    tool_format: ToolFormat, own: StructuredOutputs
) -> StructuredOutputs:
    """Give a request's own constraint as one of the answer alone, where that is one of its messages.

    It stays as it is where that cannot be said.  vllm/parser/harmony.py does the same.
    """
    form = own_format(own)
    grammar = tool_format.grammar
    if form is None or grammar is None or grammar.messages is None:
        return own
    whole = calls_format(grammar, [], "auto", single=False, strict_only=True, own=form)
    return StructuredOutputs(structural_tag=structural_tag(whole))


def _constraint(
    tool_format: ToolFormat,
    tools: Sequence[Tool],
    choice: ToolChoice,
    single: bool,
    strict_only: bool,
    beside: Format | None = None,
) -> StructuredOutputs:
    if tool_format.grammar is None:
        return StructuredOutputs(json=_schema(tools, choice, single, strict_only))
    form = calls_format(tool_format.grammar, tools, choice, single, strict_only, beside)
    return StructuredOutputs(structural_tag=structural_tag(form))


def _checked(constraint: StructuredOutputs, backend: str) -> StructuredOutputs:
    refusal = _refusal(constraint, backend)
    if refusal is not None:
        raise InvalidChatError(
            "Calls of these tools cannot be enforced. Use fewer tools, shorter names, or simpler "
            f"parameters of those that are strict: {refusal}",
            "tools",
        )
    return constraint


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
        return named_call_schema(_callable(tools, choice)[0], strict_only)
    return call_list_schema(tools, single, strict_only)


def _callable(tools: Sequence[Tool], choice: ToolChoice) -> Sequence[Tool]:
    if isinstance(choice, NamedTool):
        return [tool for tool in tools if tool.name == choice.name]
    return tools
