"""Mistral, before and since version 11 of its tokenizer, and Magistral."""

from ..transcripts import Corpus, Transcript

TOOL_CALLS, CALL_ID, ARGS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"
AFTER = "vLLM drops the text after the calls when it does not stream"

JSON_CALLS = Corpus(
    tool="mistral",
    reasoning=None,
    tokens=(TOOL_CALLS,),
    transcripts=(
        Transcript("plain text", "It is sunny [or so].", content="It is sunny [or so]."),
        Transcript(
            "a call",
            '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Paris"}}]',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call after space, with an id",
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, '
            '"id": "VvvODy9mT"}]',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "an object that is in no array",
            '[TOOL_CALLS]{"name": "get_weather", "arguments": {"city": "Paris"}}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls",
            '[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}},\n'
            ' {"name": "get_time", "arguments": {}}]',
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
        ),
        Transcript(
            "nested arguments",
            '[TOOL_CALLS][{"name": "search", "arguments": {"query": "x", "tags": ["a", "b"], '
            '"filter": {"after": "2024", "or": [{"a": {}}, []]}}}]',
            calls=(
                (
                    "search",
                    {
                        "query": "x",
                        "tags": ["a", "b"],
                        "filter": {"after": "2024", "or": [{"a": {}}, []]},
                    },
                ),
            ),
        ),
        Transcript(
            "unicode and escapes",
            '[TOOL_CALLS][{"name": "search", "arguments": {"query": "Zürich 🎉\\n\\"a\\" \\\\ '
            '\\u00e9"}}]',
            calls=(("search", {"query": 'Zürich 🎉\n"a" \\ é'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            '[TOOL_CALLS][{"name": "search", "arguments": {"limit": -1.5, "exact": true, '
            '"anything": [0, 7, null]}}]',
            calls=(("search", {"limit": -1.5, "exact": True, "anything": [0, 7, None]}),),
        ),
        Transcript(
            "brackets in a string",
            '[TOOL_CALLS][{"name": "search", "arguments": {"query": "a[0] = {b[1]} <b>"}}]',
            calls=(("search", {"query": "a[0] = {b[1]} <b>"}),),
        ),
        Transcript(
            "arguments before the name",
            '[TOOL_CALLS][{"arguments": {"city": "Paris"}, "name": "get_weather"}]',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text before",
            'Let me see.\n[TOOL_CALLS] [{"name": "get_time", "arguments": {}}]',
            content="Let me see.\n",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "text after",
            '[TOOL_CALLS][{"name": "get_time", "arguments": {}}] Done.',
            content="Done.",
            calls=(("get_time", {}),),
            differs=AFTER,
        ),
        Transcript(
            "the marker twice",
            '[TOOL_CALLS][TOOL_CALLS][{"name": "get_time", "arguments": {}}]',
            calls=(("get_time", {}),),
        ),
        Transcript(
            "the marker twice, with space between",
            '[TOOL_CALLS] [TOOL_CALLS]\n[{"name": "get_time", "arguments": {}}]',
            calls=(("get_time", {}),),
        ),
        Transcript(
            "the marker twice before an object",
            '[TOOL_CALLS] [TOOL_CALLS] {"name": "get_time", "arguments": {}}',
            calls=(("get_time", {}),),
        ),
        Transcript(
            "space after the marker where no call follows",
            "Well.[TOOL_CALLS] [TOOL_CALLS]\n I cannot.",
            content="Well.[TOOL_CALLS]\n I cannot.",
            differs="vLLM drops the marker",
        ),
        Transcript(
            "no calls",
            "[TOOL_CALLS][] Well.",
            content="[TOOL_CALLS][] Well.",
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "no JSON",
            "[TOOL_CALLS] I cannot do that.",
            content="[TOOL_CALLS] I cannot do that.",
            differs="vLLM drops the marker",
        ),
        Transcript(
            "a call without a name",
            '[TOOL_CALLS][{"arguments": {"city": "Paris"}}]',
            content='[TOOL_CALLS][{"arguments": {"city": "Paris"}}]',
            differs="vLLM gives a call with an empty name",
        ),
        Transcript(
            "a call that is cut off in its name",
            '[TOOL_CALLS][{"name": "get_',
            content='[TOOL_CALLS][{"name": "get_',
            differs="vLLM drops the text when it streams, or the marker",
        ),
        Transcript(
            "a call that is cut off",
            '[TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs="vLLM gives the text of the call when it does not stream",
        ),
        Transcript(
            "a lone marker",
            "Well. [TOOL_CALLS]",
            content="Well. [TOOL_CALLS]",
            differs="vLLM drops the marker",
        ),
    ),
)

NAMED_CALLS = Corpus(
    tool="mistral",
    reasoning=None,
    tokens=(TOOL_CALLS, CALL_ID, ARGS),
    transcripts=(
        Transcript("plain text", "It is sunny {or so}.", content="It is sunny {or so}."),
        Transcript(
            "a call",
            '[TOOL_CALLS]get_weather{"city": "Paris"}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call with a marker before the arguments",
            '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call with an id",
            '[TOOL_CALLS]get_weather[CALL_ID]VvvODy9mT[ARGS]{"city": "Paris"}',
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM takes the id for a part of the name",
        ),
        Transcript(
            "parallel calls",
            '[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[ARGS]{}'
            '[TOOL_CALLS]search{"query": "x"}',
            calls=(
                ("get_weather", {"city": "Paris"}),
                ("get_time", {}),
                ("search", {"query": "x"}),
            ),
        ),
        Transcript(
            "nested arguments",
            '[TOOL_CALLS]search[ARGS]{"query": "x", "filter": {"after": "2024", "or": [{}, []]}}',
            calls=(("search", {"query": "x", "filter": {"after": "2024", "or": [{}, []]}}),),
        ),
        Transcript(
            "unicode and escapes",
            '[TOOL_CALLS]search[ARGS]{"query": "Zürich 🎉\\n\\"a\\" \\\\ \\u00e9"}',
            calls=(("search", {"query": 'Zürich 🎉\n"a" \\ é'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            '[TOOL_CALLS]search[ARGS]{"limit": -1.5, "exact": true, "anything": [0, 7, null]}',
            calls=(("search", {"limit": -1.5, "exact": True, "anything": [0, 7, None]}),),
        ),
        Transcript(
            "an argument that is called name",
            '[TOOL_CALLS]search[ARGS]{"name": "get_time", "arguments": "}"}',
            calls=(("search", {"name": "get_time", "arguments": "}"}),),
        ),
        Transcript(
            "text before",
            "Let me see.[TOOL_CALLS]get_time[ARGS]{}",
            content="Let me see.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "text after",
            "[TOOL_CALLS]get_time[ARGS]{} Done.",
            content="Done.",
            calls=(("get_time", {}),),
            differs=AFTER,
        ),
        Transcript(
            "JSON calls",
            '[TOOL_CALLS][{"name": "get_time", "arguments": {}}]',
            calls=(("get_time", {}),),
            differs="vLLM reads these only with a tokenizer that has no `[ARGS]`",
        ),
        Transcript(
            "arguments that are no object",
            "[TOOL_CALLS]get_time[ARGS]now",
            content="now",
            calls=(("get_time", {}),),
            differs="vLLM takes the text for arguments",
        ),
        Transcript(
            "arguments that are not quite JSON",
            "[TOOL_CALLS]search[ARGS]{query: 'x'}",
            calls=(("search", "{query: 'x'}"),),
        ),
        Transcript(
            "a string without an end",
            '[TOOL_CALLS]search[ARGS]{"query": "x}[TOOL_CALLS]get_time[ARGS]{}',
            calls=(("search", '{"query": "x}'), ("get_time", {})),
        ),
        Transcript(
            "no name",
            '[TOOL_CALLS][ARGS]{"city": "Paris"}',
            content='[TOOL_CALLS][ARGS]{"city": "Paris"}',
            differs="vLLM gives a call with an empty name",
        ),
        Transcript(
            "text for a call",
            "[TOOL_CALLS]I cannot do that.",
            content="[TOOL_CALLS]I cannot do that.",
            differs="vLLM takes any text for a name",
        ),
        Transcript(
            "a call that is cut off in its name",
            "[TOOL_CALLS]get_wea",
            content="[TOOL_CALLS]get_wea",
            differs="vLLM gives a call of half a name",
        ),
        Transcript(
            "a call that is cut off in its id",
            "[TOOL_CALLS]get_weather[CALL_ID]Vvv",
            calls=(("get_weather", {}),),
            differs="vLLM takes the id for a part of the name",
        ),
        Transcript(
            "a call that is cut off",
            '[TOOL_CALLS]get_weather[ARGS]{"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
        ),
    ),
)

THINK, END_THINK = "[THINK]", "[/THINK]"

MAGISTRAL = Corpus(
    tool="mistral",
    reasoning="mistral",
    tokens=(TOOL_CALLS, CALL_ID, ARGS, THINK, END_THINK),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "reasoning",
            "[THINK]I wonder.\n[/THINK]It is sunny.",
            reasoning="I wonder.",
            content="It is sunny.",
        ),
        Transcript(
            "reasoning over several lines",
            "[THINK]\nI wonder:\n\n- 🎉 <b>\n\n[/THINK]\n\nIt is\nsunny.",
            reasoning="\nI wonder:\n\n- 🎉 <b>",
            content="\n\nIt is\nsunny.",
        ),
        Transcript(
            "reasoning that the prompt began",
            "I wonder.[/THINK]It is sunny.",
            prompt="[THINK]",
            reasoning="I wonder.",
            content="It is sunny.",
            differs="vLLM does not look at the prompt",
        ),
        Transcript(
            "reasoning that the prompt ended",
            "It is sunny.",
            prompt="[THINK]I wonder.[/THINK]",
            content="It is sunny.",
        ),
        Transcript(
            "no answer",
            "[THINK]I wonder.[/THINK]",
            reasoning="I wonder.",
        ),
        Transcript(
            "empty reasoning",
            "[THINK][/THINK]It is sunny.",
            content="It is sunny.",
        ),
        Transcript(
            "text before reasoning",
            "Hm. [THINK]I wonder.[/THINK]It is sunny.",
            reasoning="I wonder.",
            content="Hm. It is sunny.",
        ),
        Transcript(
            "reasoning and a call",
            '[THINK]I wonder.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
            reasoning="I wonder.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "reasoning, text and calls",
            "[THINK]I wonder.[/THINK]Let me see.\n[TOOL_CALLS]get_time[ARGS]{}"
            '[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}',
            reasoning="I wonder.",
            content="Let me see.\n",
            calls=(("get_time", {}), ("get_weather", {"city": "Rome"})),
        ),
        Transcript(
            "a call that ends reasoning",
            '[THINK]I wonder.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}',
            reasoning="I wonder.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "reasoning that is cut off",
            "[THINK]I won",
            reasoning="I won",
        ),
        Transcript(
            "a call after reasoning that is cut off",
            '[THINK]I wonder.[/THINK][TOOL_CALLS]get_weather[ARGS]{"city',
            reasoning="I wonder.",
            calls=(("get_weather", '{"city'),),
        ),
    ),
)

CORPORA = (JSON_CALLS, NAMED_CALLS, MAGISTRAL)
