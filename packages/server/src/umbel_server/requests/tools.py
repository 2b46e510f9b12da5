"""The tools of a chat request."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from msgspec import Struct

import umbel_chat
from umbel_server.errors import display, validation_error


class FunctionDefinition(Struct, frozen=True):
    """A function that the model may call; `parameters` is a JSON schema."""

    name: str
    description: str | None = None
    parameters: dict[str, object] | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Tool(Struct, frozen=True, kw_only=True):
    """A tool that the model may use; the first of its fields that is wrong is the one to blame."""

    type: Literal["function"] = "function"
    function: FunctionDefinition
    defer_loading: bool | None = None


class NamedFunction(Struct, frozen=True):
    """The name of a function."""

    name: str


class NamedToolChoice(Struct, frozen=True):
    """The one tool that the model has to use."""

    function: NamedFunction
    type: Literal["function"] = "function"


ToolChoice: TypeAlias = Literal["none", "auto", "required"] | NamedToolChoice | None


def check_tools(body: dict[str, object]) -> None:
    """Check `tools` and `tool_choice`, whose default depends on the former; raises ApiError."""
    tools = body.get("tools")
    if tools == []:
        raise validation_error(
            "`tools` must not be an empty array. Either provide at least one tool or omit the field "
            "entirely.",
            "tools",
        )
    if tools:
        body.setdefault("tool_choice", "auto")
    choice = body.get("tool_choice", "none")
    if choice is None or choice == "none":
        return
    if tools is None:
        raise validation_error("When using `tool_choice`, `tools` must be set.", "tool_choice")
    if isinstance(choice, dict):
        _check_named_tool(choice.get("function"), tools)
    elif choice not in ("auto", "required"):
        raise validation_error(
            f'Invalid value for `tool_choice`: {display(choice)}! Only named tools, "none", "auto" '
            'or "required" are supported.',
            "tool_choice",
        )


def _check_named_tool(function: object, tools: object) -> None:
    usage = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'
    if not isinstance(function, dict):
        raise validation_error(
            f"Invalid value for `function`: `{display(function)}` in `tool_choice`! {usage}",
            "tool_choice.function",
        )
    if "name" not in function:
        raise validation_error(
            f"Expected field `name` in `function` in `tool_choice`! {usage}",
            "tool_choice.function.name",
        )
    name = function["name"]
    if not isinstance(name, str) or not name:
        raise validation_error(
            f"Invalid `name` in `function`: `{display(name)}` in `tool_choice`! {usage}",
            "tool_choice.function.name",
        )
    # Tools that are not of the right form are reported with the types of the fields.
    if isinstance(tools, list) and all(_tool_name(tool) not in (None, name) for tool in tools):
        raise validation_error(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            "tool_choice",
        )


def _tool_name(tool: object) -> object:
    function = tool.get("function") if isinstance(tool, dict) else None
    return function.get("name") if isinstance(function, dict) else None


def tools_of(tools: Sequence[Tool] | None) -> list[umbel_chat.Tool] | None:
    """Give the tools of a request as the chat layer knows them.

    What templates see of a tool is what vLLM's request model gives them.
    """
    if tools is None:
        return None
    return [_tool(tool) for tool in tools]


def _tool(tool: Tool) -> umbel_chat.Tool:
    function = tool.function
    definition: dict[str, object] = {
        "name": function.name,
        "description": function.description,
        "parameters": function.parameters,
    }
    deferred = tool.defer_loading if function.defer_loading is None else function.defer_loading
    further = {"strict": function.strict, "defer_loading": deferred}
    definition |= {name: value for name, value in further.items() if value is not None}
    shown: dict[str, object] = {"type": tool.type, "function": definition}
    if tool.defer_loading is not None:
        shown["defer_loading"] = tool.defer_loading
    return umbel_chat.Tool(function.name, shown, function.parameters, function.strict)


def tool_choice_of(choice: ToolChoice) -> umbel_chat.ToolChoice:
    """Give the choice of a request as the chat layer knows it; null leaves it to the model."""
    if isinstance(choice, NamedToolChoice):
        return umbel_chat.NamedTool(choice.function.name)
    return choice or "auto"
