"""Rows about tool calls and reasoning."""

from .engine import ids_of, say
from .model import MESSAGE_END
from .rows import LEFT_OUT, QUESTION, chat, post

SKY = {
    "type": "function",
    "function": {
        "name": "sky",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
    },
}
NOW = {"type": "function", "function": {"name": "now", "description": "The time"}}
STRICT = {"type": "function", "function": {**SKY["function"], "strict": True}}
UNCLOSED = {"type": "object", "properties": {"a": {"type": "string", "pattern": "(" * 9}}}
TOOLS = [SKY, NOW]
NAMED = {"type": "function", "function": {"name": "sky"}}

PARIS = '<tool_call>\n{"name": "sky", "arguments": {"city": "Paris"}}\n</tool_call>'
ROME = '<tool_call>\n{"name": "sky", "arguments": {"city": "Rome", "n": [1, -2.5e3]}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
BARE = '<tool_call>\n{"name": "now"}\n</tool_call>'

USAGE = {"include_usage": True}
RUNNING_USAGE = {"include_usage": True, "continuous_usage_stats": True}

CALL = {
    "id": "a",
    "type": "function",
    "function": {"name": "sky", "arguments": '{"city": "Paris"}'},
}
LOOP = [
    *QUESTION,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "a", "content": " one"},
]


def told(text, size=4, finish="stop"):
    """Write an answer of some tokens per step, which ends with the end-of-sequence token."""
    token_ids = [*ids_of(text), *([MESSAGE_END] if finish == "stop" else [])]
    steps = [tuple(token_ids[at : at + size]) for at in range(0, len(token_ids), size)]
    return say(*steps, finish=finish)


def calls(name, *texts, server="tools", size=4, finish="stop", tools=TOOLS, **fields):
    """Make the rows of a chat with tools: as a whole and as a stream."""
    says = [told(text, size, finish) for text in texts]
    fields = {"server": server, "tools": tools, **fields}
    return [
        chat(f"tools: {name}", *says, **fields),
        chat(f"tools: {name}, streamed", *says, stream=True, **fields),
    ]


def thinking(name, *texts, tools=LEFT_OUT, **fields):
    """Make the rows of a chat of a model that reasons."""
    return calls(f"thinking, {name}", *texts, server="reasoning", tools=tools, **fields)


def untold(name, server="tools", **fields):
    """Make the row of a chat that no engine should see."""
    return chat(f"tools: {name}", server=server, samples=0, **fields)


def said(name, *messages, **fields):
    """Make the row of a chat with a history."""
    return chat(
        f"tools: {name}", told("Hello"), messages=[*QUESTION, *messages], server="tools", **fields
    )


# A row is a line.
# fmt: off

