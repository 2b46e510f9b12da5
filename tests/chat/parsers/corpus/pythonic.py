"""Llama 3.2 and 4, with calls in Python."""

from ..transcripts import Corpus, Transcript

START, END = "<|python_start|>", "<|python_end|>"
CUT = "vLLM gives the text of the calls when it does not stream"
CONTENT = "vLLM gives all of it as content when it does not stream"

CALLS = (
    Transcript("plain text", "It is sunny.", content="It is sunny."),
    Transcript(
        "a call",
        "[get_weather(city='San Francisco', unit='celsius')]",
        calls=(("get_weather", {"city": "San Francisco", "unit": "celsius"}),),
    ),
    Transcript(
        "a call with other quotes and no space",
        '[get_weather(city="Paris",days=3)]',
        calls=(("get_weather", {"city": "Paris", "days": 3}),),
    ),
    Transcript("no arguments", "[get_time()]", calls=(("get_time", {}),)),
    Transcript(
        "parallel calls",
        "[get_weather(city='Paris'), get_time(), search(query='x', tags=[])]",
        calls=(
            ("get_weather", {"city": "Paris"}),
            ("get_time", {}),
            ("search", {"query": "x", "tags": []}),
        ),
    ),
    Transcript(
        "nested arguments",
        "[search(query='x', tags=['a', 'b'], filter={'after': '2024', 'or': [{'a': []}, {}]})]",
        calls=(
            (
                "search",
                {
                    "query": "x",
                    "tags": ["a", "b"],
                    "filter": {"after": "2024", "or": [{"a": []}, {}]},
                },
            ),
        ),
    ),
    Transcript(
        "unicode and escapes",
        r"""[search(query='Zürich 東京 🎉 Martha\'s\n"a" \\ \x41\u00e9 \d', anything="it's")]""",
        calls=(
            (
                "search",
                {"query": 'Zürich 東京 🎉 Martha\'s\n"a" \\ Aé \\d', "anything": "it's"},
            ),
        ),
    ),
    Transcript(
        "octal escapes and ends of lines in a string",
        "[search(query='\\1011\\60\\0', anything='a\\\nb')]",
        calls=(("search", {"query": "A10\0", "anything": "ab"}),),
        differs="vLLM gives half an escape when it streams",
    ),
    Transcript(
        "numbers, booleans and None",
        "[search(limit=-1.5, exact=True, anything=[0, 25, 1e3, -7, +2, 0x1F, 1_000, False, None])]",
        calls=(
            (
                "search",
                {
                    "limit": -1.5,
                    "exact": True,
                    "anything": [0, 25, 1e3, -7, 2, 31, 1000, False, None],
                },
            ),
        ),
    ),
    Transcript(
        "JSON's own words",
        "[search(query='x', exact=true, anything={'a': false, 'b': null})]",
        calls=(("search", {"query": "x", "exact": True, "anything": {"a": False, "b": None}}),),
    ),
    Transcript(
        "tuples, sets and keys that are no strings",
        "[search(query='x', anything=[(1, 2), (3,), {4, 5}, {6: 'a', True: 'b'}, (7), ()])]",
        calls=(
            (
                "search",
                {"query": "x", "anything": [[1, 2], [3], [4, 5], {"6": "a", "true": "b"}, 7, []]},
            ),
        ),
    ),
    Transcript(
        "markup in a string",
        "[search(query='<b>[f(a=1)], {x} ]', anything=')')]",
        calls=(("search", {"query": "<b>[f(a=1)], {x} ]", "anything": ")"}),),
    ),
    Transcript(
        "commas at the end",
        "[search(query='x', tags=['a',],),]",
        calls=(("search", {"query": "x", "tags": ["a"]}),),
        differs=CONTENT,
    ),
    Transcript(
        "a string over several lines",
        "[search(query='one\n\ttwo')]",
        calls=(("search", {"query": "one\n\ttwo"}),),
        differs="vLLM takes no line breaks in a string",
    ),
    Transcript(
        "a string in three quotes",
        '[search(query="""one "two"\n""", tags=[\'\'])]',
        calls=(("search", {"query": 'one "two"\n', "tags": [""]}),),
    ),
    Transcript(
        "strings with a letter before them",
        "[search(query=f'one', anything=[r'\\b\\'', u\"two\", F''])]",
        calls=(("search", {"query": "one", "anything": ["\\b\\'", "two", ""]}),),
    ),
    Transcript(
        "numbers that begin with a zero or a point",
        "[search(query='x', anything=[07, .5, 5., 00])]",
        calls=(("search", {"query": "x", "anything": [7, 0.5, 5.0, 0]}),),
        differs="vLLM takes only numbers that are good Python",
    ),
    Transcript(
        "a name that is a word of Python",
        "[search(query='x', from='y')]",
        calls=(("search", {"query": "x", "from": "y"}),),
        differs="vLLM takes only names that are good Python",
    ),
    Transcript(
        "halves of a pair",
        r"[search(query='\ud83d\ude00 \U0001F600')]",
        calls=(("search", {"query": "😀 😀"}),),
    ),
    Transcript(
        "space before",
        "\n [get_time()]",
        calls=(("get_time", {}),),
        differs="vLLM takes it for content",
    ),
    Transcript(
        "text after",
        "[get_time()]\nDone.",
        content="Done.",
        calls=(("get_time", {}),),
        differs="vLLM drops the text when it streams",
    ),
    Transcript(
        "text before",
        "Like this: [get_time()]",
        content="Like this: [get_time()]",
    ),
    Transcript(
        "an answer that is a list",
        "[1, 2, 'three']",
        content="[1, 2, 'three']",
        differs="vLLM drops the text when it streams",
    ),
    Transcript(
        "an answer that begins with a link",
        "[the docs](https://example.com) say so.",
        content="[the docs](https://example.com) say so.",
        differs="vLLM drops the text when it streams",
    ),
    Transcript(
        "an answer that is a list of calls of no tools",
        "[print(end='x') for x in y]",
        content="[print(end='x') for x in y]",
        differs="vLLM gives a call when it streams",
    ),
    Transcript(
        "an argument without a name",
        "[get_weather('Paris')]",
        content="[get_weather('Paris')]",
        differs="vLLM drops the argument when it streams",
    ),
    Transcript(
        "an argument that is no literal",
        "[search(query=x, limit=1)]",
        calls=(("search", '{"query": x, "limit": 1}'),),
        differs="vLLM drops the call when it streams",
    ),
    Transcript(
        "an argument that is an expression",
        "[search(limit=1 + f(2))] Well.",
        content="+ f(2))] Well.",
        calls=(("search", '{"limit": 1'),),
        differs="vLLM drops all of it when it streams",
    ),
    Transcript(
        "a second argument without a name",
        "[search(query='a', 'b')]",
        content="'b')]",
        calls=(("search", '{"query": "a", '),),
        differs="vLLM drops the argument when it streams",
    ),
    Transcript(
        "a second call that is none",
        "[get_time(), None] Well.",
        content=", None] Well.",
        calls=(("get_time", {}),),
        differs="vLLM drops the text when it streams",
    ),
    Transcript(
        "a call that is cut off in its name",
        "[get_wea",
        content="[get_wea",
        differs="vLLM drops the text when it streams",
    ),
    Transcript(
        "a call that is cut off",
        "[search(query='x', tags=['a', 'b",
        calls=(("search", '{"query": "x", "tags": ["a", "b'),),
        differs=CUT,
    ),
    Transcript(
        "calls that are cut off in a number",
        "[get_time(), get_weather(city='Paris', days=1",
        calls=(("get_time", {}), ("get_weather", '{"city": "Paris", "days": 1')),
        differs=CUT,
    ),
    Transcript(
        "calls that are cut off between two",
        "[get_time(), ",
        calls=(("get_time", {}),),
        differs=CUT,
    ),
    Transcript(
        "a call that is cut off in an escape",
        "[search(query='a\\u00",
        calls=(("search", '{"query": "a\\\\u00'),),
        differs=CUT,
    ),
)

