"""gpt-oss: reasoning, text and calls are messages of one format."""

from ..transcripts import Corpus, Transcript

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"
MARKERS = (START, CHANNEL, CONSTRAIN, MESSAGE, END, CALL, RETURN)

NEXT = START + "assistant"
ANALYSIS = CHANNEL + "analysis" + MESSAGE
COMMENTARY = CHANNEL + "commentary" + MESSAGE
FINAL = CHANNEL + "final" + MESSAGE
THINKS = ANALYSIS + "Let me think." + END + NEXT

STRAY = "vLLM drops text before which stands no header"
NO_HEADER = "vLLM waits for a header and drops the rest"
NEXT_IS_TEXT = "vLLM takes the header of the next message for text"
BUILT_IN = "vLLM drops what is written to a tool of the model's own"
JOINED = "vLLM joins messages without a line between them when it streams"


def call(name: str, arguments: str) -> str:
    """Give a call as the models write it."""
    return f"{CHANNEL}commentary to=functions.{name} {CONSTRAIN}json{MESSAGE}{arguments}{CALL}"


TRANSCRIPTS = (
    Transcript("text", FINAL + "It is sunny." + RETURN, content="It is sunny."),
    Transcript(
        "reasoning and text",
        THINKS + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
    ),
    Transcript(
        "reasoning and text, the token at the end left out",
        THINKS + FINAL + "It is sunny.",
        reasoning="Let me think.",
        content="It is sunny.",
    ),
    Transcript(
        "a call",
        THINKS + call("get_weather", '{"city": "Paris"}'),
        reasoning="Let me think.",
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript(
        "a call, the token at the end left out",
        THINKS + call("get_weather", '{"city": "Paris"}').removesuffix(CALL),
        reasoning="Let me think.",
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript(
        "a call whose name comes before the channel",
        f'{THINKS} to=functions.get_weather{CHANNEL}commentary json{MESSAGE}{{"city": "P"}}{CALL}',
        reasoning="Let me think.",
        calls=(("get_weather", {"city": "P"}),),
    ),
    Transcript(
        "a call whose name comes first of all",
        f' to=functions.get_weather{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}{{"city": "P"}}{CALL}',
        calls=(("get_weather", {"city": "P"}),),
    ),
    Transcript(
        "a call whose name comes twice",
        f" to=functions.get_weather{CHANNEL}commentary to=functions.get_weather {CONSTRAIN}json"
        f'{MESSAGE}{{"city": "P"}}{CALL}',
        calls=(("get_weather", {"city": "P"}),),
        differs="vLLM loses a call whose name comes twice",
    ),
    Transcript(
        "a call with no space before the type",
        f'{CHANNEL}commentary to=functions.get_weather{CONSTRAIN}json{MESSAGE}{{"city": "P"}}{CALL}',
        calls=(("get_weather", {"city": "P"}),),
    ),
    Transcript(
        "a call in the channel of the reasoning, without a type",
        f'{CHANNEL}analysis to=functions.get_weather{MESSAGE}{{"city": "P"}}{CALL}',
        calls=(("get_weather", {"city": "P"}),),
    ),
    Transcript(
        "a name without its prefix",
        f'{CHANNEL}commentary to=get_weather {CONSTRAIN}json{MESSAGE}{{"city": "P"}}{CALL}',
        calls=(("get_weather", {"city": "P"}),),
    ),
    Transcript(
        "a name with dots",
        f'{CHANNEL}commentary to=math.sum {CONSTRAIN}json{MESSAGE}{{"a": 2}}{CALL}',
        calls=(("math.sum", {"a": 2}),),
    ),
    Transcript(
        "parallel calls",
        call("get_weather", '{"city": "Paris"}') + NEXT + call("search", '{"query": "x"}'),
        calls=(("get_weather", {"city": "Paris"}), ("search", {"query": "x"})),
    ),
    Transcript(
        "a preamble and a call",
        THINKS + COMMENTARY + "I look it up." + END + NEXT + call("get_time", "{}"),
        reasoning="Let me think.",
        content="I look it up.",
        calls=(("get_time", {}),),
    ),
    Transcript(
        "text after a call",
        call("get_time", "{}") + NEXT + FINAL + "Done." + RETURN,
        content="Done.",
        calls=(("get_time", {}),),
    ),
    Transcript(
        "a preamble and text",
        COMMENTARY + "One." + END + NEXT + FINAL + "Two." + RETURN,
        content="One.\nTwo.",
        differs=JOINED,
    ),
    Transcript(
        "reasoning in two messages",
        ANALYSIS + "One." + END + NEXT + ANALYSIS + "Two." + END + NEXT + FINAL + "Three." + RETURN,
        reasoning="One.\nTwo.",
        content="Three.",
        differs=JOINED,
    ),
    Transcript(
        "an empty message between two others",
        FINAL + "One." + END + NEXT + FINAL + END + NEXT + ANALYSIS + "Two." + END,
        reasoning="Two.",
        content="One.",
    ),
    Transcript(
        "nested arguments",
        call("search", '{"query": "a", "filter": {"after": "2024"}, "tags": ["x", ["y"]]}'),
        calls=(("search", {"query": "a", "filter": {"after": "2024"}, "tags": ["x", ["y"]]}),),
    ),
    Transcript(
        "unicode and escapes",
        ANALYSIS
        + "北京 🌍"
        + END
        + NEXT
        + call("search", r'{"query": "\u00e9 \"q\" C:\\d\n北京 🌍"}'),
        reasoning="北京 🌍",
        calls=(("search", {"query": 'é "q" C:\\d\n北京 🌍'}),),
    ),
    Transcript(
        "numbers, booleans and null",
        call("search", '{"limit": -2.5, "exact": false, "anything": [7, null]}'),
        calls=(("search", {"limit": -2.5, "exact": False, "anything": [7, None]}),),
    ),
    Transcript(
        "arguments over several lines",
        call("get_weather", '{\n  "city": "Paris"\n}\n'),
        calls=(("get_weather", {"city": "Paris"}),),
    ),
    Transcript("no arguments at all", call("get_time", ""), calls=(("get_time", {}),)),
    Transcript(
        "markup in strings and text",
        call("search", '{"query": "<b>a</b> <|im_end|>"}') + NEXT + FINAL + "a <|b|> c <|" + RETURN,
        content="a <|b|> c <|",
        calls=(("search", {"query": "<b>a</b> <|im_end|>"}),),
    ),
    Transcript(
        "text of a type",
        f'{CHANNEL}final {CONSTRAIN}json{MESSAGE}{{"sunny": true}}{RETURN}',
        content='{"sunny": true}',
    ),
    Transcript("reasoning that is cut off", ANALYSIS + "Let me th", reasoning="Let me th"),
    Transcript("reasoning that is cut off after a space", ANALYSIS + " ", reasoning=" "),
    Transcript(
        "whitespace at the end", FINAL + "It is sunny." + END + "\n", content="It is sunny."
    ),
    Transcript(
        "cut off in the arguments",
        THINKS + call("get_weather", '{"city": "Par').removesuffix(CALL),
        reasoning="Let me think.",
        calls=(("get_weather", '{"city": "Par'),),
    ),
    Transcript(
        "cut off in the name",
        THINKS + CHANNEL + "commentary to=functions.get_wea",
        reasoning="Let me think.",
        content=NEXT + CHANNEL + "commentary to=functions.get_wea",
    ),
    Transcript("an empty answer", ""),
    Transcript(
        "arguments that do not end",
        call("get_weather", '{"city": "Paris"'),
        calls=(("get_weather", '{"city": "Paris"'),),
    ),
    Transcript(
        "arguments that are no JSON",
        f"{CHANNEL}commentary to=functions.search code{MESSAGE}find it, now{CALL}",
        calls=(("search", "find it, now"),),
    ),
    Transcript(
        "text where the message begins",
        THINKS + COMMENTARY + "One." + END + NEXT + CHANNEL + 'final {"answer": "hi"}' + RETURN,
        reasoning="Let me think.",
        content="One.\n" + NEXT + CHANNEL + 'final {"answer": "hi"}' + RETURN,
        differs=JOINED,
    ),
    Transcript(
        "a stray token after the reasoning",
        ANALYSIS + "Let me think." + END + " oops" + NEXT + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content=" oops\nIt is sunny.",
        differs=STRAY,
    ),
    Transcript(
        "a stray end marker",
        ANALYSIS + "Let me think." + END + RETURN + NEXT + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
    ),
    Transcript(
        "a header without its first marker",
        ANALYSIS + "Let me think." + END + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
        differs=NO_HEADER,
    ),
    Transcript(
        "a header of words",
        ANALYSIS + "Let me think." + END + "assistant" + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
        differs=NO_HEADER,
    ),
    Transcript(
        "a message without its end marker",
        ANALYSIS + "Let me think." + NEXT + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
        differs=NEXT_IS_TEXT,
    ),
    Transcript(
        "a channel within a message",
        ANALYSIS + "Let me think." + FINAL + "It is sunny." + RETURN,
        reasoning="Let me think.",
        content="It is sunny.",
        differs=NEXT_IS_TEXT,
    ),
    Transcript(
        "a call without its end marker",
        call("get_weather", '{"city": "P"}').removesuffix(CALL) + NEXT + call("get_time", "{}"),
        calls=(("get_weather", {"city": "P"}), ("get_time", {})),
        differs=NEXT_IS_TEXT,
    ),
    Transcript(
        "no header at all",
        "It is sunny." + RETURN,
        content="It is sunny.",
        differs="vLLM gives the token at the end as text",
    ),
    Transcript(
        "no channel",
        MESSAGE + "It is sunny." + RETURN,
        content="It is sunny.",
        differs="vLLM drops a message without a channel",
    ),
    Transcript(
        "a header that the prompt has",
        NEXT + FINAL + "It is sunny." + RETURN,
        content="It is sunny.",
    ),
    Transcript(
        "a tool of the model's own",
        f"{CHANNEL}analysis to=python code{MESSAGE}print(1){CALL}",
        reasoning="print(1)",
    ),
    Transcript(
        "a tool of the model's own, called as a client's",
        f"{CHANNEL}commentary to=browser.open {CONSTRAIN}json{MESSAGE}{{}}{CALL}",
        reasoning="{}",
        differs=BUILT_IN,
    ),
    Transcript(
        "an answer of a tool that the model makes up",
        call("get_time", "{}")
        + f"{START}functions.get_time to=assistant{CHANNEL}commentary{MESSAGE}12:00{END}"
        + NEXT
        + FINAL
        + "Noon."
        + RETURN,
        reasoning="12:00",
        content="Noon.",
        calls=(("get_time", {}),),
        differs=BUILT_IN,
    ),
)

CORPORA = (Corpus("openai", "openai_gptoss", MARKERS, TRANSCRIPTS),)
