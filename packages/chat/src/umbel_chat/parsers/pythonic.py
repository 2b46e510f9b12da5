"""Tool calls as Llama 3.2, Llama 4 and others write them: a list of calls in Python."""

import json
import re
from collections.abc import Container

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.python_text import next_item, python_value
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect

START, END = "<|python_start|>", "<|python_end|>"
NAME_END = re.compile(r"[^\w.\-]")


def read_pythonic(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer that begins with calls like `[get_weather(city="Paris"), get_time()]`."""
    source.keep()
    while (yield from _read_calls(source, sink, tools)):
        source.keep()


def read_llama4_pythonic(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer that begins with a list of calls, or has some between markers."""
    is_next = True
    while is_next:
        source.keep()
        yield from source.space()
        is_marked = yield from source.take(START)
        if (yield from _read_calls(source, sink, None if is_marked else tools)):
            yield from source.space()
            yield from source.take(END)
        is_next = (yield from source.before((START,), sink.content)) is not None


def _read_calls(source: Source, sink: Sink, tools: Container[str] | None) -> Steps[bool]:
    """Read a list of calls; says whether it is one up to its end.

    It begins where the source keeps its text.  What is no call is content: with `tools`, nothing
    but its name, which has to be one of these, says that something is a call.
    """
    yield from source.space()
    separator = "," if (yield from source.take("[")) else ""
    while separator == ",":
        head = yield from _read_head(source, tools)
        if head is None:
            break
        source.kept()
        name, key = head
        sink.start_call(name)
        is_complete = key == "" or (yield from _read_arguments(source, sink, key))
        if is_complete or (yield from source.peek()):
            sink.end_call()
        source.keep()
        separator = (yield from next_item(source, "]")) if is_complete else ""
    text = source.kept()
    is_list = separator == "]"
    # A list that is cut off after a comma has no more to say.
    if not is_list and (text.strip() != "," or (yield from source.peek())):
        sink.content(text)
    return is_list


def _read_head(source: Source, tools: Container[str] | None) -> Steps[tuple[str, str] | None]:
    """Read a call up to its first argument; gives both names, no second one if that is its end."""
    yield from source.space()
    name, _ = yield from collect(lambda emit: source.up_to(NAME_END, emit))
    if not name or (tools is not None and name not in tools):
        return None
    if not (yield from source.take("(")):
        return None
    yield from source.space()
    if (yield from source.take(")")):
        return name, ""
    key = yield from _read_key(source)
    return (name, key) if key else None


def _read_key(source: Source) -> Steps[str]:
    key, _ = yield from collect(lambda emit: source.up_to(NAME_END, emit))
    yield from source.space()
    return key if (yield from source.take("=")) else ""


def _read_arguments(source: Source, sink: Sink, key: str) -> Steps[bool]:
    """Read arguments from the value of the first on; says whether they are complete."""
    opening = "{"
    while True:
        sink.arguments(f"{opening}{json.dumps(key, ensure_ascii=False)}: ")
        if not (yield from python_value(source, sink.arguments)):
            return False
        separator = yield from next_item(source, ")")
        if separator == ")":
            sink.arguments("}")
        if separator != ",":
            return separator != ""
        opening = ", "
        source.keep()
        key = yield from _read_key(source)
        text = source.kept()
        if not key:
            # The client sees that something is wrong with arguments that are not whole.
            sink.arguments(opening + text)
            return False


PYTHONIC = ToolFormat(
    names=("pythonic",),
    parse=read_pythonic,
    starts=(),
    summary="A list of calls in Python, with arguments by their names, and nothing before it.",
    models=("Llama 3.2", "Llama 4", "ToolACE", "Gemma 3"),
    example='[get_weather(city="Paris", days=3), get_time()]',
    differences=(
        "Only the names of tools are calls; other lists are content.",
        "Text after the calls is content; vLLM takes all of it for content then, or drops it.",
        "Strings may go over several lines, and numbers may begin with zeros.",
        "A call that is cut off, or is malformed after its first `=`, is still a call.",
    ),
)

LLAMA4_PYTHONIC = ToolFormat(
    names=("llama4_pythonic",),
    parse=read_llama4_pythonic,
    starts=(START,),
    markers=(START, END),
    summary="As pythonic; `<|python_start|>` and `<|python_end|>` may stand around the list.",
    models=("Llama 4",),
    example='<|python_start|>[get_weather(city="Paris", days=3), get_time()]<|python_end|>',
    differences=(
        *PYTHONIC.differences,
        "Calls after `<|python_start|>` are found after text, too.",
    ),
)
