"""Granite 3.2 and 4."""

from ..transcripts import Corpus, Transcript

START, END = "<tool_call>", "</tool_call>"
WHOLE = "vLLM gives the text of the call when it does not stream"

GRANITE4 = Corpus(
    tool="granite4",
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
            "parallel calls",
            '<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool_call>\n'
            '<tool_call>{"name": "get_time", "arguments": {}}</tool_call>',
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
        ),
        Transcript(
            "arguments in a string",
            '<tool_call> {"name": "search", "arguments": "{\\"anything\\": [[23.54, -12.2], '
            '[4, 5]], \\"query\\": \\"a\\\\nb\\"}"} </tool_call>',
            calls=(("search", {"anything": [[23.54, -12.2], [4, 5]], "query": "a\nb"}),),
        ),
        Transcript(
            "text between calls",
            'First: \n<tool_call> {"name": "get_time", "arguments": {}} </tool_call> Now '
            'the weather:\n<tool_call> {"name": "get_weather", "arguments": {"city": "Rome"}} '
            "</tool_call> See?",
            content="First: \n Now the weather:\n See?",
            calls=(("get_time", {}), ("get_weather", {"city": "Rome"})),
        ),
        Transcript(
            "nested arguments",
            '<tool_call>{"name": "search", "arguments": {"tags": ["a"], "filter": {"or": '
            '[{"after": "2024"}, []]}}}</tool_call>',
            calls=(("search", {"tags": ["a"], "filter": {"or": [{"after": "2024"}, []]}}),),
        ),
        Transcript(
            "unicode and escapes",
            '<tool_call>{"name": "search", "arguments": {"query": "Zürich 🎉\\n\\"a\\" \\\\ '
            '\\u00e9"}}</tool_call>',
            calls=(("search", {"query": 'Zürich 🎉\n"a" \\ é'}),),
        ),
        Transcript(
            "numbers, booleans and null",
            '<tool_call>{"name": "search", "arguments": {"limit": -1.5, "exact": false, '
            '"anything": [0, 1e3, true, null]}}</tool_call>',
            calls=(("search", {"limit": -1.5, "exact": False, "anything": [0, 1e3, True, None]}),),
        ),
        Transcript(
            "markup in a string",
            '<tool_call>{"name": "search", "arguments": {"query": "<b>{</tool>"}}</tool_call>',
            calls=(("search", {"query": "<b>{</tool>"}),),
        ),
        Transcript(
            "no arguments",
            '<tool_call>{"name": "get_time"}</tool_call>',
            calls=(("get_time", {}),),
            differs=WHOLE,
        ),
        Transcript(
            "no name",
            '<tool_call>{"arguments": {}}</tool_call> Well.',
            content='<tool_call>{"arguments": {}}</tool_call> Well.',
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "no JSON",
            "<tool_call>get_time()</tool_call> Well.",
            content="<tool_call>get_time()</tool_call> Well.",
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "a call that is cut off in its name",
            'Wait. <tool_call>{"name": "get_',
            content='Wait. <tool_call>{"name": "get_',
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "a call that is cut off",
            '<tool_call>{"name": "get_weather", "arguments": {"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=WHOLE,
        ),
        Transcript(
            "arguments in a string that is none",
            '<tool_call>{"name": "search", "arguments": "\\q"}</tool_call>',
            calls=(("search", '"\\q"'),),
            differs=WHOLE,
        ),
        Transcript(
            "arguments in a string that is cut off",
            '<tool_call>{"name": "get_weather", "arguments": "{\\"city\\": \\"Par',
            calls=(("get_weather", '"{\\"city\\": \\"Par'),),
            differs=WHOLE,
        ),
    ),
)

THINK = "Here is my thought process:"
RESPOND = "Here is my response:"
LEAK = "vLLM leaves a part of the marker in the reasoning when it streams"

GRANITE = Corpus(
    tool=None,
    reasoning="granite",
    tokens=(),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "reasoning",
            f"{THINK} I wonder.\n{RESPOND} It is sunny.",
            reasoning=" I wonder.\n",
            content=" It is sunny.",
            differs=LEAK,
        ),
        Transcript(
            "reasoning without space",
            f"{THINK}This is reasoning{RESPOND}This is the rest",
            reasoning="This is reasoning",
            content="This is the rest",
            differs=LEAK,
        ),
        Transcript(
            "the other wording",
            "Here's my thought process: I wonder. Here's my response: It is sunny.",
            reasoning=" I wonder. ",
            content=" It is sunny.",
            differs=LEAK,
        ),
        Transcript(
            "both wordings",
            "Here's my thought process: I wonder. Here is my response: It is sunny.",
            reasoning=" I wonder. ",
            content=" It is sunny.",
            differs=LEAK,
        ),
        Transcript(
            "reasoning over several lines",
            f"{THINK}\n\n1. This: that\n2. Here: there\n\n{RESPOND}\n\nIt is:\nsunny.",
            reasoning="\n\n1. This: that\n2. Here: there\n\n",
            content="\n\nIt is:\nsunny.",
            differs=LEAK,
        ),
        Transcript(
            "what almost ends reasoning",
            f"{THINK} foo Here is my answer: Here is Here's {RESPOND} bar",
            reasoning=" foo Here is my answer: Here is Here's ",
            content=" bar",
            differs=LEAK,
        ),
        Transcript(
            "what almost begins reasoning",
            "Here is my thought: it is sunny. Here is my response: yes.",
            content="Here is my thought: it is sunny. Here is my response: yes.",
        ),
        Transcript(
            "unicode",
            f"{THINK} 🎉 東京 {RESPOND} Zürich 🎉",
            reasoning=" 🎉 東京 ",
            content=" Zürich 🎉",
            differs=LEAK,
        ),
        Transcript(
            "the markers once more in the answer",
            f"{THINK} a {RESPOND} b {THINK} c {RESPOND} d",
            reasoning=" a ",
            content=f" b {THINK} c {RESPOND} d",
            differs=LEAK,
        ),
        Transcript(
            "reasoning that the prompt began",
            f" I wonder. {RESPOND} It is sunny.",
            prompt="Here's my thought process:",
            reasoning=" I wonder. ",
            content=" It is sunny.",
            differs="vLLM does not look at the prompt",
        ),
        Transcript(
            "no answer",
            f"{THINK} I wonder.{RESPOND}",
            reasoning=" I wonder.",
            differs=LEAK,
        ),
        Transcript(
            "empty reasoning",
            f"{THINK}\n{RESPOND} It is sunny.",
            content=" It is sunny.",
            differs=LEAK,
        ),
        Transcript(
            "reasoning that is cut off",
            f"{THINK} I won",
            reasoning=" I won",
            differs="vLLM gives content when it does not stream",
        ),
        Transcript(
            "reasoning that is cut off in its end marker",
            f"{THINK} I wonder. Here is my resp",
            reasoning=" I wonder. Here is my resp",
            differs="vLLM gives content when it does not stream",
        ),
        Transcript(
            "a start marker that is cut off",
            "Here is my thought proc",
            content="Here is my thought proc",
            differs="vLLM drops the text when it streams",
        ),
    ),
)

CORPORA = (GRANITE4, GRANITE)
