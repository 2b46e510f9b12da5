"""Phi-4-mini."""

from ..transcripts import Corpus, Transcript

STREAM = "vLLM gives nothing in a stream"

PHI4_MINI = Corpus(
    tool="phi4_mini_json",
    reasoning=None,
    tokens=(),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny.", differs=STREAM),
        Transcript(
            "a call",
            'functools[{"name": "get_weather", "arguments": {"city": "Tokyo"}}]',
            calls=(("get_weather", {"city": "Tokyo"}),),
            differs=STREAM,
        ),
        Transcript(
            "parameters",
            'functools[{"name": "get_weather", "parameters": {"city": "Tokyo"}}]',
            calls=(("get_weather", {"city": "Tokyo"}),),
            differs=STREAM,
        ),
        Transcript(
            "parallel calls",
            'functools[\n  {"name": "get_weather", "arguments": {"city": "Tokyo"}},\n'
            '  {"name": "get_time", "arguments": {}}\n]',
            calls=(("get_weather", {"city": "Tokyo"}), ("get_time", {})),
            differs=STREAM,
        ),
        Transcript(
            "nested arguments",
            'functools[{"name": "search", "arguments": {"tags": ["a", "b"], "filter": '
            '{"after": "2024", "or": []}}}]',
            calls=(("search", {"tags": ["a", "b"], "filter": {"after": "2024", "or": []}}),),
            differs="vLLM ends the calls at the first `]`",
        ),
        Transcript(
            "unicode and escapes",
            'functools[{"name": "search", "arguments": {"query": "He said \\"hi\\" 🎉\\n'
            'C:\\\\x \\u00e9"}}]',
            calls=(("search", {"query": 'He said "hi" 🎉\nC:\\x é'}),),
            differs=STREAM,
        ),
        Transcript(
            "numbers, booleans and null",
            'functools[{"name": "search", "arguments": {"limit": -1.5, "exact": true, '
            '"anything": {"a": 42, "b": null, "c": 1e-3}}}]',
            calls=(
                (
                    "search",
                    {"limit": -1.5, "exact": True, "anything": {"a": 42, "b": None, "c": 1e-3}},
                ),
            ),
            differs=STREAM,
        ),
        Transcript(
            "text before and after",
            'Let me check.\nfunctools[{"name": "get_time", "arguments": {}}]\nMore?',
            content="Let me check.\nMore?",
            calls=(("get_time", {}),),
            differs="vLLM drops the text",
        ),
        Transcript(
            "the marker in a string",
            'functools[{"name": "search", "arguments": {"query": "functools[{]} <b>"}}]',
            calls=(("search", {"query": "functools[{]} <b>"}),),
            differs=STREAM,
        ),
        Transcript(
            "no arguments",
            'functools[{"name": "get_time"}]',
            calls=(("get_time", {}),),
            differs=STREAM,
        ),
        Transcript(
            "arguments in a string",
            'functools[{"name": "get_weather", "arguments": "{\\"city\\": \\"Rome\\"}"}]',
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM leaves the arguments a string in a string",
        ),
        Transcript(
            "a comma too many",
            'functools[{"name": "get_time", "arguments": {}}, ]',
            calls=(("get_time", {}),),
            differs="vLLM drops the call",
        ),
        Transcript(
            "a bracket that is missing",
            'functools{"name": "get_time"}',
            content='functools{"name": "get_time"}',
            differs=STREAM,
        ),
        Transcript(
            "no calls",
            "functools[] This is just text",
            content="functools[] This is just text",
            differs="vLLM drops the text",
        ),
        Transcript(
            "no JSON",
            "functools[ This is just text ]",
            content="functools[ This is just text ]",
            differs="vLLM drops the text",
        ),
        Transcript(
            "a second object that is no call",
            'functools[{"name": "get_time", "arguments": {}}, {"city": "Rome"}] Well.',
            content=', {"city": "Rome"}] Well.',
            calls=(("get_time", {}),),
            differs="vLLM gives all of it as content",
        ),
        Transcript(
            "a call that is cut off in its name",
            'functools[{"name": "get_',
            content='functools[{"name": "get_',
            differs=STREAM,
        ),
        Transcript(
            "a call that is cut off",
            'functools[{"name": "get_weather", "arguments": {"city": "Tok',
            calls=(("get_weather", '{"city": "Tok'),),
            differs="vLLM gives the text of the call",
        ),
        Transcript(
            "calls that are cut off between two",
            'functools[{"name": "get_time", "arguments": {}}, ',
            calls=(("get_time", {}),),
            differs="vLLM gives the text of the call",
        ),
    ),
)

CORPORA = (PHI4_MINI,)
