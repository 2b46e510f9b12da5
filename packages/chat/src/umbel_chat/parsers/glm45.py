"""Tool calls as GLM-4.5 and its successors write them."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from umbel_chat.parsers.closing_tags import read_value
from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.grammar import CallGrammar
from umbel_chat.parsers.parameters import Parameters
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect, ignore

START, END = "<tool_call>", "</tool_call>"
KEY, KEY_END = "<arg_key>", "</arg_key>"
VALUE, VALUE_END = "<arg_value>", "</arg_value>"
NAME_END = re.compile(r"""[\s<>{}"]""")
LONGEST_KEY = 512
"""Characters that are waited for to see whether a value ends where a key seems to begin."""

WHOLE_KEY = re.compile(r"[^<>\n]+</arg_key>")
KEY_PART = re.compile(r"[^<>\n]*(?:</?[a-z_]*)?")
FOLLOWERS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {VALUE_END: (KEY, VALUE_END, END, START), END: (START,)}
)
"""The tags that may follow one with which a value ends."""


def read_glm45(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls like `<tool_call>name<arg_key>...<arg_value>...</tool_call>`."""
    while (yield from source.until((START,), sink.content)) is not None:
        ending: str | None = START
        # A call may begin where the one before should have ended.
        while ending == START:
            ending = yield from _read_call(source, sink, tools)


def _read_call(source: Source, sink: Sink, tools: Schemas) -> Steps[str | None]:
    """Read a call whose start was read; gives the tag that ends it, "" if it is none.

    Nothing but the tag after it tells a name from text: what is no call is content, its start
    included.
    """
    source.keep()
    yield from source.space()
    name, _ = yield from collect(lambda emit: source.up_to(NAME_END, emit))
    yield from source.space()
    opened = yield from source.take(KEY, END)
    text = source.kept()
    if not name or not opened:
        sink.content(START + text)
        return ""
    sink.start_call(name)
    parameters = Parameters(sink, tools.get(name))
    ending = yield from _read_parameters(source, parameters, opened)
    if ending is not None:
        parameters.end()
        sink.end_call()
    return ending


def _read_parameters(
    source: Source, parameters: Parameters, found: str | None
) -> Steps[str | None]:
    """Read on from a tag to the end of the parameters; gives the tag there."""
    while found is not None and found not in (END, START):
        if found == KEY:
            found = yield from _read_parameter(source, parameters)
        else:
            found = yield from source.until((KEY, END, START), ignore)
    return found


def _read_parameter(source: Source, parameters: Parameters) -> Steps[str | None]:
    """Read a parameter from its key on; gives the tag that ends it."""
    key, found = yield from collect(lambda emit: source.until((KEY_END, VALUE, END, START), emit))
    if found == KEY_END:
        stops = (VALUE, VALUE_END, KEY, END, START)
        text, found = yield from collect(lambda emit: source.until(stops, emit))
        if found == VALUE_END:
            # Models forget the tag before the value.
            value = parameters.begin(key.strip())
            value.text(text.strip())
            value.end()
    if found != VALUE:
        return found
    value = parameters.begin(key.strip())
    found = yield from read_value(source, value.text, (VALUE_END, KEY, END), FOLLOWERS)
    while found == KEY and not (yield from _is_key_next(source)):
        value.text(KEY)
        found = yield from read_value(source, value.text, (VALUE_END, KEY, END), FOLLOWERS)
    if found is not None:
        value.end()
    return found


def _is_key_next(source: Source) -> Steps[bool]:
    """Tell whether a tag before a key has one after it, or may have where the text ends."""
    while True:
        unread = source.look(LONGEST_KEY)
        if WHOLE_KEY.match(unread):
            return True
        may_be = len(unread) < LONGEST_KEY and KEY_PART.fullmatch(unread) is not None
        if source.ended or not may_be:
            return may_be
        yield


GLM45 = ToolFormat(
    names=("glm45", "glm47"),
    parse=read_glm45,
    starts=(START,),
    markers=(START, END, KEY, KEY_END, VALUE, VALUE_END),
    grammar=CallGrammar(
        spellings=((START + "{name}", END),),
        trigger=START,
        separator="\n",
        style="glm_xml",
        excludes=("<think>", "</think>", END, KEY, KEY_END, VALUE, VALUE_END),
    ),
    summary="The name and `<arg_key>`, `<arg_value>` pairs between `<tool_call>` and "
    "`</tool_call>`; the schema of the tool says what is a string.",
    models=("GLM-4.5", "GLM-4.6", "GLM-4.7", "GLM-5"),
    example="<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n"
    "</tool_call>",
    differences=(
        "A call that is cut off stays open; vLLM closes its arguments, or leaves out the last one.",
        "A call of a tool that the request does not have is a call; vLLM drops it.",
        "Text in the tags that is no call is content; vLLM drops it.",
        "A closing tag in a value ends it only before another tag of the format, or at the end: else "
        "it is part of a value that speaks of it, and so is a key's that has no end. vLLM always ends "
        "the value, or the call, at the former.",
        "A parameter or a call without a closing tag ends where the next begins; vLLM leaves it "
        "out, or takes the rest as part of it.",
    ),
)
