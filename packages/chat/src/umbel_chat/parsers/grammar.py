"""What an answer must look like so that it calls tools: structural tags and JSON schemas.

The tags are those of xgrammar's builtin formats and of vllm/tool_parsers/structural_tag_registry.py.
"""

import json
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from umbel_chat.tools import NamedTool, Tool, ToolChoice

Format = dict[str, object]
"""A format of a structural tag, see xgrammar's documentation."""

ANY_OBJECT: Mapping[str, object] = {"type": "object"}

DEFINITIONS = "$defs"


class CallGrammar(msgspec.Struct, frozen=True):
    """How a call is written, as far as it can be enforced.

    `begin` and `end` stand around the arguments of a call, in one of several `spellings`, with
    `{name}` for its name; `section` around all calls together, `separator` between them.  `style` is
    xgrammar's for the arguments.  `trigger` is the text that begins a call, or all of them, and
    cannot be anything else.  With `numbered`, a number and that text stand before the arguments.
    """

    spellings: tuple[tuple[str, str], ...]
    trigger: str
    section: tuple[str, str] | None = None
    separator: str = ""
    style: str = "json"
    numbered: str | None = None
    excludes: tuple[str, ...] = ("<think>", "</think>")


def calls_format(
    grammar: CallGrammar, tools: Sequence[Tool], choice: ToolChoice, single: bool, strict_only: bool
) -> Format:
    """Give the format of an answer with calls of these tools, one at most if `single`.

    With the choice "auto" it may be text, too.  `strict_only` leaves the arguments of tools that are
    not strict free.
    """
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool.name == choice.name]
        single = True
    tags = [tag for tool in tools for tag in _tags(grammar, tool, strict_only)]
    calls = _separated(tags, grammar.separator, single)
    if grammar.section is None:
        if choice != "auto":
            return calls
    else:
        begin, end = grammar.section
        if choice != "auto":
            return {"type": "sequence", "elements": [_text(begin), calls, _text(end)]}
        tags = [{"type": "tag", "begin": begin, "content": calls, "end": end}]
    return {
        "type": "triggered_tags",
        "triggers": [grammar.trigger],
        "tags": tags,
        "excludes": list(grammar.excludes),
        "stop_after_first": single,
    }


def either(formats: Iterable[Format]) -> Format:
    """Give the format of what has one of several."""
    return {"type": "or", "elements": list(formats)}


def structural_tag(form: Format) -> str:
    """Write a format as a structural tag."""
    return json.dumps({"type": "structural_tag", "format": form})


def _separated(tags: list[Format], separator: str, single: bool) -> Format:
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": separator,
        "at_least_one": True,
        "stop_after_first": single,
    }


def _tags(grammar: CallGrammar, tool: Tool, strict_only: bool) -> list[Format]:
    enforced = tool.strict if strict_only else tool.strict is not False
    schema: object = tool.parameters if enforced and tool.parameters is not None else None
    if schema is None:
        # Any JSON would do for a schema of true.
        schema = ANY_OBJECT if grammar.style == "json" else True
    content: Format = {"type": "json_schema", "json_schema": schema}
    if grammar.style != "json":
        content["style"] = grammar.style
    if grammar.numbered is not None:
        number: Format = {"type": "regex", "pattern": r"\d+"}
        content = {"type": "sequence", "elements": [number, _text(grammar.numbered), content]}
    name = json.dumps(tool.name, ensure_ascii=False)[1:-1]
    return [
        {"type": "tag", "begin": begin.replace("{name}", name), "content": content, "end": end}
        for begin, end in grammar.spellings
    ]


def _text(value: str) -> Format:
    return {"type": "const_string", "value": value}


def named_call_schema(tool: Tool) -> dict[str, object]:
    """Give the schema of an answer that is nothing but the arguments of a tool."""
    if tool.parameters is None:
        return {"type": "object", "properties": {}}
    return dict(tool.parameters)


def call_list_schema(tools: Sequence[Tool], single: bool) -> dict[str, object]:
    """Give the schema of an answer that is an array of calls, one at most if `single`.

    Definitions move to the top, where references look for them; of several with one name the first
    stays.  The rule is that of vllm/tool_parsers/utils.py.
    """
    definitions: dict[str, object] = {}
    calls: list[object] = []
    for tool in tools:
        schema = named_call_schema(tool)
        own = schema.pop(DEFINITIONS, None)
        if isinstance(own, Mapping):
            definitions = {**own, **definitions}
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
