"""Tool calls and reasoning as Gemma 4 writes them."""

import re

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.gemma4_arguments import Gemma4Arguments
from umbel_chat.parsers.gemma4_strings import QUOTE
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect, ignore, within

START, END = "<|tool_call>", "<tool_call|>"
NAME_END = re.compile(r"[\s{}()<]")


def read_gemma4(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls like `<|tool_call>call:name{key:<|"|>value<|"|>}<tool_call|>`."""
    found = yield from source.until((START,), sink.content)
    while found is not None:
        call = _Gemma4Call(sink, tools)
        text, found = yield from within(source, (END, START), call.read)
        call.end(text, found)
        # A call may begin where the one before should have ended.
        if found == END:
            found = yield from source.until((START,), sink.content)


class _Gemma4Call:
    """Reads one call, between its markers."""

    __slots__ = ("_arguments", "_name", "_sink", "_tools")

    def __init__(self, sink: Sink, tools: Schemas) -> None:
        self._sink = sink
        self._tools = tools
        # The name, if nothing but arguments may follow it.
        self._name = ""
        self._arguments: Gemma4Arguments | None = None

    def read(self, part: Source) -> Steps[str]:
        """Read the call; gives its text if it has no arguments."""
        part.keep()
        yield from part.space()
        # Some models leave out the word.
        prefix = yield from part.take("call:", ":")
        name, _ = yield from collect(lambda emit: part.up_to(NAME_END, emit))
        yield from part.space()
        opening = yield from part.take("{", "(")
        if prefix and name and opening:
            part.kept()
            self._sink.start_call(name)
            self._arguments = Gemma4Arguments(self._sink, self._tools.get(name), opening)
            yield from self._arguments.read(part)
            yield from part.rest(ignore)
            return ""
        if prefix and part.is_empty:
            self._name = name
        yield from part.rest(ignore)
        return part.kept()

    def end(self, text: str, marker: str | None) -> None:
        """End the call at a marker, or where the text ends; what is no call is content."""
        if self._arguments is not None:
            if marker is not None:
                self._arguments.end()
            if self._arguments.is_complete:
                self._sink.end_call()
        elif self._name and marker is not None:
            self._sink.start_call(self._name)
            self._sink.end_call()
        else:
            self._sink.content(START + text + (END if marker == END else ""))


GEMMA4 = ToolFormat(
    names=("gemma4",),
    parse=read_gemma4,
    starts=(START,),
    markers=(START, END, QUOTE),
    forced_as_json=False,
    summary=f"`call:` and the name, then braces with bare keys and with strings between `{QUOTE}`, "
    f"all between `{START}` and `{END}`.",
    models=("Gemma 4",),
    example='<|tool_call>call:get_weather{city:<|"|>Paris<|"|>}<tool_call|>',
    differences=(
        "A call that is cut off stays open; vLLM closes its arguments, or leaves out the last one.",
        "A bare value that the schema does not tell of is the JSON that it is; for vLLM it is a "
        "string.",
        "A string whose schema allows one stays a string.",
        "What is no call is content; vLLM drops it, or makes a call of its text.",
        f"`{QUOTE}` in a string is a quote unless a comma, a bracket or a key follows, and may be "
        "left out before a string; vLLM ends the string at the next one.",
        "Strings may have other quotes; for vLLM they are part of them.",
    ),
)

GEMMA4_REASONING = ReasoningFormat(
    names=("gemma4",),
    start="<|channel>",
    end="<channel|>",
    label="thought\n",
    begins_open=False,
    interrupts=True,
    trims_reasoning=True,
    on_request=True,
    summary="`<|channel>thought` and `<channel|>`; a call ends it, too.",
    models=("Gemma 4",),
)
