"""Tool calls as Llama 3 and 4 write them: bare JSON."""

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.json_calls import JsonCall
from umbel_chat.parsers.json_text import json_container
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps

PYTHON_TAG = "<|python_tag|>"


def read_llama3(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls like `{"name": ..., "parameters": ...}`, with semicolons between.

    They may be an array, too.  After the tag, an object with a name is a call.  Without it, it also has to have parameters and
    the name of a tool: an answer may be JSON, or show some.
    """
    while (yield from source.before((PYTHON_TAG, "[", "{"), sink.content)) is not None:
        source.keep()
        is_tagged = yield from source.take(PYTHON_TAG)
        yield from source.space()
        is_array = (yield from source.take("[")) != ""
        yield from source.space()
        if is_tagged or (yield from source.peek()) == "{":
            yield from _read_calls(source, sink, None if is_tagged else tools, is_array)
        else:
            sink.content(source.kept())


def _read_calls(source: Source, sink: Sink, tools: Schemas | None, is_array: bool) -> Steps[None]:
    """Read calls from where the source keeps its text; what is no call is content."""
    is_next = True
    while is_next:
        call = JsonCall(sink, tools)
        yield from call.read(source)
        text = source.kept()
        if not call.is_started:
            sink.content(text)
            if call.is_other:
                yield from json_container(source, sink.content, depth=1)
            return
        if not call.is_complete and not (yield from source.peek()):
            return
        sink.end_call()
        source.keep()
        is_next = yield from _is_another_next(source, is_array)
    source.kept()


def _is_another_next(source: Source, is_array: bool) -> Steps[bool]:
    """Read past a separator, or the end of the array; tell whether something comes after the former."""
    yield from source.space()
    if is_array and (yield from source.take("]")):
        return False
    if not (yield from source.take("," if is_array else ";")):
        return False
    yield from source.space()
    return (yield from source.peek()) != ""


LLAMA3_JSON = ToolFormat(
    names=("llama3_json", "llama4_json"),
    parse=read_llama3,
    starts=(PYTHON_TAG,),
    grammar=CallGrammar(
        spellings=(('{"name": {json_name}, "parameters": ', "}"),),
        trigger='{"name": ',
        separator="; ",
    ),
    summary="JSON objects with `name` and `parameters`, with semicolons between them; "
    "`<|python_tag|>` may stand before.",
    models=("Llama 3.1", "Llama 3.2", "Llama 3.3", "Llama 4"),
    example='{"name": "get_weather", "parameters": {"city": "Paris"}}',
    differences=(
        "Without `<|python_tag|>` an object is a call only if it has the name of a tool and "
        "parameters, and no keys of other kinds before them.",
        "Calls are found after text and in an array, too; vLLM's parser finds them there only without "
        "a stream.",
        "Text around the calls is content; vLLM drops it.",
        "Arguments stream as they come, and keep the model's own form.",
    ),
)
