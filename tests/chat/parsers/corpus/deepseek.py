"""DeepSeek V3 and V3.1: calls between markers, and reasoning that the prompt begins."""

from ..transcripts import Corpus, Transcript

CALLS_START, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
CALL_START, CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"
SEPARATOR = "<｜tool▁sep｜>"
MARKERS = (CALLS_START, CALLS_END, CALL_START, CALL_END, SEPARATOR)

CUT_OFF = "vLLM drops a call that is cut off when it does not stream"
TEXT_AFTER = "vLLM drops text after the calls when it does not stream"
NO_STRING = "vLLM drops the end of streamed arguments that do not end in a string"
OTHER_FORM = "vLLM drops the call, or takes its type for its name"
STREAMED_PARALLEL = "vLLM mixes up streamed calls when there are several"


def v3(name: str, arguments: str, kind: str = "function") -> str:
    """Give a call as the chat template of V3 writes it."""
    return f"{CALL_START}{kind}{SEPARATOR}{name}\n```json\n{arguments}\n```{CALL_END}"


def v31(name: str, arguments: str) -> str:
    """Give a call as the chat template of V3.1 writes it."""
    return f"{CALL_START}{name}{SEPARATOR}{arguments}{CALL_END}"


def section(*calls: str, between: str = "") -> str:
    """Give a section of calls."""
    return CALLS_START + between.join(calls) + CALLS_END


NESTED = '{"query": "a", "filter": {"after": "2024-01-01"}, "tags": ["x", "y"], "limit": 3}'
NUMBERS = '{"query": "a", "limit": -2.5, "anything": [0, 1e3, -7]}'
FLAGS = '{"query": "a", "exact": true, "anything": null}'
ESCAPES = r'{"query": "\u00e9 \"quoted\" C:\\dir\nline 北京 🌍"}'
MARKUP = '{"query": "<b>bold</b> ```json {} ``` <tool_call>"}'
PRETTY = '{\n  "city": "Tokyo",\n  "unit": "celsius"\n}'