CALLS = [
    *calls("a call and none", PARIS, "Hello world"),
    *calls("a call and none, token by token", PARIS, "Hello", size=1),
    *calls("a call and none in one step", PARIS, "Hello world", size=200),
    *calls("one sample", PARIS, n=LEFT_OUT),
    *calls("different calls of three", PARIS, TIME + PARIS, "Hello", n=3),
    *calls("two calls", PARIS + "\n" + ROME, TIME + "\n" + TIME),
    *calls("two calls in one step", PARIS + "\n" + TIME, TIME + PARIS, size=200),
    *calls("no arguments", TIME, BARE),
    *calls("text and a call", "Hello world " + PARIS, "Hello\n\n" + TIME),
    *calls("a call and text", PARIS + " world", TIME + "\n\nHello"),
    *calls("text between calls", PARIS + "Hello" + TIME, "hi" + TIME + "hi" + TIME),
    *calls("a call that is cut off", PARIS[:-len('"}}\n</tool_call>')], PARIS[:30], finish="length"),
    *calls("a call that is cut off by max_tokens", PARIS, "Hello", max_tokens=30),
    *calls("no JSON", "<tool_call>Hello</tool_call>", '<tool_call>{"name": 5}</tool_call>'),
    *calls("an unknown tool", PARIS.replace("sky", "sea"), "Hello"),
    *calls("escapes", PARIS.replace("Paris", 'é\\u00e9\\n\\"'), PARIS.replace("Paris", "</tool_call")),
    *calls("spacing", PARIS.replace(" ", ""), PARIS.replace('"city": ', '"city"  :\n')),
    *calls("arguments first", '<tool_call>{"arguments": {"city": "Rome"}, "name": "sky"}</tool_call>', "hi"),
    *calls("without a choice", PARIS, "Hello", tool_choice="none"),
    *calls("a choice that is null", PARIS, "Hello", tool_choice=None),
    *calls("without tools", PARIS, "Hello", tools=LEFT_OUT),
    *calls("null tools", PARIS, "Hello", tools=None),
    *calls("the choice of none without tools", PARIS, "Hello", tools=LEFT_OUT, tool_choice="none"),
    *calls("required", PARIS, TIME, tool_choice="required"),
    *calls("required of two", PARIS + TIME, PARIS + PARIS, tool_choice="required"),
    *calls("required, but none is called", "Hello", PARIS[:20], tool_choice="required"),
    *calls("required, with text", "Hello" + PARIS, PARIS + "Hello", tool_choice="required"),
    *calls("named", PARIS, ROME, tool_choice=NAMED),
    *calls("named without a type", PARIS, ROME, tool_choice={"function": {"name": "sky"}}),
    *calls("named, but none is called", "Hello", "", tool_choice=NAMED),
    *calls("not in parallel", PARIS + TIME, "Hello", parallel_tool_calls=False),
    *calls("not in parallel, required", PARIS + TIME, TIME + TIME, parallel_tool_calls=False, tool_choice="required"),
    *calls("strict", PARIS, "Hello", tools=[STRICT, NOW]),
    *calls("strict and named", PARIS, "Hello", tools=[STRICT, NOW], tool_choice=NAMED),
    *calls("a schema that is none", "Hello", tools=[{"type": "function", "function": {"name": "a", "parameters": UNCLOSED}}], tool_choice="required"),
    *calls("not special tokens shown", PARIS, "Hello", skip_special_tokens=False),
    *calls("token ids", PARIS, "Hello", return_token_ids=True),
    *calls("logprobs", PARIS, "Hello", logprobs=True, top_logprobs=1, max_tokens=12),
    *calls("a stop string", PARIS + " world Hello", "Hello world", stop=[" world"]),
    *calls("a stop string within a call", PARIS, "Hello", stop=["Par"]),
    *calls("a stop string that is held back", PARIS + TIME, "Hello", stop=["nothing like it"]),
    *calls("echo", PARIS, "Hello", echo=True),
    *calls("an interval", PARIS, "Hello world", size=1, stream_interval=5),
    *calls("nothing said", "", PARIS),
    *calls("a response format", PARIS, "Hello", response_format={"type": "json_object"}),
    *calls("a prompt's text", PARIS, "Hello", return_prompt_text=True, return_token_ids=True, max_tokens=2),
    chat("tools: usage in a stream", told(PARIS), told("Hello"), tools=TOOLS, server="tools", stream=True, stream_options=USAGE),
    chat("tools: running usage", told(PARIS), told("Hello"), tools=TOOLS, server="tools", stream=True, stream_options=RUNNING_USAGE),
]

