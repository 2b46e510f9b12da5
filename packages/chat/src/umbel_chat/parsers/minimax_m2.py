"""Tool calls and reasoning as MiniMax-M2 writes them."""

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps
from umbel_chat.parsers.tagged_calls import DIFFERENCES, Tags, read_tagged_calls

TAGS = Tags(
    start="<minimax:tool_call>",
    end="</minimax:tool_call>",
    call="<invoke name=",
    call_end="</invoke>",
    parameter="<parameter name=",
    parameter_end="</parameter>",
)


def read_minimax_m2(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer of MiniMax-M2."""
    yield from read_tagged_calls(source, sink, tools, TAGS)


MINIMAX_M2 = ToolFormat(
    names=("minimax_m2",),
    parse=read_minimax_m2,
    starts=(TAGS.start,),
    markers=(TAGS.start, TAGS.end),
    grammar=CallGrammar(
        spellings=((TAGS.call + '"{name}">\n', TAGS.call_end + "\n"),),
        trigger=TAGS.start,
        section=(TAGS.start + "\n", TAGS.end),
        lead="\n",
        style="minimax_xml",
    ),
    summary="`<invoke name=...>` with `<parameter name=...>` inside, between "
    "`<minimax:tool_call>` and `</minimax:tool_call>`; the schema of the tool says what is a "
    "string.",
    models=("MiniMax-M2",),
    example='<minimax:tool_call>\n<invoke name="get_weather">\n'
    '<parameter name="city">Paris</parameter>\n</invoke>\n</minimax:tool_call>',
    differences=(
        *DIFFERENCES,
        "A call of a tool that the request does not have is a call; vLLM drops it.",
    ),
)

MINIMAX_M2_REASONING = ReasoningFormat(
    names=("minimax_m2",),
    start="<think>",
    end="</think>",
    interrupts=True,
    trims_reasoning=True,
    summary="`<think>` and `</think>`; an answer begins with reasoning, with or without the former, "
    "and a call ends it.",
    models=("MiniMax-M2",),
)
