"""GLM-4.5 and 4.6, which write line breaks between tags, and GLM-4.7, which writes none."""

from ..transcripts import Corpus, Transcript

START, END = "<tool_call>", "</tool_call>"
TOKENS = (START, END, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>")
OPEN = "vLLM closes the arguments of a call that is cut off, or leaves out its last parameter"
DROPS = "vLLM drops the text"


def transcripts(line: str) -> tuple[Transcript, ...]:
    """Give what models write with this between tags."""

    def pair(key: str, value: str) -> str:
        return f"<arg_key>{key}</arg_key>{line}<arg_value>{value}</arg_value>{line}"

    def call(name: str, *parameters: tuple[str, str]) -> str:
        pairs = "".join(pair(key, value) for key, value in parameters)
        return f"{START}{name}{line}{pairs}{END}"

    return (
        Transcript("plain text", "It is < 20 degrees.", content="It is < 20 degrees."),
        Transcript(
            "a call",
            call("get_weather", ("city", "Paris")),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text before",
            f"\nI look.\n{call('get_weather', ('city', 'Paris'), ('days', '2'))}",
            content="\nI look.",
            calls=(("get_weather", {"city": "Paris", "days": 2}),),
        ),
        Transcript(
            "text after",
            f"{call('get_time')}\nDone.",
            content="Done.",
            calls=(("get_time", {}),),
            differs="vLLM drops the text after a call when it does not stream",
        ),
        Transcript(
            "parallel calls",
            f"{call('get_weather', ('city', 'Paris'))}\n{call('get_weather', ('city', 'Rome'))}",
            calls=(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})),
        ),
        Transcript("no arguments", call("get_time"), calls=(("get_time", {}),)),
        Transcript("whitespace", f"{START}\n get_time \n\n{END}", calls=(("get_time", {}),)),
        Transcript(
            "numbers, booleans and null",
            call("search", ("limit", "-0.5"), ("exact", "True"), ("query", "1.0"))
            + call("get_weather", ("days", " 3 "), ("city", "null"))
            + call("get_weather", ("days", "null")),
            calls=(
                ("search", {"limit": -0.5, "exact": True, "query": "1.0"}),
                ("get_weather", {"days": 3, "city": "null"}),
                ("get_weather", {"days": None}),
            ),
        ),
        Transcript(
            "nested values",
            call("search", ("tags", '["a", "b"]'), ("filter", '{"after": {"b": [1, null]}}')),
            calls=(("search", {"tags": ["a", "b"], "filter": {"after": {"b": [1, None]}}}),),
        ),
        Transcript(
            "parameters that the schema does not tell of",
            call("search", ("more", "5"), ("anything", "[1]")),
            calls=(("search", {"more": "5", "anything": "[1]"}),),
        ),
        Transcript(
            "unicode, escapes and line breaks",
            call("search", ("query", '\n"杭州"\\n🌤\t\n')),
            calls=(("search", {"query": '\n"杭州"\\n🌤\t\n'}),),
        ),
        Transcript(
            "markup in a value",
            call("search", ("query", "a < b </arg_values> </parameter> <tool_ </arg_")),
            calls=(("search", {"query": "a < b </arg_values> </parameter> <tool_ </arg_"}),),
        ),
        Transcript(
            "whitespace around a key",
            call("get_weather", (" city\n", "Paris")),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a key's tag in a value",
            call("search", ("query", "a <arg_key> b\nc <arg_key>")),
            calls=(("search", {"query": "a <arg_key> b\nc <arg_key>"}),),
        ),
        Transcript(
            "a start in a value",
            call("search", ("query", f"Write {START} first")),
            calls=(("search", {"query": f"Write {START} first"}),),
        ),
        Transcript(
            "ends in a value",
            call("search", ("query", f"Write </arg_value> and {END} last"), ("limit", "2")),
            calls=(("search", {"query": f"Write </arg_value> and {END} last", "limit": 2}),),
            differs="vLLM ends the value, or the call, there",
        ),
        Transcript(
            "a value without its first tag",
            f"{START}get_weather{line}<arg_key>city</arg_key>{line}Paris (TX)</arg_value>{line}"
            f"{pair('days', '3')}{END}",
            calls=(("get_weather", {"city": "Paris (TX)", "days": 3}),),
            differs="vLLM takes the next parameter for a part of the key",
        ),
        Transcript(
            "a parameter that is repeated",
            call("get_weather", ("city", "Paris"), ("city", "Rome")),
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "a tool that the request does not have",
            call("other", ("a", "1")),
            calls=(("other", {"a": "1"}),),
            differs="vLLM drops calls of tools that it does not know",
        ),
        Transcript(
            "cut off in the name",
            f"I look.{START}get_wea",
            content=f"I look.{START}get_wea",
            differs=DROPS,
        ),
        Transcript(
            "cut off in a key",
            f"{START}get_weather{line}<arg_key>ci",
            calls=(("get_weather", {}),),
        ),
        Transcript(
            "cut off before a value",
            f"{START}get_weather{line}<arg_key>city</arg_key>{line}<arg_",
            calls=(("get_weather", {}),),
        ),
        Transcript(
            "cut off in a string",
            f"{START}get_weather{line}<arg_key>city</arg_key>{line}<arg_value>Par",
            calls=(("get_weather", '{"city": "Par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off after a value",
            f"{START}get_weather{line}{pair('city', 'Paris')}",
            calls=(("get_weather", '{"city": "Paris"'),),
            differs=OPEN,
        ),
        Transcript(
            "a value that is not closed, at the end",
            f"{START}get_weather{line}<arg_key>city</arg_key>{line}<arg_value>Paris{END}",
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM leaves out the parameter",
        ),
        Transcript(
            "a value that is not closed, before another",
            f"{START}get_weather{line}<arg_key>city</arg_key>{line}<arg_value>Paris"
            f"{pair('days', '3')}{END}",
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
            differs="vLLM takes the second parameter for a part of the first",
        ),
        Transcript(
            "a key that is not closed",
            f"{START}get_weather{line}<arg_key>city<arg_value>Paris</arg_value>{END}",
            calls=(("get_weather", {"city": "Paris"}),),
            differs="vLLM leaves out the parameter",
        ),
        Transcript(
            "text where a value should be",
            f"{START}get_weather{line}<arg_key>city</arg_key>Paris{line}{pair('days', '3')}{END}",
            calls=(("get_weather", {"days": 3}),),
            differs="vLLM takes the text for a part of the key",
        ),
        Transcript(
            "a call that is not closed",
            f"{START}get_weather{line}{pair('city', 'Paris')}{call('get_time')}",
            calls=(("get_weather", {"city": "Paris"}), ("get_time", {})),
            differs="vLLM takes the second call for a part of the first",
        ),
        Transcript(
            "no call in the tags",
            f"{START}I would call.{END} Or not.",
            content=f"{START}I would call.{END} Or not.",
            differs=DROPS,
        ),
        Transcript(
            "nothing in the tags",
            f"{START}\n{END} Oh.",
            content=f"{START}\n{END} Oh.",
            differs=DROPS,
        ),
        Transcript(
            "JSON in the tags",
            f'{START}{{"name":"get_time"}}{END}',
            content=f'{START}{{"name":"get_time"}}{END}',
            differs=DROPS,
        ),
    )


GLM45 = Corpus(tool="glm45", reasoning=None, tokens=TOKENS, transcripts=transcripts("\n"))
GLM47 = Corpus(tool="glm47", reasoning=None, tokens=TOKENS, transcripts=transcripts(""))

CORPORA = (GLM45, GLM47)
