"""Tool calls as DeepSeek-V3.2 writes them."""

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps
from umbel_chat.parsers.tagged_calls import DIFFERENCES, Tags, read_tagged_calls

# Between bars of full width, which are no ASCII.
DSML = "\uff5cDSML\uff5c"

TAGS = Tags(
    start=f"<{DSML}function_calls>",
    end=f"</{DSML}function_calls>",
    call=f"<{DSML}invoke name=",
    call_end=f"</{DSML}invoke>",
    parameter=f"<{DSML}parameter name=",
    parameter_end=f"</{DSML}parameter>",
    says_strings=True,
)


def read_deepseek_v32(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer of DeepSeek-V3.2."""
    yield from read_tagged_calls(source, sink, tools, TAGS)


DEEPSEEK_V32 = ToolFormat(
    names=("deepseek_v32",),
    parse=read_deepseek_v32,
    starts=(TAGS.start, TAGS.call),
    markers=(TAGS.end,),
    trims_content=False,
    grammar=CallGrammar(
        spellings=((TAGS.call + '"{name}">\n', TAGS.call_end + "\n"),),
        trigger=TAGS.start,
        section=(TAGS.start + "\n", TAGS.end),
        lead="\n\n",
        style="deepseek_xml",
    ),
    summary="DSML: tags with `invoke` and `parameter`, between `function_calls` tags; a parameter "
    "says whether it is a string.",
    models=("DeepSeek-V3.2",),
    example=f'{TAGS.start}\n{TAGS.call}"get_weather">\n'
    f'{TAGS.parameter}"city" string="true">Paris{TAGS.parameter_end}\n'
    f"{TAGS.call_end}\n{TAGS.end}",
    differences=(
        *DIFFERENCES,
        "Text after the calls is content; vLLM drops it.",
        "A parameter that the schema does not tell of has the type that the model says.",
    ),
)
