"""DeepSeek-V3.2."""

from ..transcripts import Corpus, Transcript

BAR = "\uff5c"
START, END = f"<{BAR}DSML{BAR}function_calls>", f"</{BAR}DSML{BAR}function_calls>"
INVOKE, INVOKE_END = f"<{BAR}DSML{BAR}invoke", f"</{BAR}DSML{BAR}invoke>"
PARAMETER, PARAMETER_END = f"<{BAR}DSML{BAR}parameter", f"</{BAR}DSML{BAR}parameter>"
OPEN = "vLLM closes the arguments of a call that is cut off, or leaves out its last parameter"
AFTER = "vLLM drops text after calls"


def string(name: str, value: str) -> str:
    """Write a parameter that is a string."""
    return f'{PARAMETER} name="{name}" string="true">{value}{PARAMETER_END}\n'


def other(name: str, value: str) -> str:
    """Write a parameter that is something else, as JSON."""
    return f'{PARAMETER} name="{name}" string="false">{value}{PARAMETER_END}\n'


def invoke(name: str, *parameters: str) -> str:
    """Write a call as the model's own encoding does."""
    return f'{INVOKE} name="{name}">\n{"".join(parameters)}{INVOKE_END}'


def calls(*invokes: str) -> str:
    """Write the tags around calls."""
    lines = "\n".join(invokes)
    return f"{START}\n{lines}\n{END}"


DEEPSEEK_V32 = Corpus(
    tool="deepseek_v32",
    reasoning=None,
    tokens=(),
    transcripts=(
        Transcript("plain text", "It is < 20 degrees.", content="It is < 20 degrees."),
        Transcript(
            "a call",
            calls(invoke("get_weather", string("city", "Paris"))),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls",
            "I look.\n\n"
            + calls(
                invoke("get_weather", string("city", "Paris"), other("days", "2")),
                invoke("get_weather", string("city", "Rome")),
            ),
            content="I look.\n\n",
            calls=(
                ("get_weather", {"city": "Paris", "days": 2}),
                ("get_weather", {"city": "Rome"}),
            ),
        ),
        Transcript(
            "text after",
            f"{calls(invoke('get_time'))}\n\nDone.",
            content="Done.",
            calls=(("get_time", {}),),
            differs=AFTER,
        ),
        Transcript("no arguments", calls(invoke("get_time")), calls=(("get_time", {}),)),
        Transcript(
            "a call without the tags around it",
            "Sure.\n" + invoke("get_weather", string("city", "Paris")),
            content="Sure.\n",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "numbers, booleans and null",
            calls(
                invoke("search", other("limit", "-1.5"), other("exact", "true")),
                invoke("get_weather", other("days", "null"), string("city", "null")),
            ),
            calls=(
                ("search", {"limit": -1.5, "exact": True}),
                ("get_weather", {"days": None, "city": "null"}),
            ),
        ),
        Transcript(
            "nested values",
            calls(
                invoke(
                    "search",
                    other("tags", '["a", "b"]'),
                    other("filter", '{"after": [1, {"b": 2}]}'),
                )
            ),
            calls=(("search", {"tags": ["a", "b"], "filter": {"after": [1, {"b": 2}]}}),),
        ),
        Transcript(
            "types that the model says wrongly",
            calls(
                invoke("get_weather", string("days", "3"), other("city", "Paris")),
                invoke("search", other("filter", "{after: 1}")),
            ),
            calls=(
                ("get_weather", {"days": 3, "city": "Paris"}),
                ("search", {"filter": "{after: 1}"}),
            ),
        ),
        Transcript(
            "no type said",
            calls(
                invoke(
                    "get_weather",
                    f'{PARAMETER} name="city">Paris{PARAMETER_END}\n',
                    f'{PARAMETER} name="days">3{PARAMETER_END}\n',
                )
            ),
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "parameters that the schema does not tell of",
            calls(
                invoke("search", other("more", "[1]"), string("text", "5"), other("less", "x")),
                invoke("unknown", other("a", "1")),
            ),
            calls=(("search", {"more": [1], "text": "5", "less": "x"}), ("unknown", {"a": 1})),
        ),
        Transcript(
            "a schema without a type",
            calls(invoke("search", other("anything", "5"))),
            calls=(("search", {"anything": 5}),),
            differs="vLLM makes a string of the number",
        ),
        Transcript(
            "all parameters in one",
            calls(invoke("get_weather", other("arguments", '{"city": "Paris", "days": 3}'))),
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "all parameters in one, which is a string",
            calls(invoke("get_weather", string("input", ' {"city": "Paris"} '))),
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "no parameters in one",
            calls(invoke("get_time", other("input", "{}"))),
            calls=(("get_time", {}),),
            differs="vLLM keeps the empty object for a tool without parameters",
        ),
        Transcript(
            "one parameter that has other things in it",
            calls(
                invoke("get_weather", other("arguments", '{"town": "Paris"}')),
                invoke("get_weather", string("input", "Paris")),
            ),
            calls=(
                ("get_weather", {"arguments": {"town": "Paris"}}),
                ("get_weather", {"input": "Paris"}),
            ),
        ),
        Transcript(
            "unicode, escapes and line breaks",
            calls(invoke("search", string("query", '\n"杭州" \\n 🌤\t\n'))),
            calls=(("search", {"query": '\n"杭州" \\n 🌤\t\n'}),),
        ),
        Transcript(
            "markup in a value",
            calls(
                invoke("search", string("query", f"a < b </parameter> <{BAR}DSML{BAR}x> </{BAR}"))
            ),
            calls=(("search", {"query": f"a < b </parameter> <{BAR}DSML{BAR}x> </{BAR}"}),),
        ),
        Transcript(
            "the end of a parameter in a value",
            calls(invoke("search", string("query", f"a {PARAMETER_END} b"))),
            calls=(("search", {"query": f"a {PARAMETER_END} b"}),),
            differs="vLLM ends the value there",
        ),
        Transcript(
            "all parameters as one object, without a tag",
            calls(
                invoke("get_weather", '{"city": "Paris", "days": 3}\n'), invoke("get_time", "{}")
            ),
            calls=(("get_weather", {"city": "Paris", "days": 3}), ("get_time", {})),
            differs="vLLM drops the object",
        ),
        Transcript(
            "a parameter that is repeated",
            calls(invoke("get_weather", string("city", "Paris"), string("city", "Rome"))),
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "cut off in the name",
            f'{START}\n{INVOKE} name="get_wea',
            content=f'{START}\n{INVOKE} name="get_wea',
            differs="vLLM makes a call of a part of the name",
        ),
        Transcript(
            "cut off in a string",
            f'{START}\n{INVOKE} name="get_weather">\n{PARAMETER} name="city" string="true">Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in what a parameter says",
            f'{START}\n{INVOKE} name="get_weather">\n{PARAMETER} name="city" stri',
            calls=(("get_weather", {}),),
        ),
        Transcript(
            "a call that is not closed",
            f'{START}\n{INVOKE} name="get_weather">\n{string("city", "Paris")}{END}',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "nothing closed but the outer tag",
            f'{START}\n{INVOKE} name="get_weather">\n'
            f'{PARAMETER} name="city" string="true">Paris{END}\n',
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM leaves out the parameter",
        ),
        Transcript(
            "no call in the tags",
            f"{START}I would call.{END}",
            content=f"{START}I would call.{END}",
            differs="vLLM drops the text",
        ),
    ),
)

CORPORA = (DEEPSEEK_V32,)
