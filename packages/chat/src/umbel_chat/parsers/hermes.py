"""Tool calls as Hermes and Qwen write them: JSON between tags."""

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.json_calls import JsonCall
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, ignore, within

START, END = "<tool_call>", "</tool_call>"


def read_hermes(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls like `<tool_call>{"name": ..., "arguments": ...}</tool_call>`."""
    while (yield from source.until((START,), sink.content)) is not None:
        yield from json_call_between(source, sink, START, END)


def json_call_between(source: Source, sink: Sink, start: str, end: str) -> Steps[None]:
    """Read a call in JSON whose start marker was read, and past its end marker.

    Models may write several calls there.  What is no call is content, and so are its markers.
    """
    calls = 0

    def read(part: Source) -> Steps[str | None]:
        """Read the calls; gives the text after them, None if the last one is not complete."""
        nonlocal calls
        while True:
            part.keep()
            call = JsonCall(sink)
            yield from call.read(part)
            if not call.is_started or not call.is_complete:
                yield from part.rest(ignore)
                return None if call.is_started else part.kept()
            sink.end_call()
            calls += 1
            yield from part.space()

    text, found = yield from within(source, (end,), read, (start,))
    if text is None:
        if found is not None:
            sink.end_call()
    elif not calls:
        sink.content(start + text + (found or ""))
    elif text.strip("}] \n"):
        # A bracket too many says nothing.
        sink.content(text)


HERMES = ToolFormat(
    names=("hermes", "qwen3_json"),
    parse=read_hermes,
    starts=(START,),
    markers=(START, END),
    trims_content=False,
    grammar=CallGrammar(
        spellings=(
            ('<tool_call>\n{"name": {json_name}, "arguments": ', "}\n</tool_call>"),
            ('<tool_call>{"name": {json_name}, "arguments": ', "}</tool_call>"),
        ),
        trigger=START,
        separator="\n",
        excludes=(),
    ),
    summary="A JSON object with `name` and `arguments` between `<tool_call>` and `</tool_call>`.",
    models=("Hermes 2 Pro and 3", "Qwen2.5", "Qwen3 (not Coder)", "QwQ"),
    example='<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
    differences=(
        "An end marker in a string is part of it, unless a call or nothing follows; vLLM ends the call "
        "there.",
    ),
)
