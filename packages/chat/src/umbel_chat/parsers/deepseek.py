"""Tool calls as DeepSeek V3 and V3.1 write them: a name and JSON between markers."""

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.section_calls import CallHeader, SectionMarkers, read_section_calls
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect

CALLS_START, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_START, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
MARKERS = (CALLS_START, CALLS_END, CALL_START, CALL_END, SEPARATOR)

# With its fence, a call ends properly even where its JSON does not.
V3 = SectionMarkers(CALLS_START, CALLS_END, CALL_START, CALL_END, ("\n```" + CALL_END,))
V31 = SectionMarkers(CALLS_START, CALLS_END, CALL_START, CALL_END)


def read_deepseek_v3(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls that have a type, a name, and arguments in a Markdown fence."""
    yield from read_section_calls(source, sink, V3, _read_type_and_name)


def _read_type_and_name(part: Source) -> Steps[CallHeader]:
    kind, separator = yield from collect(lambda emit: part.until((SEPARATOR,), emit))
    if separator is None:
        return CallHeader()
    if (yield from part.peek()) == "{":
        # V3.1 leaves out the type.
        return CallHeader(kind.strip(), is_whole=True)
    return (yield from _read_name(part))


def _read_name(part: Source) -> Steps[CallHeader]:
    name, end = yield from collect(lambda emit: part.before(("\n", "```"), emit))
    return CallHeader(name.strip(), is_whole=end is not None)


def read_deepseek_v31(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls that have a name and arguments."""

    def read_name(part: Source) -> Steps[CallHeader]:
        text, separator = yield from collect(lambda emit: part.until((SEPARATOR,), emit))
        name = text.strip()
        if separator is None:
            return CallHeader(name if name in tools else "")
        if name == "function" and name not in tools:
            # Models of V3's form are served by the name of V3.1.
            return (yield from _read_name(part))
        return CallHeader(name, is_whole=True)

    yield from read_section_calls(source, sink, V31, read_name)


DEEPSEEK_V3 = ToolFormat(
    names=("deepseek_v3",),
    parse=read_deepseek_v3,
    starts=(CALLS_START, CALL_START),
    markers=MARKERS,
    trims_content=False,
    grammar=CallGrammar(
        spellings=(
            (
                CALL_START + "function" + SEPARATOR + "{name}\n```json\n",
                "\n```" + CALL_END,
            ),
        ),
        trigger=CALLS_START,
        section=(CALLS_START, CALLS_END),
        separator="\n",
    ),
    summary="The type and the name of a call, then its arguments as JSON in a Markdown fence.",
    models=("DeepSeek-V3", "DeepSeek-V3-0324", "DeepSeek-R1"),
    example=(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n"
        '```json\n{"city": "Paris"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    differences=(
        "Text after the calls is content; vLLM drops it, or some of it.",
        "Arguments over several lines, and those that end in anything but a string, are whole when "
        "they are streamed, too.",
        "A call that is cut off is a call; vLLM drops it when it does not stream.",
        "The form of the other version is read, too; vLLM drops the call, or takes its type for its "
        "name.",
    ),
)

DEEPSEEK_V31 = ToolFormat(
    names=("deepseek_v31",),
    parse=read_deepseek_v31,
    starts=(CALLS_START, CALL_START),
    markers=MARKERS,
    trims_content=False,
    grammar=CallGrammar(
        spellings=((CALL_START + "{name}" + SEPARATOR, CALL_END),),
        trigger=CALLS_START,
        section=(CALLS_START, CALLS_END),
    ),
    summary="The name of a call, then its arguments as JSON.",
    models=("DeepSeek-V3.1",),
    example=(
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>"
        '{"city": "Paris"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>'
    ),
    differences=DEEPSEEK_V3.differences,
)