THOUGHTS = [
    *thinking("and text", "Hello world</think> Paris", "<think> Hello</think>hi"),
    *thinking("and text, token by token", "Hello world</think> Paris", "<think> Hello</think>hi", size=1),
    *thinking("and text in one step", "Hello world</think> Paris", "<think> Hello</think>hi", size=200),
    *thinking("one sample", "<think>\nHello world\n</think>\n\n Paris", n=LEFT_OUT),
    *thinking("of three", "Hello</think>hi", " world</think>" + TIME, "Hello", n=3, tools=[NOW]),
    *thinking("and no text", "Hello world</think>", "<think> Hello"),
    *thinking("that is cut off", "Hello world", "<think>", finish="length"),
    *thinking("that is empty", "</think>Hello", "<think></think>hi"),
    *thinking("and white space", "\n</think>\n", "<think>\n\n</think>\n\nhi"),
    *thinking("two ends", "Hello</think>hi</think>hi", "<think>a<think>b</think>c"),
    *thinking("text before it", "hi<think>Hello</think> world", "Hello"),
    *thinking("and calls", "Hello</think>" + PARIS, "Hello</think>\n\n" + TIME + "\n" + TIME, tools=TOOLS),
    *thinking("and calls in one step", "Hello</think>" + PARIS, "Hello</think>\n\n" + TIME, tools=TOOLS, size=200),
    *thinking("and text and a call", "Hello</think> world" + TIME, "Hello</think>hi", tools=TOOLS),
    *thinking("with a call within", "Hello " + TIME + "</think>hi", "Hello" + TIME, tools=[NOW]),
    *thinking("and a required call", "Hello</think>" + TIME, "Hello</think>" + TIME, tools=[NOW], tool_choice="required"),
    *thinking("and a named call", "Hello</think>" + PARIS, "Hello</think>", tools=[SKY], tool_choice=NAMED),
    *thinking("and a call where none is to be", "Hello</think>" + TIME, "Hello", tools=[NOW], tool_choice="none"),
    *thinking("and a call that is cut off", "Hello</think>" + PARIS[:50], "Hello</think>hi", tools=[SKY], finish="length"),
    *thinking("hidden", "Hello</think> Paris", "Hello", include_reasoning=False),
    *thinking("hidden, with calls", "Hello</think>" + PARIS, "Hello</think>hi", tools=TOOLS, include_reasoning=False),
    *thinking("hidden, with logprobs", "Hello</think> Paris", "Hello", include_reasoning=False, logprobs=True, top_logprobs=1),
    *thinking("hidden, with token ids", "Hello</think> Paris", "Hello", include_reasoning=False, return_token_ids=True),
    *thinking("hidden, with a constraint", "Hello</think> Paris", "Hello", include_reasoning=False, structured_outputs={"regex": "a"}),
    *thinking("with logprobs", "Hello</think> Paris", "Hello", logprobs=True, top_logprobs=1),
    *thinking("with token ids", "Hello</think> Paris", "Hello", return_token_ids=True),
    *thinking("with a constraint", "Hello</think> Paris", "Hello", structured_outputs={"regex": "a"}),
    *thinking("turned off", "Hello", "Hello</think>hi", chat_template_kwargs={"enable_thinking": False}),
    *thinking("turned on", "Hello</think>hi", "Hello", chat_template_kwargs={"enable_thinking": True, "tone": 5}),
    *thinking("turned off, with a call", TIME, "hi", chat_template_kwargs={"enable_thinking": False}, tools=[NOW]),
    *thinking("turned off, with a required call", TIME, TIME, chat_template_kwargs={"enable_thinking": False}, tools=[NOW], tool_choice="required"),
    *thinking("of an effort", "Hello</think>hi", "Hello", reasoning_effort="low"),
    *thinking("of no effort", "Hello", "hi", reasoning_effort="none"),
    *thinking("with a budget", "Hello</think>hi", "Hello", thinking_token_budget=5),
    *thinking("with a stop string", "Hello world</think>hi world", "hi</think> world", stop=[" world"]),
    *thinking("echo", "Hello</think>hi", "Hello", messages=[*QUESTION, {"role": "assistant", "content": "Hello"}], echo=True, continue_final_message=True, add_generation_prompt=False),
    chat("tools: thinking, usage in a stream", told("Hello world</think> Paris"), told("Hello"), server="reasoning", stream=True, stream_options=USAGE),
    chat("tools: thinking, running usage", told("Hello world</think> Paris"), told("Hello"), server="reasoning", stream=True, stream_options=RUNNING_USAGE),
    chat("tools: thinking hidden, running usage", told("Hello world</think> Paris"), told("Hello"), server="reasoning", stream=True, stream_options=RUNNING_USAGE, include_reasoning=False),
    chat("tools: thinking hidden, without a parser", told("Hello</think> Paris"), told("Hello"), server="tools", include_reasoning=False),
    chat("tools: thinking hidden, without a parser, streamed", told("Hello</think> Paris"), told("Hello"), server="tools", include_reasoning=False, stream=True),
]

