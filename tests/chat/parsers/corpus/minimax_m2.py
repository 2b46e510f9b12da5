"""MiniMax-M2."""

from ..transcripts import Corpus, Transcript

START, END = "<minimax:tool_call>", "</minimax:tool_call>"
OPEN = "vLLM closes the arguments of a call that is cut off, or leaves out its last parameter"
UNKNOWN = "vLLM drops calls of tools that it does not know"


def invoke(name: str, *parameters: tuple[str, str]) -> str:
    """Write a call as the chat template does."""
    lines = [f'<parameter name="{key}">{value}</parameter>\n' for key, value in parameters]
    return f'<invoke name="{name}">\n{"".join(lines)}</invoke>'


def calls(*invokes: str) -> str:
    """Write the tags around calls."""
    lines = "\n".join(invokes)
    return f"{START}\n{lines}\n{END}"


MINIMAX_M2 = Corpus(
    tool="minimax_m2",
    reasoning=None,
    tokens=(START, END),
    transcripts=(
        Transcript("plain text", "It is <b>sunny</b>.", content="It is <b>sunny</b>."),
        Transcript(
            "a call",
            calls(invoke("get_weather", ("city", "Paris"))),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parallel calls in one block",
            "I look.\n"
            + calls(
                invoke("get_weather", ("city", "Paris"), ("days", "2")),
                invoke("get_weather", ("city", "Rome")),
            ),
            content="I look.",
            calls=(
                ("get_weather", {"city": "Paris", "days": 2}),
                ("get_weather", {"city": "Rome"}),
            ),
        ),
        Transcript(
            "two blocks, text between and after",
            f"{calls(invoke('get_time'))}And{calls(invoke('get_time'))}\nDone.",
            content="And\n\nDone.",
            calls=(("get_time", {}), ("get_time", {})),
            differs="vLLM drops the text after a call when it does not stream",
        ),
        Transcript("no arguments", calls(invoke("get_time")), calls=(("get_time", {}),)),
        Transcript(
            "all on one line, and other quotes",
            f"{START}<invoke name='get_weather'><parameter name='city'>Paris</parameter>"
            f"</invoke><invoke name=get_weather><parameter name=days>1</parameter></invoke>{END}",
            calls=(("get_weather", {"city": "Paris"}), ("get_weather", {"days": 1})),
        ),
        Transcript(
            "calls without the tags around them",
            invoke("get_time") + "\n" + invoke("get_time"),
            calls=(("get_time", {}), ("get_time", {})),
        ),
        Transcript(
            "numbers, booleans and null",
            calls(
                invoke("search", ("limit", "-1.5e2"), ("exact", "FALSE"), ("query", "true")),
                invoke("get_weather", ("days", "null"), ("city", "3")),
            ),
            calls=(
                ("search", {"limit": -150, "exact": False, "query": "true"}),
                ("get_weather", {"days": None, "city": "3"}),
            ),
        ),
        Transcript(
            "nested values",
            calls(invoke("search", ("tags", '["a", ["b"]]'), ("filter", '{"after": {"x": null}}'))),
            calls=(("search", {"tags": ["a", ["b"]], "filter": {"after": {"x": None}}}),),
        ),
        Transcript(
            "whitespace in values",
            calls(invoke("search", ("query", "\n a \n"), ("limit", " 3\n"))),
            calls=(("search", {"query": "\n a \n", "limit": 3}),),
        ),
        Transcript(
            "unicode and escapes",
            calls(invoke("search", ("query", '"C:\\dir" é 天气 🌧\t'))),
            calls=(("search", {"query": '"C:\\dir" é 天气 🌧\t'}),),
        ),
        Transcript(
            "markup in a value",
            calls(invoke("search", ("query", f"a < b && </invoice> {END} <function=x> </param"))),
            calls=(("search", {"query": f"a < b && </invoice> {END} <function=x> </param"}),),
        ),
        Transcript(
            "the end of a parameter in a value",
            calls(invoke("search", ("query", "a </parameter> b"))),
            calls=(("search", {"query": "a </parameter> b"}),),
            differs="vLLM ends the value there",
        ),
        Transcript(
            "a parameter that is repeated",
            calls(invoke("get_weather", ("city", "Paris"), ("city", "Rome"))),
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "a tool that the request does not have",
            calls(invoke("other", ("a", "1"))),
            calls=(("other", {"a": "1"}),),
            differs=UNKNOWN,
        ),
        Transcript(
            "cut off in the name",
            f'{START}\n<invoke name="get_wea',
            content=f'{START}\n<invoke name="get_wea',
            differs="vLLM drops the text",
        ),
        Transcript(
            "cut off in a string",
            f'{START}\n<invoke name="get_weather">\n<parameter name="city">Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in the name of a parameter",
            f'{START}\n<invoke name="get_weather">\n<parameter name="city">Paris</parameter>\n'
            '<parameter name="da',
            calls=(("get_weather", '{"city": "Paris"'),),
            differs=OPEN,
        ),
        Transcript(
            "parameters that are not closed",
            f'{START}\n<invoke name="get_weather">\n<parameter name="city">Paris'
            f'<parameter name="days">3</invoke>\n{END}',
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
            differs="vLLM leaves out the last one",
        ),
        Transcript(
            "a call that is not closed",
            f'{START}\n<invoke name="get_time">\n{END}\n{calls(invoke("get_time"))}',
            calls=(("get_time", {}), ("get_time", {})),
            differs="vLLM takes the second call for a part of the first",
        ),
        Transcript(
            "no call in the tags",
            f"{START}I would call.{END}",
            content=f"{START}I would call.{END}",
            differs="vLLM drops the text",
        ),
        Transcript(
            "no name",
            calls('<invoke name=""></invoke>') + "Oh.",
            content=calls('<invoke name=""></invoke>') + "Oh.",
            differs="vLLM drops the text",
        ),
    ),
)

REASONING = Corpus(
    tool="minimax_m2",
    reasoning="minimax_m2",
    tokens=("<think>", "</think>", START, END),
    transcripts=(
        Transcript(
            "the prompt begins the reasoning",
            "They greet me.\n</think>\n\nHello!",
            prompt="<think>\n",
            reasoning="They greet me.",
            content="\n\nHello!",
        ),
        Transcript(
            "a call after the reasoning",
            f"I look.</think>\n\n{calls(invoke('get_time'))}",
            reasoning="I look.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "the model begins the reasoning",
            "<think>Hm.</think>Hello!",
            reasoning="Hm.",
            content="Hello!",
        ),
        Transcript(
            "a call ends the reasoning",
            f"<think>I look.\n{calls(invoke('get_weather', ('city', 'Paris')))}",
            reasoning="I look.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript("cut off in the reasoning", "They greet", reasoning="They greet"),
        Transcript(
            "the prompt ends the reasoning",
            "Hello!",
            prompt="<think></think>",
            content="Hello!",
            differs="vLLM does not look at the prompt when it does not stream",
        ),
        Transcript(
            "a tag that looks like the end",
            "I write </thinking> or </thin.</think>Hello!",
            reasoning="I write </thinking> or </thin.",
            content="Hello!",
        ),
    ),
)

CORPORA = (MINIMAX_M2, REASONING)
