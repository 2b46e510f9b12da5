"""Tool calls as Kimi K2 writes them: an id that holds the name, then JSON."""

import re
from collections.abc import Container

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.section_calls import CallHeader, SectionMarkers, read_section_calls
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect

SECTION_START, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_START, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"

MARKERS = SectionMarkers(SECTION_START, SECTION_END, CALL_START, CALL_END)
NAMELESS_ID = re.compile(r"[0-9]+|call[_-]?[0-9A-Za-z]+")
CALL_ID = re.compile(r"(?:functions\.)?(?P<name>.+):\d+")


def read_kimi_k2(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls that the model gave ids like `functions.get_weather:0`."""

    def read_id(part: Source) -> Steps[CallHeader]:
        text, separator = yield from collect(lambda emit: part.until((ARGUMENTS,), emit))
        call_id = text.strip()
        is_whole = separator is not None
        if match := CALL_ID.fullmatch(call_id):
            return CallHeader(match["name"], call_id, is_whole)
        if len(tools) == 1 and NAMELESS_ID.fullmatch(call_id):
            return CallHeader(next(iter(tools)), is_whole=is_whole)
        return CallHeader(_tool_of(call_id, tools), is_whole=is_whole)

    yield from read_section_calls(source, sink, MARKERS, read_id)


def _tool_of(call_id: str, tools: Container[str]) -> str:
    """Find the tool that is named by what is no id, "" if there is none.

    The number may be missing, and so may be the marks around the name: clients send ids back in a
    form of their own, which models take up.
    """
    name = call_id.removeprefix("functions").lstrip("._")
    unnumbered = name.rstrip("0123456789")
    names = (call_id.removeprefix("functions."), name, unnumbered, unnumbered.rstrip(":._"))
    return next((name for name in names if name in tools), "")


KIMI_K2 = ToolFormat(
    names=("kimi_k2",),
    parse=read_kimi_k2,
    starts=(SECTION_START, CALL_START),
    markers=(SECTION_START, SECTION_END, CALL_START, CALL_END, ARGUMENTS),
    trims_content=False,
    grammar=CallGrammar(
        spellings=((CALL_START + "functions.{name}:", CALL_END),),
        trigger=SECTION_START,
        section=(SECTION_START, SECTION_END),
        numbered=ARGUMENTS,
        excludes=("<think>", "</think>", CALL_START),
    ),
    summary="The id that the model gives a call, which holds the name, then its arguments as JSON.",
    models=("Kimi-K2", "Kimi-K2-Thinking", "Kimi-K2.5"),
    example=(
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
        '<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|>'
        "<|tool_calls_section_end|>"
    ),
    differences=(
        "Text between and after the calls is content; vLLM drops it.",
        "Calls are read without the markers of the section, too.",
        "What has no id is content, or a call if it names a tool of the request, or has a number where "
        "there is only one tool; vLLM drops it.",
    ),
)