DEEPSEEK_V3 = Corpus(
    tool="deepseek_v3",
    reasoning=None,
    tokens=MARKERS,
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "the form of the other version",
            section(v31("get_weather", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
            differs=OTHER_FORM,
        ),
        Transcript(
            "a call",
            section(v3("get_weather", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls",
            section(
                v3("get_weather", '{"city": "Paris"}'), v3("search", '{"query": "x"}'), between="\n"
            ),
            calls=(("get_weather", {"city": "Paris"}), ("search", {"query": "x"})),
        ),
        Transcript(
            "nested arguments",
            section(v3("search", NESTED)),
            calls=(
                (
                    "search",
                    {
                        "query": "a",
                        "filter": {"after": "2024-01-01"},
                        "tags": ["x", "y"],
                        "limit": 3,
                    },
                ),
            ),
        ),
        Transcript(
            "unicode and escapes",
            section(v3("search", ESCAPES)),
            calls=(("search", {"query": 'é "quoted" C:\\dir\nline 北京 🌍'}),),
        ),
        Transcript(
            "numbers",
            section(v3("search", NUMBERS)),
            calls=(("search", {"query": "a", "limit": -2.5, "anything": [0, 1000.0, -7]}),),
        ),
        Transcript(
            "booleans and null",
            section(v3("search", FLAGS)),
            calls=(("search", {"query": "a", "exact": True, "anything": None}),),
        ),
        Transcript("empty arguments", section(v3("get_time", "{}")), calls=(("get_time", {}),)),
        Transcript(
            "no arguments at all",
            CALLS_START + CALL_START + "function" + SEPARATOR + "get_time" + CALL_END + CALLS_END,
            calls=(("get_time", {}),),
            differs="vLLM drops a call without arguments",
        ),
        Transcript(
            "text before a call",
            "I look it up.\n" + section(v3("get_weather", '{"city": "Paris"}')),
            content="I look it up.\n",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text after a call",
            "I look." + section(v3("get_weather", '{"city": "Paris"}')) + "\nIt is warm.",
            content="I look.It is warm.",
            calls=(("get_weather", {"city": "Paris"}),),
            differs=TEXT_AFTER,
        ),
        Transcript(
            "arguments over several lines",
            section(v3("get_weather", PRETTY), v3("search", '{"query": "x"}')),
            calls=(
                ("get_weather", {"city": "Tokyo", "unit": "celsius"}),
                ("search", {"query": "x"}),
            ),
            differs="vLLM wants arguments on one line",
        ),
        Transcript(
            "markup in a string",
            section(v3("search", MARKUP)),
            calls=(("search", {"query": "<b>bold</b> ```json {} ``` <tool_call>"}),),
        ),
        Transcript(
            "cut off in the name",
            CALLS_START + CALL_START + "function" + SEPARATOR + "get_wea",
            content=CALL_START + "function" + SEPARATOR + "get_wea",
            differs="vLLM drops the text",
        ),
        Transcript(
            "cut off in the arguments",
            CALLS_START + v3("get_weather", '{"city": "Par').removesuffix("\n```" + CALL_END),
            calls=(("get_weather", '{"city": "Par'),),
            differs=CUT_OFF,
        ),
        Transcript(
            "cut off after the arguments",
            CALLS_START + v3("get_weather", '{"city": "Paris"}').removesuffix("``" + CALL_END),
            calls=(("get_weather", {"city": "Paris"}),),
            differs=CUT_OFF,
        ),
        Transcript(
            "arguments that do not end",
            section(v3("get_weather", '{"city": "Tokyo"')),
            calls=(("get_weather", '{"city": "Tokyo"'),),
        ),
        Transcript(
            "a call without its start marker",
            CALLS_START + "function" + SEPARATOR + 'get_weather\n```json\n{"city": "T"}\n```',
            content="function" + SEPARATOR + 'get_weather\n```json\n{"city": "T"}\n```',
            differs="vLLM drops the text when it does not stream",
        ),
        Transcript(
            "a call without a separator",
            section(CALL_START + "get_weather" + CALL_END),
            content=CALL_START + "get_weather" + CALL_END,
            differs="vLLM drops the text",
        ),
        Transcript(
            "a call without a separator, and another",
            section(CALL_START + "get_weather", v3("get_time", "{}")),
            content=CALL_START + "get_weather",
            calls=(("get_time", {}),),
            differs="vLLM drops the text",
        ),
        Transcript(
            "a call without its end marker",
            CALLS_START
            + v3("get_weather", '{"city": "T"}').removesuffix(CALL_END)
            + v3("get_time", "{}")
            + CALLS_END,
            calls=(("get_weather", {"city": "T"}), ("get_time", {})),
            differs="vLLM takes both calls for one",
        ),
        Transcript(
            "a fence without its name, on one line",
            section(f"{CALL_START}function{SEPARATOR}get_time```{{}}```{CALL_END}"),
            calls=(("get_time", {}),),
            differs="vLLM drops the call",
        ),
    ),
)

DEEPSEEK_V31 = Corpus(
    tool="deepseek_v31",
    reasoning=None,
    tokens=MARKERS,
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "the form of the other version",
            section(v3("get_weather", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
            differs=OTHER_FORM,
        ),
        Transcript(
            "a call",
            section(v31("get_weather", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls",
            section(v31("get_weather", '{"city": "Paris"}'), v31("search", '{"query": "x"}')),
            calls=(("get_weather", {"city": "Paris"}), ("search", {"query": "x"})),
        ),
        Transcript(
            "nested arguments",
            section(v31("search", NESTED)),
            calls=(
                (
                    "search",
                    {
                        "query": "a",
                        "filter": {"after": "2024-01-01"},
                        "tags": ["x", "y"],
                        "limit": 3,
                    },
                ),
            ),
        ),
        Transcript(
            "unicode and escapes",
            section(v31("search", ESCAPES)),
            calls=(("search", {"query": 'é "quoted" C:\\dir\nline 北京 🌍'}),),
        ),
        Transcript(
            "numbers",
            section(v31("search", NUMBERS)),
            calls=(("search", {"query": "a", "limit": -2.5, "anything": [0, 1000.0, -7]}),),
        ),
        Transcript(
            "booleans and null",
            section(v31("search", FLAGS)),
            calls=(("search", {"query": "a", "exact": True, "anything": None}),),
        ),
        Transcript("empty arguments", section(v31("get_time", "{}")), calls=(("get_time", {}),)),
        Transcript("no arguments at all", section(v31("get_time", "")), calls=(("get_time", {}),)),
        Transcript(
            "a name alone",
            section(CALL_START + "get_time" + CALL_END),
            calls=(("get_time", {}),),
            differs="vLLM drops a call without a separator",
        ),
        Transcript(
            "a name alone, of no tool",
            section(CALL_START + "no tool" + CALL_END),
            content=CALL_START + "no tool" + CALL_END,
            differs="vLLM drops the text",
        ),
        Transcript(
            "text before and after a call",
            "Let me see.\n" + section(v31("get_weather", '{"city": "Paris"}')) + " It is warm.",
            content="Let me see.\nIt is warm.",
            calls=(("get_weather", {"city": "Paris"}),),
            differs=TEXT_AFTER,
        ),
        Transcript(
            "arguments over several lines",
            section(v31("get_weather", PRETTY)),
            calls=(("get_weather", {"city": "Tokyo", "unit": "celsius"}),),
            differs="vLLM wants arguments on one line",
        ),
        Transcript(
            "markup in a string",
            section(v31("search", MARKUP)),
            calls=(("search", {"query": "<b>bold</b> ```json {} ``` <tool_call>"}),),
        ),
        Transcript(
            "arguments in a fence",
            section(v31("get_weather", '\n```json\n{"city": "Paris"}\n```')),
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM takes the fence for a part of the arguments",
        ),
        Transcript(
            "cut off in the name",
            CALLS_START + CALL_START + "get_wea",
            content=CALL_START + "get_wea",
            differs="vLLM drops the text",
        ),
        Transcript(
            "cut off in the arguments",
            CALLS_START + CALL_START + "get_weather" + SEPARATOR + '{"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=CUT_OFF,
        ),
        Transcript(
            "arguments that do not end",
            section(v31("get_weather", '{"city": "Tokyo"')),
            calls=(("get_weather", '{"city": "Tokyo"'),),
        ),
        Transcript(
            "arguments that are no JSON",
            section(v31("get_weather", "city = Tokyo, now")),
            calls=(("get_weather", "city = Tokyo, now"),),
        ),
        Transcript(
            "no name",
            section(v31("", '{"city": "Tokyo"}')),
            content=v31("", '{"city": "Tokyo"}'),
            differs="vLLM gives a call without a name, or drops the text",
        ),
        Transcript(
            "calls outside of a section",
            v31("get_weather", '{"city": "Paris"}'),
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM sees calls in a section only",
        ),
        Transcript(
            "an empty section",
            "None." + CALLS_START + CALLS_END,
            content="None.",
        ),
    ),
)

CORPORA = (DEEPSEEK_V3, DEEPSEEK_V31)
