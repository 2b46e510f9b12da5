"""Llama 3 and 4, with calls in JSON."""

from ..transcripts import Corpus, Transcript

PYTHON_TAG = "<|python_tag|>"
WHOLE = "vLLM gives the text of the call when it does not stream"
DROPS = "vLLM drops the text around the calls, or the calls when it streams"
IN_STREAM = "vLLM drops the text when it streams"
ARRAY = "vLLM finds calls in an array only when it does not stream"

LLAMA3 = Corpus(
    tool="llama3_json",
    reasoning=None,
    tokens=(PYTHON_TAG,),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "a call",
            '{"name": "get_weather", "parameters": {"city": "Paris"}}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call after the tag",
            '<|python_tag|>{"name": "get_weather", "parameters": {"city": "Paris"}}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "arguments",
            '{"name": "get_weather", "arguments": {"city": "Paris", "days": 2}}',
            calls=(("get_weather", {"city": "Paris", "days": 2}),),
        ),
        Transcript(
            "a type first",
            '{"type": "function", "name": "get_weather", "parameters": {"city": "Paris"}}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "another key at the end",
            '{"name": "get_weather", "parameters": {"city": "Paris"}, "why": {"a": "}"}}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a name of no tool after the tag",
            '<|python_tag|>{"name": "other", "parameters": {"a": 1}}',
            calls=(("other", {"a": 1}),),
        ),
        Transcript(
            "parallel calls",
            '{"name": "get_weather", "parameters": {"city": "Paris"}}; '
            '{"name": "search", "parameters": {"query": "x"}}',
            calls=(("get_weather", {"city": "Paris"}), ("search", {"query": "x"})),
        ),
        Transcript(
            "parallel calls with other space",
            '{"name": "get_weather", "parameters": {"city": "Paris"}};'
            '{"name": "get_time", "parameters": {}} ;\n'
            '{"name": "search", "parameters": {"query": "x"}};',
            calls=(
                ("get_weather", {"city": "Paris"}),
                ("get_time", {}),
                ("search", {"query": "x"}),
            ),
            differs="vLLM drops calls when it streams",
        ),
        Transcript(
            "calls with a comma between",
            '{"name": "get_time", "parameters": {}}, {"name": "search", "parameters": {}}',
            content=",",
            calls=(("get_time", {}), ("search", {})),
            differs="vLLM drops the comma",
        ),
        Transcript(
            "nested arguments",
            '{"name": "search", "parameters": {"query": "x", "filter": {"after": "2024", '
            '"or": [{"a": {"b": {"c": 1}}}, []]}}}',
            calls=(
                (
                    "search",
                    {"query": "x", "filter": {"after": "2024", "or": [{"a": {"b": {"c": 1}}}, []]}},
                ),
            ),
        ),
        Transcript(
            "unicode and escapes",
            '{"name": "search", "parameters": {"query": "Zürich 🎉\\n\\"a\\" \\\\ \\u00e9"}}',
            calls=(("search", {"query": 'Zürich 🎉\n"a" \\ é'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            '{"name": "search", "parameters": {"limit": -1.5, "exact": true, "anything": '
            "[0, 25, null, false]}}",
            calls=(("search", {"limit": -1.5, "exact": True, "anything": [0, 25, None, False]}),),
        ),
        Transcript(
            "empty arguments",
            '{"name": "get_time", "parameters": {}}',
            calls=(("get_time", {}),),
        ),
        Transcript(
            "arguments that are null",
            '{"name": "get_time", "parameters": null}',
            calls=(("get_time", {}),),
            differs="vLLM gives `null` when it does not stream",
        ),
        Transcript(
            "parameters before the name",
            '{"parameters": {"city": "Paris"}, "name": "get_weather"}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "markup in a string",
            '{"name": "search", "parameters": {"query": "{value}; [complex] <|x|>"}}',
            calls=(("search", {"query": "{value}; [complex] <|x|>"}),),
        ),
        Transcript(
            "text before and after",
            'Here it is: {"name": "get_time", "parameters": {}} Would you like more?',
            content="Here it is:Would you like more?",
            calls=(("get_time", {}),),
            differs=DROPS,
        ),
        Transcript(
            "an array of calls",
            '[{"name": "get_time", "parameters": {}},\n {"name": "get_weather", "parameters": '
            '{"city": "Paris"}}]',
            calls=(("get_time", {}), ("get_weather", {"city": "Paris"})),
            differs=ARRAY,
        ),
        Transcript(
            "an array of calls after the tag",
            '<|python_tag|>[{"name": "get_time", "parameters": {}}]',
            calls=(("get_time", {}),),
            differs=ARRAY,
        ),
        Transcript(
            "an array that is cut off",
            '[{"name": "get_time", "parameters": {}}, {"name": "get_wea',
            content=', {"name": "get_wea',
            calls=(("get_time", {}),),
            differs="vLLM drops the calls that are complete",
        ),
        Transcript(
            "an answer that is an array",
            '[{"name": "Bob"}, {"name": "Ann"}] [1, 2] [ ] [',
            content='[{"name": "Bob"}, {"name": "Ann"}] [1, 2] [ ] [',
        ),
        Transcript(
            "text after the tag",
            "Hm. <|python_tag|>print(1)",
            content="Hm. <|python_tag|>print(1)",
        ),
        Transcript(
            "an answer in JSON",
            '{"city": "Paris", "days": [{"name": "get_time", "parameters": {}}, "}"]} Fine.',
            content='{"city": "Paris", "days": [{"name": "get_time", "parameters": {}}, "}"]} Fine.',
            differs=IN_STREAM,
        ),
        Transcript(
            "an answer in JSON with the name of no tool",
            '{"name": "Bob", "parameters": {"age": 3}}',
            content='{"name": "Bob", "parameters": {"age": 3}}',
            differs="vLLM takes any name for that of a tool",
        ),
        Transcript(
            "parameters that are no object",
            '{"name": "search", "parameters": 3, "more": {"a": 1}}',
            content='{"name": "search", "parameters": 3, "more": {"a": 1}}',
            differs="vLLM takes anything for arguments",
        ),
        Transcript(
            "no parameters",
            '{"name": "get_time"}',
            content='{"name": "get_time"}',
            differs="vLLM gives a call when it streams",
        ),
        Transcript(
            "no name",
            '{"parameters": {}}',
            content='{"parameters": {}}',
            differs=IN_STREAM,
        ),
        Transcript(
            "braces in text",
            "A set is {1, 2}, a template {x} or { or {}.",
            content="A set is {1, 2}, a template {x} or { or {}.",
        ),
        Transcript(
            "parameters that are not quite JSON",
            '{"name": "search", "parameters": {invalid json}',
            calls=(("search", "{invalid json}"),),
            differs=WHOLE,
        ),
        Transcript(
            "text after a semicolon",
            '{"name": "get_time", "parameters": {}}; and then {x}',
            content="; and then {x}",
            calls=(("get_time", {}),),
            differs=DROPS,
        ),
        Transcript(
            "a call that is cut off in its name",
            '{"name": "get_wea',
            content='{"name": "get_wea',
            differs=IN_STREAM,
        ),
        Transcript(
            "a call that is cut off",
            '{"name": "get_weather", "parameters": {"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=WHOLE,
        ),
        Transcript(
            "a second call that is cut off",
            '{"name": "get_time", "parameters": {}}; {"name": "get_weather", "parameters": {"city"',
            calls=(("get_time", {}), ("get_weather", '{"city"')),
            differs="vLLM drops what there is of the second call",
        ),
    ),
)

CORPORA = (LLAMA3,)
