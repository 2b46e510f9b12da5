"""Qwen3-Coder, and Seed-OSS, which writes the same between tags of its own."""

from ..transcripts import Corpus, Transcript

OPEN = "vLLM closes the arguments of a call that is cut off, or leaves out its last parameter"
DROPS = "vLLM drops the text"


def function(name: str, *parameters: tuple[str, str]) -> str:
    """Write a call as the chat template does."""
    lines = [f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters]
    return f"<function={name}>\n{''.join(lines)}</function>"


def transcripts(start: str, end: str) -> tuple[Transcript, ...]:
    """Give what models write with these tags around each call."""

    def call(name: str, *parameters: tuple[str, str]) -> str:
        return f"{start}\n{function(name, *parameters)}\n{end}"

    return (
        Transcript("plain text", "It is < 20 degrees.", content="It is < 20 degrees."),
        Transcript(
            "a call",
            call("get_weather", ("city", "Paris")),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text before",
            f"Let me look.\n\n{call('get_weather', ('city', 'Paris'))}",
            content="Let me look.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text before and after",
            f"Let me look.\n{call('get_time')}\nDone.",
            content="Let me look.\n\nDone.",
            calls=(("get_time", {}),),
            differs="vLLM drops the text after the call when it does not stream",
        ),
        Transcript(
            "parallel calls",
            f"{call('get_weather', ('city', 'Paris'))}\n{call('get_weather', ('city', 'Rome'))}",
            calls=(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})),
        ),
        Transcript(
            "two calls between one pair of tags",
            f"{start}\n{function('get_weather', ('city', 'Paris'))}\n{function('get_time')}\n{end}",
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
        ),
        Transcript(
            "a call without the tags around it",
            function("get_weather", ("city", "Paris")),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call whose first tag is missing",
            f"{function('get_weather', ('city', 'Paris'))}\n{end}",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript("no arguments", call("get_time"), calls=(("get_time", {}),)),
        Transcript(
            "all on one line",
            f"{start}<function=get_weather><parameter=city>Paris</parameter>"
            f"<parameter=days>3</parameter></function>{end}",
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "numbers",
            call("search", ("limit", "-2.5"), ("query", "12"))
            + call("get_weather", ("days", "-3")),
            calls=(("search", {"limit": -2.5, "query": "12"}), ("get_weather", {"days": -3})),
        ),
        Transcript(
            "numbers that are none",
            call("get_weather", ("days", "a few")) + call("search", ("limit", "1e999")),
            calls=(("get_weather", {"days": "a few"}), ("search", {"limit": "1e999"})),
        ),
        Transcript(
            "booleans in Python's spelling, and as digits",
            call("search", ("exact", "True")) + call("search", ("exact", "0")),
            calls=(("search", {"exact": True}), ("search", {"exact": False})),
        ),
        Transcript(
            "null where the schema has none",
            call("get_weather", ("city", "null"), ("days", "null")),
            calls=(("get_weather", {"city": "null", "days": None}),),
        ),
        Transcript(
            "nested values",
            call(
                "search", ("tags", '["a", "b"]'), ("filter", '{"after": "2024", "not": {"a": [1]}}')
            ),
            calls=(
                ("search", {"tags": ["a", "b"], "filter": {"after": "2024", "not": {"a": [1]}}}),
            ),
        ),
        Transcript(
            "a nested value that is no JSON",
            call("search", ("filter", "{'after': '2024'}")),
            calls=(("search", {"filter": "{'after': '2024'}"}),),
        ),
        Transcript(
            "parameters that the schema does not tell of",
            call("search", ("anything", "5"), ("other", "true")) + call("unknown", ("a", "[1]")),
            calls=(("search", {"anything": "5", "other": "true"}), ("unknown", {"a": "[1]"})),
        ),
        Transcript(
            "unicode and escapes",
            call("search", ("query", 'Zürich "杭州" 🌤 \\n\t\u2028')),
            calls=(("search", {"query": 'Zürich "杭州" 🌤 \\n\t\u2028'}),),
        ),
        Transcript(
            "line breaks at both ends",
            call("search", ("query", "\n  a\n\nb  \n")),
            calls=(("search", {"query": "\n  a\n\nb  \n"}),),
        ),
        Transcript(
            "empty values",
            f"{start}\n<function=search>\n<parameter=query>\n</parameter>\n"
            f"<parameter=tags></parameter>\n</function>\n{end}",
            calls=(("search", {"query": "", "tags": ""}),),
        ),
        Transcript(
            "markup in a value",
            call("search", ("query", 'if a < b: "</p>" </parameters> <function> </ parameter')),
            calls=(
                ("search", {"query": 'if a < b: "</p>" </parameters> <function> </ parameter'}),
            ),
        ),
        Transcript(
            "the format's own tags in a value",
            call("search", ("query", f"Write {start} and {end} around a call")),
            calls=(("search", {"query": f"Write {start} and {end} around a call"}),),
        ),
        Transcript(
            "the end of a parameter in a value",
            call("search", ("query", "Write </parameter> last.\n</parameter>"), ("limit", "2")),
            calls=(("search", {"query": "Write </parameter> last.", "limit": 2}),),
            differs="vLLM ends the value at the first of them",
        ),
        Transcript(
            "all parameters as one object",
            f'{start}\n<function=get_weather>\n{{"city": "Paris", "days": 3}}\n</function>\n{end}',
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
            differs="vLLM drops the object",
        ),
        Transcript(
            "cut off in the end of a call",
            f"{start}\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n</func",
            calls=(("get_weather", '{"city": "Paris"'),),
            differs=OPEN,
        ),
        Transcript(
            "a parameter that is repeated",
            call("get_weather", ("city", "Paris"), ("city", "Rome")),
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "cut off in the name",
            f"Look:\n{start}\n<function=get_wea",
            content=f"Look:\n{start}\n<function=get_wea",
            differs="vLLM makes a call of a part of the name",
        ),
        Transcript(
            "cut off after the name",
            f"{start}\n<function=get_weather>\n",
            calls=(("get_weather", {}),),
        ),
        Transcript(
            "cut off in a string",
            f"{start}\n<function=get_weather>\n<parameter=city>\nPar",
            calls=(("get_weather", '{"city": "Par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in the tag after a string",
            f"{start}\n<function=get_weather>\n<parameter=city>\nParis\n</par",
            calls=(("get_weather", '{"city": "Paris\\n</par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in a number",
            f"{start}\n<function=get_weather>\n<parameter=days>\n1",
            calls=(("get_weather", '{"days": '),),
            differs=OPEN,
        ),
        Transcript(
            "cut off between parameters",
            f"{start}\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<param",
            calls=(("get_weather", '{"city": "Paris"'),),
            differs=OPEN,
        ),
        Transcript(
            "a name that is not closed, and text",
            f"Use {start}\n<function=name\nWait, I mean {start}:\n"
            f"{call('get_weather', ('city', 'Paris'))}",
            content=f"Use {start}\n<function=name\nWait, I mean {start}:",
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM makes a call of the text",
        ),
        Transcript(
            "a name that is not closed, and the end",
            f"{start}\n<function=name\n{end}",
            content=f"{start}\n<function=name\n{end}",
            differs="vLLM makes a call of the text",
        ),
        Transcript(
            "a name that is not closed, and parameters",
            f"{start}\n<function=get_weather\n<parameter=city>\nParis\n</parameter>\n"
            f"</function>\n{end}",
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM takes the parameter for a part of the name",
        ),
        Transcript(
            "a call that is not closed, and another",
            f"{start}\n<function=get_time>\n{call('get_weather', ('city', 'Paris'))}",
            calls=(("get_time", {}), ("get_weather", {"city": "Paris"})),
            differs="vLLM takes the second call for a part of the first",
        ),
        Transcript(
            "parameters that are not closed",
            f"{start}\n<function=get_weather>\n<parameter=city>\nParis\n<parameter=days>\n3\n"
            f"</function>\n{end}",
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
            differs="vLLM leaves out the last one",
        ),
        Transcript(
            "nothing closed but the outer tag",
            f"{start}\n<function=get_weather>\n<parameter=city>\nParis\n{end}\n"
            f"{call('get_time')}\n{start}\n<function=get_weather>\n<parameter=days>3{end}\n",
            calls=(
                ("get_weather", {"city": "Paris"}),
                ("get_time", {}),
                ("get_weather", {"days": 3}),
            ),
            differs="vLLM takes all that follows for a part of the first call",
        ),
        Transcript(
            "a parameter whose name is not closed",
            f"{start}\n<function=get_weather>\n<parameter=city\nParis\n</parameter>\n"
            f"</function>\n{end}",
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM takes the value for a part of the name",
        ),
        Transcript(
            "no call in the tags",
            f"{start}I would call a tool here.{end} Or not.",
            content=f"{start}I would call a tool here.{end} Or not.",
            differs=DROPS,
        ),
        Transcript(
            "text inside the outer tags",
            f"{start}\n{function('get_time')}\nThat is all.\n{end}",
            content="That is all.",
            calls=(("get_time", {}),),
            differs=DROPS,
        ),
        Transcript("a tag that closes nothing", f"All done.{end}", content=f"All done.{end}"),
    )


QWEN3_CODER = Corpus(
    tool="qwen3_coder",
    reasoning=None,
    tokens=("<tool_call>", "</tool_call>"),
    transcripts=transcripts("<tool_call>", "</tool_call>"),
)
SEED_OSS = Corpus(
    tool="seed_oss",
    reasoning=None,
    tokens=("<seed:tool_call>", "</seed:tool_call>"),
    transcripts=transcripts("<seed:tool_call>", "</seed:tool_call>"),
)
SEED_THINKING = Corpus(
    tool="seed_oss",
    reasoning="seed_oss",
    tokens=("<seed:think>", "</seed:think>", "<seed:tool_call>", "</seed:tool_call>"),
    transcripts=(
        Transcript(
            "the model begins the reasoning",
            "<seed:think>\nThey greet me.\n</seed:think>\nHello!",
            reasoning="\nThey greet me.\n",
            content="\nHello!",
        ),
        Transcript(
            "the prompt begins the reasoning",
            "They greet me.</seed:think>Hello!",
            prompt="<seed:think>",
            reasoning="They greet me.",
            content="Hello!",
        ),
        Transcript(
            "the model counts its tokens",
            "<seed:think>Hm.\n<seed:cot_budget_reflect>I have used 9 tokens."
            "</seed:cot_budget_reflect>\nYes.</seed:think>Hello!",
            reasoning="Hm.\n<seed:cot_budget_reflect>I have used 9 tokens."
            "</seed:cot_budget_reflect>\nYes.",
            content="Hello!",
        ),
        Transcript(
            "a call after the reasoning",
            "<seed:think>I look.</seed:think>\n<seed:tool_call>\n"
            + function("get_weather", ("city", "Paris"))
            + "\n</seed:tool_call>",
            reasoning="I look.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call ends the reasoning",
            "<seed:think>I look.\n<seed:tool_call>\n"
            + function("get_weather", ("city", "Paris"))
            + "\n</seed:tool_call>",
            reasoning="I look.\n",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript("cut off in the reasoning", "<seed:think>They", reasoning="They"),
        Transcript(
            "no reasoning",
            "<seed:think></seed:think>Hello!",
            content="Hello!",
        ),
        Transcript(
            "the tags of another model",
            "<seed:think>I write </think>, or </seed:thin.</seed:think>Hello!",
            reasoning="I write </think>, or </seed:thin.",
            content="Hello!",
        ),
    ),
)

CORPORA = (QWEN3_CODER, SEED_OSS, SEED_THINKING)
