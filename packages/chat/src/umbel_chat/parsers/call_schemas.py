"""What the arguments of calls must be, and calls that are nothing but JSON, as JSON schemas."""

from collections.abc import Mapping, Sequence

from umbel_chat.errors import InvalidChatError
from umbel_chat.parsers.compilable import is_compilable
from umbel_chat.tools import Tool
from umbel_text.grammars.schemas import DEEPEST_SCHEMA, is_deeper

ANY_OBJECT: Mapping[str, object] = {"type": "object"}

DEFINITIONS = "$defs"


def arguments_schema(tool: Tool, strict_only: bool) -> Mapping[str, object] | None:
    """Give the schema that the arguments of a tool are held to, None if they are free.

    Arguments are an object, so a schema of anything else holds nothing.  Where a tool does not say
    whether it is strict, `strict_only` leaves its arguments free, and so does a schema that the
    engine could not compile.  Raises InvalidChatError for one of a strict tool that is too deep to
    be written.
    """
    schema = tool.parameters
    if schema is None or tool.strict is False or not _is_of_objects(schema):
        return None
    if tool.strict is None and (strict_only or not is_compilable(schema)):
        return None
    if tool.strict and is_deeper(schema, DEEPEST_SCHEMA):
        raise InvalidChatError(
            f"The parameters of tool '{tool.name}' are nested too deeply: objects and arrays may nest "
            f"at most {DEEPEST_SCHEMA} levels",
            "tools",
        )
    return schema


def _is_of_objects(schema: Mapping[str, object]) -> bool:
    types = schema.get("type", "object")
    return types == "object" or (isinstance(types, list) and "object" in types)


def named_call_schema(tool: Tool, strict_only: bool) -> dict[str, object]:
    """Give the schema of an answer that is nothing but the arguments of a tool."""
    if tool.parameters is None:
        return {"type": "object", "properties": {}}
    return dict(arguments_schema(tool, strict_only) or ANY_OBJECT)


def call_list_schema(tools: Sequence[Tool], single: bool, strict_only: bool) -> dict[str, object]:
    """Give the schema of an answer that is an array of calls, one at most if `single`.

    Definitions move to the top, where references look for them.  Raises InvalidChatError for two
    that have one name, as vllm/tool_parsers/utils.py does.
    """
    definitions: dict[str, object] = {}
    calls: list[object] = []
    for tool in tools:
        schema = named_call_schema(tool, strict_only)
        _add_definitions(definitions, schema.pop(DEFINITIONS, {}), tool.name)
        name = {"type": "string", "enum": [tool.name]}
        calls.append(
            {"properties": {"name": name, "parameters": schema}, "required": ["name", "parameters"]}
        )
    result: dict[str, object] = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "object", "anyOf": calls},
    }
    if single:
        result["maxItems"] = 1
    if definitions:
        result[DEFINITIONS] = definitions
    return result


def _add_definitions(definitions: dict[str, object], own: object, tool: str) -> None:
    if not isinstance(own, Mapping):
        raise InvalidChatError(
            f"`$defs` in the parameters of tool '{tool}' must be an object, got "
            f"{type(own).__name__}.",
            "tools",
        )
    for name, schema in own.items():
        if definitions.setdefault(name, schema) != schema:
            raise InvalidChatError(
                f"Tool definition '{name}' has multiple schemas, which is not supported.", "tools"
            )
