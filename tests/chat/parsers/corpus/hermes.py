"""Hermes 2 Pro, Qwen2.5, Qwen3."""

from ..transcripts import Corpus, Transcript

START, END = "<tool_call>", "</tool_call>"
CUT = "vLLM gives the text of the call when it does not stream"
AFTER = "vLLM drops the text after a call"

HERMES = Corpus(
    tool="hermes",
    reasoning=None,
    tokens=(START, END),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "a call",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call without line breaks",
            '<tool_call>{"name":"get_weather","arguments":{"city":"Paris","days":3}}</tool_call>',
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "parallel calls",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>\n'
            '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
        ),
        Transcript(
            "nested arguments",
            '<tool_call>\n{"name": "search", "arguments": {"query": "x", "tags": ["a", "b"], '
            '"filter": {"after": "2024", "or": [{"before": "2020"}, []]}}}\n</tool_call>',
            calls=(
                (
                    "search",
                    {
                        "query": "x",
                        "tags": ["a", "b"],
                        "filter": {"after": "2024", "or": [{"before": "2020"}, []]},
                    },
                ),
            ),
        ),
        Transcript(
            "unicode and escapes",
            '<tool_call>\n{"name": "search", "arguments": {"query": "Zürich 東京 🎉\\n\\"a\\" '
            '\\\\ \\u00e9 \\ud83d\\ude00"}}\n</tool_call>',
            calls=(("search", {"query": 'Zürich 東京 🎉\n"a" \\ é 😀'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            '<tool_call>\n{"name": "search", "arguments": {"limit": -1.5, "exact": false, '
            '"anything": [0, 1e3, -7, true, null]}}\n</tool_call>',
            calls=(
                ("search", {"limit": -1.5, "exact": False, "anything": [0, 1e3, -7, True, None]}),
            ),
        ),
        Transcript(
            "markup in a string",
            '<tool_call>\n{"name": "search", "arguments": {"query": "<b>{\\"x\\": [</tool>"}}\n'
            "</tool_call>",
            calls=(("search", {"query": '<b>{"x": [</tool>'}),),
        ),
        Transcript(
            "an end in a string",
            '<tool_call>\n{"name": "search", "arguments": {"query": "a </tool_call> b\\\\"}}\n'
            "</tool_call>\nDone.",
            content="Done.",
            calls=(("search", {"query": "a </tool_call> b\\"}),),
            differs="vLLM ends the call in the string",
        ),
        Transcript(
            "a string that is not closed",
            '<tool_call>{"name": "search", "arguments": {"query": "a</tool_call>\n'
            '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>',
            calls=(("search", '{"query": "a'), ("get_time", {})),
            differs="vLLM gives the text of both calls when it does not stream",
        ),
        Transcript(
            "text before a call",
            'I will look.\n<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>',
            content="I will look.\n",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "text after a call",
            '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\nDone.',
            content="Done.",
            calls=(("get_time", {}),),
            differs=AFTER,
        ),
        Transcript(
            "arguments before the name",
            '<tool_call>\n{"arguments": {"city": "Rome"}, "name": "get_weather"}\n</tool_call>',
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM takes the name for a part of the arguments when it streams",
        ),
        Transcript(
            "no arguments",
            '<tool_call>\n{"name": "get_time"}\n</tool_call>',
            calls=(("get_time", {}),),
            differs=CUT,
        ),
        Transcript(
            "an end marker that is missing",
            '<tool_call>\n{"name": "get_time", "arguments": {}}',
            calls=(("get_time", {}),),
        ),
        Transcript(
            "a brace too many",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}}\n</tool_call>',
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM makes the brace a part of the arguments, or gives the text of the call",
        ),
        Transcript(
            "no name",
            '<tool_call>\n{"arguments": {"city": "Paris"}}\n</tool_call>',
            content='<tool_call>\n{"arguments": {"city": "Paris"}}\n</tool_call>',
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "no JSON",
            "<tool_call>get_weather(Paris)</tool_call> Sorry.",
            content="<tool_call>get_weather(Paris)</tool_call> Sorry.",
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "arguments that are not quite JSON",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": \'Paris\',}}\n</tool_call>',
            calls=(("get_weather", "{\"city\": 'Paris',}"),),
            differs=CUT,
        ),
        Transcript(
            "two calls between one pair of tags",
            '<tool_call>\n{"name": "get_time", "arguments": {}}\n{"name": "get_weather", '
            '"arguments": {"city": "Rome"}}\n</tool_call>',
            calls=(("get_time", {}), ("get_weather", {"city": "Rome"})),
            differs="vLLM gives the text of both, or one of them",
        ),
        Transcript(
            "text after the call, between the tags",
            '<tool_call>{"name": "get_time", "arguments": {}} as asked</tool_call>',
            content="as asked",
            calls=(("get_time", {}),),
            differs="vLLM gives the text of the call when it does not stream",
        ),
        Transcript(
            "a call that is cut off in its name",
            'Wait. <tool_call>\n{"name": "get_wea',
            content='Wait. <tool_call>\n{"name": "get_wea',
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "a call that is cut off",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=CUT,
        ),
        Transcript(
            "a second call that is cut off",
            '<tool_call>\n{"name": "get_time", "arguments": {}}\n</tool_call>\n'
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"',
            calls=(("get_time", {}), ("get_weather", '{"city": "Paris"')),
            differs=CUT,
        ),
    ),
)

CORPORA = (HERMES,)
