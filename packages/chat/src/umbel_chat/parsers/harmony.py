"""Harmony, as gpt-oss writes it: an answer made of messages for the user, for tools, for no one."""

import re
from typing import NamedTuple

from umbel_chat.parsers.formats import ReasoningFormat, Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar, MessageGrammar
from umbel_chat.parsers.json_text import json_document
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Emit, Source, Steps, collect, within

START, CHANNEL, CONSTRAIN, MESSAGE = "<|start|>", "<|channel|>", "<|constrain|>", "<|message|>"
END, CALL, RETURN = "<|end|>", "<|call|>", "<|return|>"

OPENERS = (START, CHANNEL, CONSTRAIN, MESSAGE)
ENDERS = (END, CALL, RETURN)
MARKERS = (*OPENERS, *ENDERS)
# Words that begin a header where there is no marker, as at the beginning of an answer.
WORDS = ("assistant", "to=")
# A message ends where the next begins, even without its end marker.
BODY_ENDS = (*ENDERS, START, CHANNEL)

CHANNEL_NAME = re.compile(r"<\|channel\|>\s*(\w+)")
RECIPIENT = re.compile(r"\bto=([^\s<]+)")
BUILT_IN = frozenset({"browser", "container", "python"})
"""Tools that the models know from their training; a client's own have a prefix, or other names."""


class Header(NamedTuple):
    """What stands before the text of a message, and the marker with which it ended.

    It is a header only if that is `<|message|>`.
    """

    text: str
    marker: str | None

    @property
    def is_analysis(self) -> bool:
        """Whether the message is for no one."""
        names = CHANNEL_NAME.findall(self.text)
        return bool(names) and names[-1].startswith("analysis")

    @property
    def recipient(self) -> str:
        """The tool that the message is for, "" if it is for none."""
        match = RECIPIENT.search(self.text)
        return match.group(1) if match else ""


class Lines:
    """Puts the texts of several messages together, each on a line of its own."""

    __slots__ = ("_emit", "_is_begun", "_separator")

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._is_begun = False
        self._separator = ""

    def begin(self) -> None:
        """Say that another message begins."""
        self._separator = "\n" if self._is_begun else ""

    def add(self, text: str) -> None:
        """Append to the text of the message."""
        if text:
            self._emit(self._separator + text)
            self._separator = ""
            self._is_begun = True


class HarmonyAnswer:
    """Tells a sink what the messages of one answer are."""

    __slots__ = ("_content", "_reasoning", "_sink", "_tools")

    def __init__(self, sink: Sink, tools: Schemas) -> None:
        self._sink = sink
        self._tools = tools
        self._content = Lines(sink.content)
        self._reasoning = Lines(sink.reasoning)

    def read_stray(self, source: Source, text: str) -> Steps[str | None]:
        """Read text before which stands no header, up to the next marker and past it; gives that.

        `text` is whitespace that was read; it is nothing if nothing follows.
        """
        if (yield from source.peek()) == "":
            return None
        self._content.begin()
        self._content.add(text)
        return (yield from source.until(MARKERS, self._content.add))

    def add_malformed(self, header: Header) -> None:
        """Take a header that no message follows for content."""
        self._content.begin()
        ender = header.marker if header.marker in ENDERS else None
        self._content.add(header.text + (ender or ""))

    def read_message(self, source: Source, header: Header) -> Steps[str | None]:
        """Read the text of a message and past the marker with which it ends; gives that.

        What is written to a tool that no client offered is reasoning.
        """
        recipient = header.recipient
        if name := self._function_of(recipient):
            return (yield from self._read_call(source, name))
        if recipient or header.is_analysis:
            self._sink.begin_reasoning()
            self._reasoning.begin()
            marker = yield from source.until(BODY_ENDS, self._reasoning.add)
            if marker is not None:
                self._sink.end_reasoning()
            return marker
        self._content.begin()
        return (yield from source.until(BODY_ENDS, self._content.add))

    def _function_of(self, recipient: str) -> str:
        """Give the tool of the client that a message is for, "" if it is for none."""
        name = recipient.removeprefix("functions.")
        if name != recipient or name in self._tools:
            return name
        is_known = recipient == "assistant" or recipient.split(".", 1)[0] in BUILT_IN
        return "" if is_known else name

    def _read_call(self, source: Source, name: str) -> Steps[str | None]:
        self._sink.start_call(name)
        is_complete, marker = yield from within(
            source, BODY_ENDS, lambda part: json_document(part, self._sink.arguments)
        )
        if marker is not None or is_complete:
            self._sink.end_call()
        return marker