HISTORY = [
    chat("tools: a loop", told("Hello"), told(PARIS), messages=LOOP, tools=TOOLS, server="tools"),
    chat("tools: a loop, streamed", told("Hello"), told(PARIS), messages=LOOP, tools=TOOLS, server="tools", stream=True),
    chat("tools: a loop without tools", told("Hello"), messages=LOOP, server="tools"),
    said("arguments that are an object", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": {"city": "Rome"}}}]}),
    said("arguments that are empty", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": ""}}]}),
    said("arguments that are null", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": None}}]}),
    said("arguments that are missing", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky"}}]}),
    said("arguments that are no JSON", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": "{"}}]}),
    said("arguments that are a list", {"role": "assistant", "tool_calls": [{**CALL, "function": {"name": "sky", "arguments": "[1]"}}]}),
    said("no calls in a list", {"role": "assistant", "content": "Hello", "tool_calls": []}),
    said("null calls", {"role": "assistant", "content": "Hello", "tool_calls": None}),
    said("a call without an id", {"role": "assistant", "tool_calls": [{"type": "function", "function": CALL["function"]}]}),
    said("a call without a type", {"role": "assistant", "tool_calls": [{"id": "a", "function": CALL["function"]}]}),
    said("a call without a function", {"role": "assistant", "tool_calls": [{"id": "a", "type": "function"}]}),
    said("a call without a name", {"role": "assistant", "tool_calls": [{**CALL, "function": {"arguments": "{}"}}]}),
    said("a word for a call", {"role": "assistant", "tool_calls": ["x"]}),
    said("a word for calls", {"role": "assistant", "tool_calls": "x"}),
    said("a result without an id", {"role": "tool", "content": "hi"}),
    said("a result of parts", {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "hi"}, {"type": "text", "text": "hi"}]}),
    said("a result without content", {"role": "tool", "tool_call_id": "a"}),
    said("a number for the id of a result", {"role": "tool", "tool_call_id": 5, "content": "hi"}),
    said("past reasoning", {"role": "assistant", "content": "Hello", "reasoning": "hi"}),
    said("past reasoning by its other name", {"role": "assistant", "content": "Hello", "reasoning_content": "hi"}),
    said("past reasoning by both names", {"role": "assistant", "content": "Hello", "reasoning": "hi", "reasoning_content": "Hello"}),
    said("a number for past reasoning", {"role": "assistant", "content": "Hello", "reasoning": 5}),
    said("past reasoning of a user", {"role": "user", "content": "Hello", "reasoning": "hi"}),
    said("a function call as of old", {"role": "assistant", "content": None, "function_call": {"name": "sky", "arguments": "{}"}}),
]

REFUSED = [
    untold("none in a list", tools=[]),
    untold("none in a list, without a choice", tools=[], tool_choice="none"),
    untold("a word for tools", tools="x"),
    untold("a word for a tool", tools=["x"]),
    untold("a tool without a function", tools=[{"type": "function"}]),
    untold("a tool without a name", tools=[{"type": "function", "function": {}}]),
    untold("a tool of another type", tools=[{"type": "x", "function": {"name": "sky"}}]),
    untold("a number for a name", tools=[{"type": "function", "function": {"name": 5}}]),
    untold("a number for a description", tools=[{"type": "function", "function": {"name": "a", "description": 5}}]),
    untold("a word for parameters", tools=[{"type": "function", "function": {"name": "a", "parameters": "x"}}]),
    untold("a word for strict", tools=[{"type": "function", "function": {"name": "a", "strict": "x"}}]),
    untold("an unknown choice", tools=TOOLS, tool_choice="any"),
    untold("a number for a choice", tools=TOOLS, tool_choice=5),
    untold("a list for a choice", tools=TOOLS, tool_choice=["auto"]),
    untold("a choice without tools", tool_choice="auto"),
    untold("a required choice without tools", tool_choice="required"),
    untold("a named choice without tools", tool_choice=NAMED),
    untold("a choice with null tools", tools=None, tool_choice="auto"),
    untold("an empty choice", tools=TOOLS, tool_choice={}),
    untold("a choice without a name", tools=TOOLS, tool_choice={"type": "function", "function": {}}),
    untold("a word for the function of a choice", tools=TOOLS, tool_choice={"type": "function", "function": "sky"}),
    untold("a number for the name of a choice", tools=TOOLS, tool_choice={"type": "function", "function": {"name": 5}}),
    untold("an empty name of a choice", tools=TOOLS, tool_choice={"type": "function", "function": {"name": ""}}),
    untold("a choice that is no tool", tools=TOOLS, tool_choice={"type": "function", "function": {"name": "sea"}}),
    untold("a choice of another type", tools=TOOLS, tool_choice={"type": "x", "function": {"name": "sky"}}),
    untold("a choice among tools without a function", tools=[{"type": "function"}], tool_choice=NAMED),
    untold("a constraint and a named choice", tools=TOOLS, tool_choice=NAMED, structured_outputs={"regex": "a"}),
    untold("a word for parallel", tools=TOOLS, parallel_tool_calls="x"),
    untold("a word for including reasoning", include_reasoning="x"),
    untold("a null for including reasoning", include_reasoning=None),
    untold("an unknown effort", reasoning_effort="huge"),
    untold("a budget without a reasoning parser", thinking_token_budget=5),
    untold("a budget below minus one", thinking_token_budget=-2, server="reasoning"),
    untold("auto without a parser", tools=TOOLS, server="plain"),
    untold("auto without a parser, streamed", tools=TOOLS, stream=True, server="plain"),
    untold("required without a parser", tools=TOOLS, tool_choice="required", server="plain"),
    untold("named without a parser", tools=TOOLS, tool_choice=NAMED, server="plain"),
]

PROMPTS = [
    post("tokenize: tools", "/tokenize", {"messages": QUESTION, "tools": TOOLS}, server="tools", samples=0),
    post("tokenize: a loop", "/tokenize", {"messages": LOOP, "tools": TOOLS}, server="tools", samples=0),
    post("tokenize: no tools in a list", "/tokenize", {"messages": QUESTION, "tools": []}, server="tools", samples=0),
    chat("rendered with tools", path="/v1/chat/completions/render", tools=TOOLS, server="tools", samples=0),
    chat("rendered with reasoning", path="/v1/chat/completions/render", chat_template_kwargs={"enable_thinking": False}, server="reasoning", samples=0),
    chat("rendered with hidden reasoning", path="/v1/chat/completions/render", include_reasoning=False, server="reasoning", samples=0),
]

ROWS = [*CALLS, *THOUGHTS, *HISTORY, *REFUSED, *PROMPTS]
