"""What an answer must look like so that it calls tools, as a structural tag.

The tags are those of xgrammar's builtin formats and of vllm/tool_parsers/structural_tag_registry.py.
"""

import json
from collections.abc import Iterable, Sequence

import msgspec

from umbel_chat.parsers.call_schemas import ANY_OBJECT, arguments_schema
from umbel_chat.tools import NamedTool, Tool, ToolChoice

Format = dict[str, object]
"""A format of a structural tag, see xgrammar's documentation."""


class MessageGrammar(msgspec.Struct, frozen=True):
    """How an answer is written that is made of messages, the last of which may be a call.

    Messages that begin with one of `preambles` may come before it, each with `end` after it and
    `separator` before the next.  `answer` begins the last one if that is no call.
    """

    preambles: tuple[str, ...]
    end: str
    separator: str
    answer: str


class CallGrammar(msgspec.Struct, frozen=True, kw_only=True):
    """How a call is written, as far as it can be enforced.

    `spellings` are texts around the arguments of a call, with `{name}` for its name, or
    `{json_name}` for its name as JSON.  `section` is around all calls together, after `lead` where
    they are all of an answer; `separator` may stand between them.  `style` is xgrammar's for the
    arguments.  `trigger` is the text that begins a call, or all of them, and cannot be anything else;
    text without calls has none of `excludes`.  With `numbered`, a number and that text stand before
    the arguments.  With `messages`, a call is one of those, and has no trigger.
    """

    spellings: tuple[tuple[str, str], ...]
    trigger: str = ""
    section: tuple[str, str] | None = None
    lead: str = ""
    separator: str = ""
    style: str = "json"
    numbered: str | None = None
    excludes: tuple[str, ...] = ("<think>", "</think>")
    messages: MessageGrammar | None = None


def calls_format(
    grammar: CallGrammar,
    tools: Sequence[Tool],
    choice: ToolChoice,
    single: bool,
    strict_only: bool,
    own: Format | None = None,
) -> Format:
    """Give the format of an answer with calls of these tools, one at most if `single`.

    With the choice "auto" it may be text, too, of the form `own` if there is one.  `strict_only`
    leaves the arguments of tools that are not strict free.
    """
    if isinstance(choice, NamedTool):
        tools = [tool for tool in tools if tool.name == choice.name]
        single = True
    tags = [tag for tool in tools for tag in _tags(grammar, tool, strict_only, single)]
    if grammar.messages is not None:
        return _last_message(grammar, grammar.messages, tags, choice == "auto", own)
    if own is not None:
        return either((_only_calls(grammar, tags, single), own))
    if choice == "auto":
        return _text_and_calls(grammar, tags, single)
    return _only_calls(grammar, tags, single)


def written_call(grammar: CallGrammar, name: str) -> str:
    """Write an answer that calls a tool without arguments, as the first spelling is."""
    begin, end = grammar.spellings[0]
    number = "" if grammar.numbered is None else "0" + grammar.numbered
    arguments = "{}" if grammar.style == "json" else ""
    first, last = grammar.section or ("", "")
    return first + _with_name(begin, name) + number + arguments + end + last


def either(formats: Iterable[Format]) -> Format:
    """Give the format of what has one of several."""
    return {"type": "or", "elements": list(formats)}


def structural_tag(form: Format) -> str:
    """Write a format as a structural tag."""
    return json.dumps({"type": "structural_tag", "format": form})


def text_format(value: str) -> Format:
    """Give the format of one text."""
    return {"type": "const_string", "value": value}


def _only_calls(grammar: CallGrammar, tags: list[Format], single: bool) -> Format:
    calls = _row(tags, single)
    if grammar.section is None:
        return calls
    begin, end = grammar.section
    return _sequence(text_format(grammar.lead + begin), calls, text_format(end))


def _text_and_calls(grammar: CallGrammar, tags: list[Format], single: bool) -> Format:
    if grammar.section is not None:
        begin, end = grammar.section
        tags = [{"type": "tag", "begin": begin, "content": _row(tags, single), "end": end}]
    return {
        "type": "triggered_tags",
        "triggers": [grammar.trigger],
        "tags": tags,
        "excludes": list(grammar.excludes),
        "stop_after_first": single,
    }


def _last_message(
    grammar: CallGrammar,
    messages: MessageGrammar,
    tags: list[Format],
    may_answer: bool,
    own: Format | None,
) -> Format:
    preambles = [
        _sequence(
            {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": messages.end},
            text_format(messages.separator),
        )
        for begin in messages.preambles
    ]
    last = list(tags)
    if may_answer:
        text: Format = {"type": "any_text", "excludes": list(grammar.excludes)}
        last.append(_sequence(text_format(messages.answer), own or text))
    return _sequence({"type": "star", "content": either(preambles)}, either(last))


def _row(tags: list[Format], single: bool) -> Format:
    """Give the format of one call or more, one after the other."""
    return {
        "type": "tags_with_separator",
        "tags": tags,
        "separator": "",
        "at_least_one": True,
        "stop_after_first": single,
    }


def _sequence(*elements: Format) -> Format:
    return {"type": "sequence", "elements": list(elements)}


def _tags(grammar: CallGrammar, tool: Tool, strict_only: bool, single: bool) -> list[Format]:
    schema: object = arguments_schema(tool, strict_only)
    if schema is None:
        # Any JSON would do for a schema of true.
        schema = ANY_OBJECT if grammar.style == "json" else True
    content: Format = {"type": "json_schema", "json_schema": schema}
    if grammar.style != "json":
        content["style"] = grammar.style
    if grammar.numbered is not None:
        number: Format = {"type": "regex", "pattern": r"\d+"}
        content = _sequence(number, text_format(grammar.numbered), content)
    return [
        {
            "type": "tag",
            "begin": _with_name(begin, tool.name),
            "content": content,
            # As a separator of the tags it would have to be there.
            "end": [end, end + grammar.separator] if grammar.separator and not single else end,
        }
        for begin, end in grammar.spellings
    ]


def _with_name(template: str, name: str) -> str:
    if "{json_name}" in template:
        return template.replace("{json_name}", json.dumps(name, ensure_ascii=False))
    return template.replace("{name}", name)
