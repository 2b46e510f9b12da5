"""Tool calls whose parameters stand between tags of their own."""

import re
from collections.abc import Mapping

import msgspec

from umbel_chat.parsers.closing_tags import read_value
from umbel_chat.parsers.formats import Schemas
from umbel_chat.parsers.parameters import Envelope, Parameters, Value
from umbel_chat.parsers.schema_types import STRING
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, collect

NAME_END = re.compile(r"[\s<>]")
PARAMETER_NAME = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|(\S*))""")

DIFFERENCES = (
    "A call that is cut off stays open; vLLM closes its arguments, or leaves out the last one.",
    "A call whose name is cut off or not closed is content; vLLM drops its text, or makes a call of "
    "what there is of the name.",
    "Text between the tags of a call and those around it is content; vLLM drops it.",
    "A parameter or a call without a closing tag ends where the next begins; vLLM leaves it out, or "
    "takes the rest as part of it.",
    "The end of a parameter ends it only before another tag of the format, or at the end: else it is "
    "part of a value that speaks of it. vLLM always ends the value there.",
)


class Tags(msgspec.Struct, frozen=True, kw_only=True):
    """The tags of a format.

    `start` and `end` stand around calls.  `call` and `parameter` are followed by a name and ">".
    `trims_newlines` says that a line break at either end of a value is part of the format.
    `says_strings` says that a parameter may tell whether it is a string.
    """

    start: str
    end: str
    call: str
    call_end: str
    parameter: str
    parameter_end: str
    trims_newlines: bool = False
    says_strings: bool = False

    @property
    def followers(self) -> Mapping[str, tuple[str, ...]]:
        """The tags that may follow one with which a value ends."""
        after_value = (self.parameter, self.parameter_end, self.call_end)
        return {
            self.parameter_end: (*after_value, self.call, self.start, self.end),
            self.end: (self.start,),
        }


def read_tagged_calls(source: Source, sink: Sink, tools: Schemas, tags: Tags) -> Steps[None]:
    """Read an answer with calls between tags, with the tags around them or without."""
    outside = (tags.start, tags.call, tags.end)
    # Whether the tag around the calls before is still open.
    is_within = False
    while (found := (yield from source.until(outside, sink.content))) is not None:
        if found == tags.end and not is_within:
            sink.content(found)
        is_bare = found == tags.call and not is_within
        is_within = is_within and found != tags.end
        ending: str | None = found
        # A call may begin where the one before should have ended.
        while ending == tags.start or ending == tags.call:
            ending = yield from _read_call(source, sink, tools, tags, ending, is_bare)
            is_bare = False
        if ending == tags.call_end:
            is_within = True


def _read_call(
    source: Source, sink: Sink, tools: Schemas, tags: Tags, found: str, is_bare: bool
) -> Steps[str | None]:
    """Read a call whose first tag was read; gives the tag that ends it, "" if it is none.

    What is no call is content, its tags included.
    """
    source.keep()
    yield from source.space()
    if found == tags.start and not (yield from source.take(tags.call)):
        sink.content(found + source.kept())
        return ""
    name, _ = yield from collect(lambda emit: source.up_to(NAME_END, emit))
    name = name.strip("\"'")
    yield from source.space()
    # Models forget the bracket.
    opened = yield from source.take(">", tags.parameter, tags.call_end)
    text = source.kept()
    # Text may speak of the tag of a call where there is none around it.
    if not name or not opened or (is_bare and name not in tools):
        sink.content(found + text)
        return ""
    sink.start_call(name)
    parameters = Parameters(sink, tools.get(name), tags.trims_newlines)
    ending = yield from _read_parameters(source, parameters, tags, opened)
    if ending is not None:
        parameters.end()
        sink.end_call()
    return ending


def _read_parameters(
    source: Source, parameters: Parameters, tags: Tags, found: str | None
) -> Steps[str | None]:
    """Read on from a tag to the end of the parameters; gives the tag there."""
    endings = (tags.call_end, tags.call, tags.start, tags.end)
    stops = (tags.parameter, *endings)
    while found is not None and found not in endings:
        if found == tags.parameter:
            found = yield from _read_parameter(source, parameters, tags)
        else:
            text, found = yield from collect(lambda emit: source.until(stops, emit))
            # Models may write all parameters as one object.
            if found is not None and parameters.is_empty:
                parameters.take_all(text)
    return found


def _read_parameter(source: Source, parameters: Parameters, tags: Tags) -> Steps[str | None]:
    """Read a parameter from its name on; gives the tag that ends it."""
    ends = (tags.parameter_end, tags.parameter, tags.call_end)
    head, found = yield from collect(lambda emit: source.until((">", "\n", *ends), emit))
    if found in ends or found is None:
        return found
    value = _begin(parameters, head, tags)
    found = yield from read_value(source, value.text, (*ends, tags.end), tags.followers)
    if found is not None:
        value.end()
    return found


def _begin(parameters: Parameters, head: str, tags: Tags) -> Value | Envelope:
    """Begin the parameter that a tag names."""
    match = PARAMETER_NAME.match(head)
    assert match is not None
    name = "".join(filter(None, match.groups()))
    if not tags.says_strings:
        return parameters.begin(name)
    envelope = parameters.begin_envelope(name)
    if envelope is not None:
        return envelope
    types = parameters.types_of(name)
    if 'string="true"' in head[match.end() :] and (not types or "string" in types):
        types = STRING
    return parameters.begin(name, types)
