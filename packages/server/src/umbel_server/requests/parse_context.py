"""What a rendered request says of reading its answers."""

from collections.abc import Iterable

from msgspec import Struct

import umbel_chat
from umbel_server.errors import bad_request, validation_error
from umbel_server.requests.shared import NonNegative
from umbel_server.requests.tools import (
    NamedToolChoice,
    Tool,
    ToolChoice,
    tool_choice_of,
    tools_of,
)


class ParseContext(Struct, frozen=True):
    """What a chat request said of tools and reasoning, for turning tokens into a message.

    Fields, order and defaults are those of ParseContext in
    vllm/entrypoints/scale_out/token_in_token_out/protocol.py.  `chat_template_kwargs` has the
    defaults of the server that rendered the prompt.
    """

    tools: list[Tool] | None = None
    tool_choice: ToolChoice = "none"
    parallel_tool_calls: bool | None = True
    include_reasoning: bool = True
    chat_template_kwargs: dict[str, object] = {}
    history_tool_call_cnt: NonNegative = 0


def check_parse_context(context: ParseContext | None) -> None:
    """Check that answers can be parsed with it; raises ApiError."""
    if context is None:
        raise bad_request(
            "output_mode='derender' requires parse_context on a server with a tool or reasoning "
            "parser. Use the one returned by /render."
        )
    choice = context.tool_choice
    if isinstance(choice, NamedToolChoice) and all(
        tool.function.name != choice.function.name for tool in context.tools or ()
    ):
        raise validation_error(
            "The tool specified in `tool_choice` does not match any of the specified `tools`",
            "tool_choice",
        )


def unknown_fields(context: object) -> list[str]:
    """Give the fields of the object that a client sent which a parse context does not have."""
    names: Iterable[object] = context if isinstance(context, dict) else ()
    return sorted(str(name) for name in names if name not in ParseContext.__struct_fields__)


def answer_request_of(context: ParseContext) -> umbel_chat.AnswerRequest:
    """Give what the chat layer is to know of it."""
    return umbel_chat.AnswerRequest(
        tools=tools_of(context.tools),
        tool_choice=tool_choice_of(context.tool_choice),
        parallel_tool_calls=context.parallel_tool_calls is not False,
        include_reasoning=context.include_reasoning,
    )