PYTHONIC = Corpus(tool="pythonic", reasoning=None, tokens=(), transcripts=CALLS)

LLAMA4 = Corpus(
    tool="llama4_pythonic",
    reasoning=None,
    tokens=(START, END),
    transcripts=(
        *CALLS,
        Transcript(
            "markers",
            "<|python_start|>[get_weather(city='LA', unit='C')]<|python_end|>",
            calls=(("get_weather", {"city": "LA", "unit": "C"}),),
        ),
        Transcript(
            "a marker at the start",
            "<|python_start|>[get_weather(city='LA'), get_time()]",
            calls=(("get_weather", {"city": "LA"}), ("get_time", {})),
        ),
        Transcript(
            "text before and after the markers",
            "Let me see. <|python_start|>[get_time()]<|python_end|> Done.",
            content="Let me see. Done.",
            calls=(("get_time", {}),),
            differs="vLLM takes it for content",
        ),
        Transcript(
            "a name of no tool between markers",
            "<|python_start|>[other(a=1)]<|python_end|>",
            calls=(("other", {"a": 1}),),
        ),
        Transcript(
            "code between markers",
            "<|python_start|>print(1)<|python_end|>",
            content="<|python_start|>print(1)<|python_end|>",
            differs="vLLM drops the text when it streams",
        ),
        Transcript(
            "calls between two pairs of markers",
            "<|python_start|>[get_time()]<|python_end|>\n<|python_start|>[get_time()]<|python_end|>",
            calls=(("get_time", {}), ("get_time", {})),
            differs="vLLM drops the second call",
        ),
    ),
)

CORPORA = (PYTHONIC, LLAMA4)
