"""The messages of a conversation: as clients send them, and as chat templates take them.

The rules are those of vllm/renderers/chat_utils/chat_message.py.  Messages are refused with
InvalidMessageError where vLLM's request model refuses them, with the `param` that it would name.
"""

import json
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from umbel_chat.content import NO_PROMPT_EMBEDS, Part, join_parts, read_parts
from umbel_chat.content_format import ContentFormat
from umbel_chat.errors import InvalidChatError, InvalidMessageError

Message: TypeAlias = dict[str, object]
"""A message in the form that templates see."""

BILLING_HEADER = "x-anthropic-billing-header"

# vLLM's request model tries the developer's message first and names it, whatever the role.
PATH_OF_MESSAGE = "body.messages.{index}.ChatCompletionDeveloperMessageParam"


def read_messages(
    messages: Sequence[object], content_format: ContentFormat, model_name: str
) -> list[Message]:
    """Read the messages of a request, given as decoded JSON, into a conversation.

    `model_name` is what the model is called in errors.  Raises InvalidChatError for content that is
    no text and for unusable tool calls, InvalidMessageError for messages without a role or of other
    types than the API's.
    """
    return [
        read_message(message, index, content_format, model_name)
        for index, message in enumerate(messages)
    ]


def read_message(
    message: object, index: int, content_format: ContentFormat, model_name: str
) -> Message:
    """Read the message at an index of the request."""
    if not isinstance(message, Mapping):
        path = PATH_OF_MESSAGE.format(index=index)
        raise InvalidMessageError(f"messages.{index} must be an object.", path)
    role = message.get("role")
    if not isinstance(role, str):
        raise _not_a_string("role", index)
    parts = read_parts(
        _content_parts(message, role, index), model_name, f"messages.{index}.content"
    )
    if role == "system":
        parts = _without_billing_header(parts)
    as_string = content_format == "string" or (role == "tool" and _is_all_text(parts))
    read: Message = {"role": role, "content": join_parts(parts) if as_string else parts}
    if role == "assistant":
        read |= _read_assistant_fields(message, index)
    elif role == "tool" and "tool_call_id" in message:
        read["tool_call_id"] = _optional_string(message, "tool_call_id", index)
    for name in ("name", "task"):
        # The API knows no name of a tool's message, so one that is no text is passed over.
        if role == "tool" and name == "name" and not isinstance(message.get(name), str):
            continue
        if (value := _optional_string(message, name, index)) is not None:
            read[name] = value
    if role == "developer":
        read["tools"] = _read_tools(message.get("tools"))
    return read


def fold_developer_messages(conversation: Sequence[Message]) -> list[Message]:
    """Turn developer messages into system messages, for templates that do not know the former.

    When there is a system message anywhere but at the start, all are merged into one at the start,
    since some templates allow it nowhere else.
    """
    folded = [_as_system(message) for message in conversation]
    places = [index for index, message in enumerate(folded) if message.get("role") == "system"]
    if places in ([], [0]):
        return folded
    texts = [_text_of(folded[index].get("content")) for index in places]
    merged: Message = {"role": "system", "content": "\n\n".join(text for text in texts if text)}
    return [merged, *(message for message in folded if message.get("role") != "system")]


def _content_parts(message: Mapping[str, object], role: str, index: int) -> Sequence[object]:
    content = message.get("content")
    if isinstance(content, str):
        return [content]
    if isinstance(content, list):
        return content
    # Null is allowed to the answers of a model: a call may come without text.
    is_answer = role == "assistant" or (role == "function" and isinstance(message.get("name"), str))
    if content is None and (is_answer or "content" not in message):
        return []
    raise InvalidMessageError(
        f"messages.{index}.content must be a string or a list of content parts.",
        f"{PATH_OF_MESSAGE.format(index=index)}.content",
    )


def _without_billing_header(parts: Sequence[Part]) -> list[Part]:
    """Drop a line that differs in every request of some clients and would defeat prefix caching."""
    kept = []
    for part in parts:
        text = part.get("text")
        if isinstance(text, str) and text.startswith(BILLING_HEADER):
            if rest := text.partition("\n")[2]:
                kept.append({**part, "text": rest})
        else:
            kept.append(part)
    return kept


def _is_all_text(parts: Sequence[Part]) -> bool:
    return all(part["type"] == "text" for part in parts)


def _optional_string(message: Mapping[str, object], name: str, index: int) -> str | None:
    value = message.get(name)
    if value is None or isinstance(value, str):
        return value
    raise _not_a_string(name, index)


def _not_a_string(name: str, index: int) -> InvalidMessageError:
    path = PATH_OF_MESSAGE.format(index=index)
    return InvalidMessageError(f"messages.{index}.{name} must be a string.", f"{path}.{name}")


def _read_assistant_fields(message: Mapping[str, object], index: int) -> Message:
    read: Message = {}
    if (calls := message.get("tool_calls")) is not None:
        if not isinstance(calls, list):
            raise InvalidChatError(f"messages.{index}.tool_calls must be a list.", "tool_calls")
        if calls:
            read["tool_calls"] = [_read_tool_call(call) for call in calls]
    reasoning = message.get("reasoning")
    if reasoning is None:
        reasoning = message.get("reasoning_content")
    if reasoning is not None:
        if isinstance(reasoning, Mapping) and reasoning.get("type") == "prompt_embeds":
            raise InvalidChatError(NO_PROMPT_EMBEDS, "prompt_embeds")
        # Templates ask for either name.
        read["reasoning"] = read["reasoning_content"] = reasoning
    return read


def _read_tool_call(call: object) -> Message:
    """Read a tool call of the history; templates want the arguments as an object.

    Arguments that are not the JSON of an object become an empty one: refused, they would end the
    conversation for good, as they are part of its history.
    """
    if not isinstance(call, Mapping):
        raise InvalidChatError("assistant tool_calls entries must be objects.", "tool_calls")
    function = call.get("function")
    if call.get("type", "function") != "function" or not isinstance(function, Mapping):
        raise InvalidChatError(
            "chat completions only support assistant tool_calls of type 'function'.", "tool_calls"
        )
    if not isinstance(function.get("name"), str):
        raise InvalidChatError("assistant tool_calls must name their function.", "tool_calls")
    read = {**function, "arguments": _read_arguments(function.get("arguments"))}
    # Templates may print calls as JSON, so the order of their fields is part of the prompt.
    return _ordered(
        {**call, "function": _ordered(read, ("arguments", "name"))}, ("id", "function", "type")
    )


def _read_arguments(arguments: object) -> Message:
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return {}
    return arguments if isinstance(arguments, dict) else {}


def _read_tools(tools: object) -> object:
    if not isinstance(tools, list):
        return tools
    return [_read_tool(tool) for tool in tools]


def _read_tool(tool: object) -> object:
    if not isinstance(tool, Mapping) or not isinstance(function := tool.get("function"), Mapping):
        return tool
    ordered = _ordered(function, ("name", "description", "parameters", "strict"))
    return _ordered({**tool, "function": ordered}, ("function", "type"))


def _ordered(fields: Mapping[str, object], first: Sequence[str]) -> Message:
    return {name: fields[name] for name in first if name in fields} | dict(fields)


def _as_system(message: Message) -> Message:
    if message.get("role") != "developer":
        return message
    return {name: value for name, value in message.items() if name != "tools"} | {"role": "system"}


def _text_of(content: object) -> str:
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    return "\n".join(str(part["text"]) for part in content if "text" in part)
