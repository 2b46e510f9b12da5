"""Tool calls and reasoning as Mistral's models write them, of all versions of their tokenizer."""

import re
from functools import partial

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.json_calls import JsonCall, json_calls
from umbel_chat.parsers.json_text import json_value
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect, within

TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
WORD_END = re.compile(r"[\s\[\]{}\"]")


def read_mistral(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls after `[TOOL_CALLS]`: a JSON array, or a name and arguments."""
    found = yield from source.until((TOOL_CALLS,), sink.content)
    while found is not None:
        opening = yield from _read_opening(source)
        read = partial(_read_calls, sink=sink, opening=opening)
        is_open, found = yield from within(source, (TOOL_CALLS,), read)
        if is_open and found is not None:
            sink.end_call()


def _read_opening(source: Source) -> Steps[str]:
    """Read past space, and past more markers: models repeat them; gives the last and its space."""
    while True:
        source.keep()
        yield from source.space()
        space = source.kept()
        if not (yield from source.take(TOOL_CALLS)):
            return TOOL_CALLS + space


def _read_calls(part: Source, sink: Sink, opening: str) -> Steps[bool]:
    """Read what follows a marker, up to the next; says whether it ended in a call.

    What is no call is content, and so is `opening`, the marker and what stood after it.
    """
    part.keep()
    first = yield from part.peek()
    if first == "[":
        part.advance()
        is_open = yield from json_calls(part, sink, opening + part.kept())
    elif first == "{":
        is_open = yield from _read_object(part, sink, opening)
    else:
        is_open = yield from _read_named(part, sink, opening)
    yield from part.rest(sink.content)
    return is_open


def _read_object(part: Source, sink: Sink, opening: str) -> Steps[bool]:
    call = JsonCall(sink)
    yield from call.read(part)
    text = part.kept()
    if not call.is_started:
        sink.content(opening + text)
        return False
    return (yield from _end_unless_cut(part, sink, call.is_complete))


def _read_named(part: Source, sink: Sink, opening: str) -> Steps[bool]:
    """Read a call whose name comes first, in no JSON."""
    name, _ = yield from collect(lambda emit: part.up_to(WORD_END, emit))
    call_id = ""
    yield from part.space()
    separator = yield from part.take(CALL_ID, ARGS)
    if not separator and (yield from part.peek()) != "{":
        sink.content(opening + part.kept())
        return False
    part.kept()
    if separator == CALL_ID:
        call_id, _ = yield from collect(lambda emit: part.up_to(WORD_END, emit))
        if not (yield from part.take(ARGS)):
            # An id that is cut off is none.
            call_id = ""
    sink.start_call(name, call_id)
    yield from part.space()
    first = yield from part.peek()
    is_complete = first == "{" and (yield from json_value(part, sink.arguments))
    return (yield from _end_unless_cut(part, sink, is_complete))


def _end_unless_cut(part: Source, sink: Sink, is_complete: bool) -> Steps[bool]:
    """End a call unless the text has ended in it; says whether it has."""
    if not is_complete and not (yield from part.peek()):
        return True
    sink.end_call()
    return False


MISTRAL = ToolFormat(
    names=("mistral",),
    parse=read_mistral,
    starts=(TOOL_CALLS,),
    markers=(TOOL_CALLS, CALL_ID, ARGS),
    trims_content=False,
    forced_as_json=False,
    call_ids="mistral",
    summary="`[TOOL_CALLS]` and a JSON array of objects with `name` and `arguments`; or, for each "
    "call, `[TOOL_CALLS]`, its name, `[CALL_ID]` and its id or not, `[ARGS]` or not, and JSON.",
    models=("Mistral", "Mixtral", "Mistral Nemo", "Mistral Small", "Magistral", "Devstral"),
    example='[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
    differences=(
        "All forms are read whatever the tokenizer; vLLM chooses by its vocabulary.",
        "The id after `[CALL_ID]` is that of the call.",
        "What follows a call is content; vLLM drops it or takes it for arguments.",
    ),
)

MISTRAL_THINK = ReasoningFormat(
    names=("mistral",),
    start="[THINK]",
    end="[/THINK]",
    begins_open=False,
    interrupts=True,
    trims_reasoning=True,
    summary="`[THINK]` and `[/THINK]`; a tool call ends reasoning, too.",
    models=("Magistral", "Ministral 3 Reasoning"),
)