def read_harmony(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer that begins in the header of its first message, as the prompt ends there."""
    answer = HarmonyAnswer(sink, tools)
    marker: str | None = ""
    while marker is not None:
        text = marker
        if marker not in OPENERS:
            text, marker = yield from _read_between(source)
        if marker is None:
            marker = yield from answer.read_stray(source, text)
            continue
        header = yield from _read_header(source, text, marker)
        marker = header.marker
        if marker == MESSAGE:
            marker = yield from answer.read_message(source, header)
        else:
            answer.add_malformed(header)


def _read_between(source: Source) -> Steps[tuple[str, str | None]]:
    """Read what stands between messages, with the marker or the word that begins the next header.

    Gives the text, and that marker, "" if it is a word, None if there is no header.
    """
    while True:
        source.keep()
        yield from source.space()
        found = yield from source.take(*MARKERS, *WORDS)
        text = source.kept()
        if found in OPENERS:
            return text, found
        if found not in ENDERS:
            return text, "" if found else None


def _read_header(source: Source, text: str, marker: str) -> Steps[Header]:
    """Read the rest of a header of which `text` was read, and past the marker that ends it."""
    following: str | None = marker
    while following != MESSAGE:
        part, following = yield from collect(lambda emit: source.until(MARKERS, emit))
        text += part
        if following != CHANNEL and following != CONSTRAIN:
            break
        text += following
    return Header(text, following)


EXAMPLE = (
    "<|channel|>analysis<|message|>I need the weather.<|end|><|start|>assistant<|channel|>commentary "
    'to=functions.get_weather <|constrain|>json<|message|>{"city": "Paris"}<|call|>'
)

OPENAI = ToolFormat(
    names=("openai",),
    parse=read_harmony,
    reads_reasoning=True,
    starts=(CHANNEL,),
    markers=MARKERS,
    trims_content=False,
    grammar=CallGrammar(
        # A call ends the answer: its end marker is a token that stops the model.
        spellings=(
            (f"{CHANNEL}commentary to=functions.{{name}} {CONSTRAIN}json{MESSAGE}", ""),
            (f" to=functions.{{name}}{CHANNEL}commentary {CONSTRAIN}json{MESSAGE}", ""),
            (f" to=functions.{{name}}{CHANNEL}commentary json{MESSAGE}", ""),
        ),
        excludes=(START, CHANNEL, END),
        messages=MessageGrammar(
            preambles=(f"{CHANNEL}analysis{MESSAGE}", f"{CHANNEL}commentary{MESSAGE}"),
            end=END,
            separator=f"{START}assistant",
            answer=f"{CHANNEL}final{MESSAGE}",
        ),
    ),
    summary="Messages of the format Harmony; those to a tool are calls. Reasoning is read, too.",
    models=("gpt-oss",),
    example=EXAMPLE,
    differences=(
        "A header, a message or an end marker that is missing loses no text; vLLM drops text where it "
        "waits for a header, and takes the markers of the next message for text.",
        "What is written to a tool that no client offered is reasoning; vLLM drops it.",
        "Several messages of a kind are lines of their own; in vLLM, when it does not stream.",
        "Arguments are what the model wrote; vLLM writes them anew when it does not stream.",
    ),
)

OPENAI_GPTOSS = ReasoningFormat(
    names=("openai_gptoss",),
    start=CHANNEL + "analysis" + MESSAGE,
    end=END,
    parse=read_harmony,
    markers=MARKERS,
    summary="Messages of the format Harmony in the channel `analysis`. Calls are read, too.",
    models=("gpt-oss",),
    differences=OPENAI.differences,
)
