"""Tool calls as Qwen3-Coder and Seed-OSS write them."""

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps
from umbel_chat.parsers.tagged_calls import DIFFERENCES, Tags, read_tagged_calls

QWEN_TAGS = Tags(
    start="<tool_call>",
    end="</tool_call>",
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
    trims_newlines=True,
)
SEED_TAGS = Tags(
    start="<seed:tool_call>",
    end="</seed:tool_call>",
    call="<function=",
    call_end="</function>",
    parameter="<parameter=",
    parameter_end="</parameter>",
    trims_newlines=True,
)


def read_qwen3_coder(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer of Qwen3-Coder."""
    yield from read_tagged_calls(source, sink, tools, QWEN_TAGS)


def read_seed_oss(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer of Seed-OSS."""
    yield from read_tagged_calls(source, sink, tools, SEED_TAGS)


QWEN3_CODER = ToolFormat(
    names=("qwen3_coder", "qwen3_xml"),
    parse=read_qwen3_coder,
    starts=(QWEN_TAGS.start,),
    markers=(QWEN_TAGS.start, QWEN_TAGS.end),
    grammar=CallGrammar(
        # The grammar of the parameters has room for line breaks around them.
        spellings=(("<tool_call>\n<function={name}>\n", "</function>\n</tool_call>"),),
        trigger="<tool_call>\n<function=",
        separator="\n",
        style="qwen_xml",
    ),
    summary="`<function=...>` with `<parameter=...>` inside, between `<tool_call>` and "
    "`</tool_call>`; the schema of the tool says what is a string.",
    models=("Qwen3-Coder", "Qwen3.5"),
    example="<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
    "</function>\n</tool_call>",
    differences=DIFFERENCES,
)

SEED_OSS = ToolFormat(
    names=("seed_oss",),
    parse=read_seed_oss,
    starts=(SEED_TAGS.start,),
    markers=(SEED_TAGS.start, SEED_TAGS.end),
    summary="As `qwen3_coder`, between `<seed:tool_call>` and `</seed:tool_call>`.",
    models=("Seed-OSS",),
    example="<seed:tool_call>\n<function=get_weather>\n<parameter=city>Paris</parameter>\n"
    "</function>\n</seed:tool_call>",
    differences=DIFFERENCES,
)

SEED_OSS_REASONING = ReasoningFormat(
    names=("seed_oss",),
    start="<seed:think>",
    end="</seed:think>",
    interrupts=True,
    summary="`<seed:think>` and `</seed:think>`; an answer begins with reasoning, with or without "
    "the former, and a call ends it.",
    models=("Seed-OSS",),
)
