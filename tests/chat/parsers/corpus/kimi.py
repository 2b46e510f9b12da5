"""Kimi K2: calls with ids of the model's own, and reasoning that they end."""

from ..transcripts import Corpus, Transcript

SECTION_START, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL_START, CALL_END = "<|tool_call_begin|>", "<|tool_call_end|>"
ARGUMENTS = "<|tool_call_argument_begin|>"
MARKERS = (SECTION_START, SECTION_END, CALL_START, CALL_END, ARGUMENTS)


def call(call_id: str, arguments: str) -> str:
    """Give a call as the chat template writes it."""
    return CALL_START + call_id + ARGUMENTS + arguments + CALL_END


def section(*calls: str) -> str:
    """Give a section of calls."""
    return SECTION_START + "".join(calls) + SECTION_END


KIMI_K2 = Corpus(
    tool="kimi_k2",
    reasoning=None,
    tokens=MARKERS,
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "a call",
            section(call("functions.get_weather:0", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls",
            "Both. "
            + section(
                call("functions.get_weather:0", '{"city": "Paris"}'),
                call("functions.search:1", '{"query": "x"}'),
            ),
            content="Both. ",
            calls=(("get_weather", {"city": "Paris"}), ("search", {"query": "x"})),
        ),
        Transcript(
            "spaces and lines around the parts",
            f"{SECTION_START}\n{CALL_START} functions.get_weather:0 \n{ARGUMENTS} "
            f'{{"city": "Paris"}} {CALL_END}\n{SECTION_END}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "no prefix",
            section(call("get_weather:12", '{"city": "Paris"}')),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a name with dots",
            section(call("functions.math.sum:0", '{"a": 1}')),
            calls=(("math.sum", {"a": 1}),),
        ),
        Transcript(
            "a name with a colon",
            section(call("functions.server:search:0", '{"query": "x"}')),
            calls=(("server:search", {"query": "x"}),),
            differs="vLLM cuts the name at the first colon",
        ),
        Transcript(
            "nested arguments",
            section(
                call(
                    "functions.search:0",
                    '{"query": "a", "filter": {"after": "2024"}, "tags": ["x", ["y"]]}',
                )
            ),
            calls=(("search", {"query": "a", "filter": {"after": "2024"}, "tags": ["x", ["y"]]}),),
        ),
        Transcript(
            "unicode and escapes",
            section(call("functions.search:0", r'{"query": "\u00e9 \"q\" C:\\d\n北京 🌍"}')),
            calls=(("search", {"query": 'é "q" C:\\d\n北京 🌍'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            section(
                call("functions.search:0", '{"limit": -2.5, "exact": false, "anything": [7, null]}')
            ),
            calls=(("search", {"limit": -2.5, "exact": False, "anything": [7, None]}),),
        ),
        Transcript(
            "arguments over several lines",
            section(call("functions.get_weather:0", '{\n  "city": "Paris",\n  "days": 3\n}')),
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "empty arguments",
            section(call("functions.get_time:0", "{}")),
            calls=(("get_time", {}),),
        ),
        Transcript(
            "no arguments at all",
            section(call("functions.get_time:0", "")),
            calls=(("get_time", {}),),
        ),
        Transcript(
            "an id alone",
            section(CALL_START + "functions.get_time:0" + CALL_END),
            calls=(("get_time", {}),),
        ),
        Transcript(
            "markup in a string",
            section(call("functions.search:0", '{"query": "<div>a</div> <|tool"}')),
            calls=(("search", {"query": "<div>a</div> <|tool"}),),
        ),
        Transcript(
            "text after the calls",
            "Before." + section(call("functions.get_time:0", "{}")) + " After.",
            content="Before.After.",
            calls=(("get_time", {}),),
            differs="vLLM drops text after the calls",
        ),
        Transcript(
            "text in the section",
            SECTION_START + " noise " + call("functions.get_time:0", "{}") + SECTION_END,
            content="noise ",
            calls=(("get_time", {}),),
            differs="vLLM drops text between the markers",
        ),
        Transcript("an empty section", "None." + section(), content="None."),
        Transcript(
            "calls outside of a section",
            call("functions.get_time:0", "{}"),
            calls=(("get_time", {}),),
            differs="vLLM gives the text of the call",
        ),
        Transcript(
            "arguments as a string",
            section(call("functions.get_weather:0", r'"{\"city\": \"Paris\"}"')),
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM gives the string",
        ),
        Transcript(
            "ids without a name, and several tools",
            section(call("0", "{}")),
            content=call("0", "{}"),
            differs="vLLM drops the text",
        ),
        Transcript(
            "ids in the forms of clients",
            section(
                call("functions_get_weather_1", '{"city": "Paris"}'),
                call("functionsget_time2", "{}"),
                call("functions.get_time3", "{}"),
                call("functions.get_time:", "{}"),
            ),
            calls=(
                ("get_weather", {"city": "Paris"}),
                ("get_time", {}),
                ("get_time", {}),
                ("get_time", {}),
            ),
            differs="vLLM drops calls whose ids are not of the model's own form",
        ),
        Transcript(
            "cut off in the name",
            SECTION_START + CALL_START + "functions.get_wea",
            content=CALL_START + "functions.get_wea",
            differs="vLLM drops the text",
        ),
        Transcript(
            "cut off before the arguments",
            SECTION_START + CALL_START + "functions.get_weather:1",
            content=CALL_START + "functions.get_weather:1",
            differs="vLLM gives a call without arguments, with what may be half an id",
        ),
        Transcript(
            "cut off in the arguments",
            SECTION_START + CALL_START + "functions.get_weather:0" + ARGUMENTS + '{"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
        ),
        Transcript(
            "arguments that do not end",
            section(
                call("functions.get_weather:0", '{"city": "Beijing"'),
                call("functions.get_time:1", "{}"),
            ),
            calls=(("get_weather", '{"city": "Beijing"'), ("get_time", {})),
        ),
        Transcript(
            "no number, but the name of a tool",
            section(
                call("functions.get_weather", '{"city": "Paris"}'),
                call("functions.get_time:1", "{}"),
            ),
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
            differs="vLLM drops a call whose id has no number",
        ),
        Transcript(
            "no number, and no name of a tool",
            section(call("functions.other.0", "{}"), call("functions.get_time:1", "{}")),
            content=call("functions.other.0", "{}"),
            calls=(("get_time", {}),),
            differs="vLLM drops the text",
        ),
        Transcript(
            "a call without its end marker",
            SECTION_START
            + call("functions.get_weather:0", '{"city": "P"}').removesuffix(CALL_END)
            + call("functions.get_time:1", "{}")
            + SECTION_END,
            calls=(("get_weather", {"city": "P"}), ("get_time", {})),
            differs="vLLM takes both calls for one",
        ),
        Transcript(
            "a section without the end marker of its call",
            SECTION_START
            + call("functions.get_weather:0", '{"city": "P"}').removesuffix(CALL_END)
            + SECTION_END,
            calls=(("get_weather", {"city": "P"}),),
        ),
    ),
)

CORPORA = (KIMI_K2,)
