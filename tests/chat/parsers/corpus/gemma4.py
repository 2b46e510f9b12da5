"""Gemma 4."""

from ..transcripts import Corpus, Transcript

START, END, QUOTE = "<|tool_call>", "<tool_call|>", '<|"|>'
CHANNEL, CHANNEL_END = "<|channel>", "<channel|>"
OPEN = "vLLM closes the arguments of a call that is cut off, or leaves out its last parameter"
DROPS = "vLLM drops the text"
BARE = "vLLM makes strings of bare values that the schema does not tell of"


def quoted(text: str) -> str:
    """Write a string."""
    return f"{QUOTE}{text}{QUOTE}"


def call(name: str, **arguments: str) -> str:
    """Write a call as the chat template does, its values as they are given."""
    members = ",".join(f"{key}:{value}" for key, value in arguments.items())
    return f"{START}call:{name}{{{members}}}{END}"


GEMMA4 = Corpus(
    tool="gemma4",
    reasoning=None,
    tokens=(START, END, QUOTE),
    transcripts=(
        Transcript("plain text", "It is < 20: {sunny}.", content="It is < 20: {sunny}."),
        Transcript(
            "a call",
            call("get_weather", city=quoted("Paris")),
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text before",
            "Look: here.\n" + call("get_weather", city=quoted("Paris"), days="3"),
            content="Look: here.",
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
        ),
        Transcript(
            "text after",
            call("get_time") + "\nDone.",
            content="Done.",
            calls=(("get_time", {}),),
            differs="vLLM drops the text after a call when it does not stream",
        ),
        Transcript(
            "parallel calls",
            call("get_weather", city=quoted("Paris")) + call("get_weather", city=quoted("Rome")),
            calls=(("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Rome"})),
        ),
        Transcript("no arguments", call("get_time"), calls=(("get_time", {}),)),
        Transcript(
            "numbers, booleans and null",
            call("search", limit="-2.5", exact="true", query=quoted("5"))
            + call("search", limit="1e3", exact="False")
            + call("get_weather", days="null", city=quoted("null")),
            calls=(
                ("search", {"limit": -2.5, "exact": True, "query": "5"}),
                ("search", {"limit": 1000, "exact": False}),
                ("get_weather", {"days": None, "city": "null"}),
            ),
        ),
        Transcript(
            "nested values",
            call(
                "search",
                filter=f"{{after:{quoted('2024')}}}",
                tags=f"[{quoted('a,]}')},{quoted('b')}]",
            ),
            calls=(("search", {"filter": {"after": "2024"}, "tags": ["a,]}", "b"]}),),
        ),
        Transcript(
            "values that the schema does not tell of",
            call("search", anything="[1,true,{a:null,b:-2.5,c:word}]", filter="{x:[[],{}]}"),
            calls=(
                (
                    "search",
                    {
                        "anything": [1, True, {"a": None, "b": -2.5, "c": "word"}],
                        "filter": {"x": [[], {}]},
                    },
                ),
            ),
            differs=BARE,
        ),
        Transcript(
            "items with a type",
            call("search", tags="[1,true]"),
            calls=(("search", {"tags": ["1", "true"]}),),
        ),
        Transcript(
            "unicode, escapes and line breaks",
            call("search", query=quoted('\n"杭州" \\n 🌤 {a:1}\t')),
            calls=(("search", {"query": '\n"杭州" \\n 🌤 {a:1}\t'}),),
        ),
        Transcript(
            "markup in a string",
            call("search", query=quoted("a < b <div>| <|x|> </tool_call>")),
            calls=(("search", {"query": "a < b <div>| <|x|> </tool_call>"}),),
        ),
        Transcript(
            "whitespace",
            f"{START} call:get_weather {{ city : {quoted(' Paris ')} ,\n days: 3 }}\n{END}",
            calls=(("get_weather", {"city": " Paris ", "days": 3}),),
            differs="vLLM keeps the space after the name when it streams",
        ),
        Transcript(
            "keys that are quoted",
            f"{START}call:get_weather{{{quoted('city')}:{quoted('Paris')}}}{END}",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a string that is not quoted",
            call("get_weather", city="New York", days=quoted("3")),
            calls=(("get_weather", {"city": "New York", "days": 3}),),
        ),
        Transcript(
            "an empty value, and an empty string",
            f"{START}call:get_weather{{city:{quoted('')},days:}}{END}",
            calls=(("get_weather", {"city": "", "days": ""}),),
        ),
        Transcript(
            "a parameter that is repeated",
            f"{START}call:get_weather{{city:{quoted('Paris')},city:{quoted('Rome')}}}{END}",
            calls=(("get_weather", {"city": "Rome"}),),
            differs="vLLM ends the arguments too early when it streams",
        ),
        Transcript(
            "the word is left out",
            f"{START}:get_weather{{city:{quoted('Paris')}}}{END}",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "parentheses",
            f"{START}call:get_weather(city:{quoted('Paris (TX)')},days:3){END}",
            calls=(("get_weather", {"city": "Paris (TX)", "days": 3}),),
        ),
        Transcript(
            "a call as Python writes it",
            f"{START}call:get_weather(city={quoted('Paris')}, days=3){END}",
            calls=(("get_weather", {"city": "Paris", "days": 3}),),
            differs="vLLM makes no arguments of it",
        ),
        Transcript(
            "marks in a string",
            call(
                "search",
                query=quoted(f"x = sql({QUOTE * 3}a, b{QUOTE * 3}) [{QUOTE}k{QUOTE}]"),
                limit="2",
            ),
            calls=(("search", {"query": 'x = sql("""a, b""") ["k"]', "limit": 2}),),
            differs="vLLM ends the string at the first of them",
        ),
        Transcript(
            "a string without its first mark",
            f"{START}call:search{{query:Paris, the one in France{QUOTE},limit:2}}{END}"
            f"{START}call:search{{anything:Paris{QUOTE}}}{END}",
            calls=(
                ("search", {"query": "Paris, the one in France", "limit": 2}),
                ("search", {"anything": "Paris"}),
            ),
            differs="vLLM takes the mark for the first of a string",
        ),
        Transcript(
            "a comma that is left out",
            f"{START}call:search{{query:{quoted('Paris')} limit:2}}{END}",
            calls=(("search", {"query": "Paris", "limit": 2}),),
        ),
        Transcript(
            "strings in other quotes",
            call("search", query="'It's, \"a\"'", anything='"b, \\"c\\" \\n"', limit="'2'")
            + f"{START}call:get_weather{{city:'tis{END}",
            calls=(
                ("search", {"query": 'It\'s, "a"', "anything": 'b, "c" \n', "limit": 2}),
                ("get_weather", {"city": "'tis"}),
            ),
            differs="vLLM keeps the quotes, and ends the string at a comma",
        ),
        Transcript(
            "a name with other characters",
            call("weather.get-it"),
            calls=(("weather.get-it", {}),),
        ),
        Transcript("no braces", f"{START}call:get_time{END}", calls=(("get_time", {}),)),
        Transcript(
            "braces that are not closed",
            f"{START}call:search{{tags:[{quoted('a')},filter:{{after:{quoted('b')}{END}",
            calls=(("search", {"tags": ["a", "filter:{after:" + quoted("b")]}),),
            differs="vLLM leaves out what is not closed",
        ),
        Transcript(
            "a string that is not closed",
            f"{START}call:get_weather{{days:2,city:{QUOTE}Paris{END}",
            calls=(("get_weather", {"days": 2, "city": "Paris"}),),
        ),
        Transcript(
            "a bare value and nothing after it",
            f"{START}call:get_weather{{city:{quoted('Paris')},days:2{END}",
            calls=(("get_weather", {"city": "Paris", "days": 2}),),
        ),
        Transcript(
            "members that are none",
            f"{START}call:get_weather{{what,{{}},[1],city:{quoted('Paris')}}}{END}",
            calls=(("get_weather", {}),),
            differs="vLLM makes a key of the text",
        ),
        Transcript(
            "a call that is not closed",
            f"{START}call:get_weather{{days:3}}{call('get_time')}",
            calls=(("get_weather", {"days": 3}), ("get_time", {})),
            differs="vLLM drops the second call",
        ),
        Transcript(
            "text where the arguments should be",
            f"{START}call:get_time of day{END}" + call("get_time"),
            content=f"{START}call:get_time of day{END}",
            calls=(("get_time", {}),),
            differs="vLLM makes a call of the text",
        ),
        Transcript(
            "no call in the markers",
            f"{START}I would call.{END} Or not.",
            content=f"{START}I would call.{END} Or not.",
            differs=DROPS,
        ),
        Transcript(
            "cut off in the name",
            f"I look.{START}call:get_wea",
            content=f"I look.{START}call:get_wea",
            differs="vLLM makes a call of a part of the name",
        ),
        Transcript(
            "cut off in a string",
            f"{START}call:get_weather{{days:3,city:{QUOTE}Par",
            calls=(("get_weather", '{"days": 3, "city": "Par'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in a number",
            f"{START}call:get_weather{{days:3",
            calls=(("get_weather", '{"days": '),),
            differs=OPEN,
        ),
        Transcript(
            "cut off in nested values",
            f"{START}call:search{{filter:{{after:{quoted('b')},x:[1,",
            calls=(("search", '{"filter": {"after": "b", "x": [1'),),
            differs=OPEN,
        ),
        Transcript(
            "cut off before the end marker",
            f"{START}call:get_weather{{city:{quoted('Paris')}}}",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
    ),
)

REASONING = Corpus(
    tool="gemma4",
    reasoning="gemma4",
    tokens=(CHANNEL, CHANNEL_END, START, END, QUOTE),
    transcripts=(
        Transcript("no reasoning", "Hello!", content="Hello!"),
        Transcript(
            "reasoning",
            f"{CHANNEL}thought\nThey greet me.\n{CHANNEL_END}Hello!",
            reasoning="They greet me.",
            content="Hello!",
        ),
        Transcript(
            "empty reasoning",
            f"{CHANNEL}thought\n{CHANNEL_END}Hello!",
            content="Hello!",
        ),
        Transcript(
            "the label is left out",
            f"{CHANNEL}thoughtful people say hello{CHANNEL_END}Hello!",
            reasoning="thoughtful people say hello",
            content="Hello!",
        ),
        Transcript("cut off after the label", f"{CHANNEL}thought"),
        Transcript(
            "cut off in the label",
            f"{CHANNEL}tho",
            differs="vLLM gives it as reasoning when it does not stream",
        ),
        Transcript(
            "the prompt begins the reasoning",
            f"They greet me.\n{CHANNEL_END}Hello!",
            prompt=f"{CHANNEL}thought\n",
            reasoning="They greet me.",
            content="Hello!",
        ),
        Transcript(
            "the prompt ends the reasoning",
            "Hello!",
            prompt=f"{CHANNEL}thought\n{CHANNEL_END}",
            content="Hello!",
        ),
        Transcript(
            "a call after the reasoning",
            f"{CHANNEL}thought\nI look.{CHANNEL_END}{call('get_time')}",
            reasoning="I look.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "a call ends the reasoning",
            f"{CHANNEL}thought\nI look.\n{call('get_weather', city=quoted('Paris'))}",
            reasoning="I look.",
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "text and a call without reasoning",
            f"I look.{call('get_time')}",
            content="I look.",
            calls=(("get_time", {}),),
        ),
        Transcript(
            "cut off in the reasoning",
            f"{CHANNEL}thought\nThey greet",
            reasoning="They greet",
        ),
    ),
)

CORPORA = (GEMMA4, REASONING)
