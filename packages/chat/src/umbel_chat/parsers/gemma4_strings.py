"""Where the strings in the arguments of Gemma 4 end, whose marks models use for quotes, too."""

import re
from types import MappingProxyType

from umbel_chat.parsers.json_text import decode_string
from umbel_chat.parsers.source import LONGEST_WAIT, Emit, Source, Steps

QUOTE = '<|"|>'

QUOTATION_MARKS = MappingProxyType({mark: re.compile(mark) for mark in "\"'"})

KEY = re.compile(r"\s*[\w.\-]+\s*[:=]")
KEY_PART = re.compile(r"\s*(?:[\w.\-]+\s*)?")
# After a comma, text with a mark at its end is no key.
REST = re.compile(r',\s*[^\s:={}\[\]<][^:={}\[\]<]*<\|"\|>')
REST_PART = re.compile(r',[^:={}\[\]<]*(?:<(?:\|(?:"\|?)?)?)?')


def read_marked(source: Source, emit: Emit, closers: str) -> Steps[bool]:
    """Read a string after its first mark; says whether it is complete.

    A mark after which neither one of `closers` nor a key comes stands for a quote.
    """
    while (yield from source.until((QUOTE,), emit)) is not None:
        if (yield from _ends(source, closers)):
            return True
        emit('"')
    return False


def read_quoted(source: Source, closers: str) -> Steps[str]:
    """Read a string in quotes of another kind; gives what it says, or all of it if it has no end."""
    quote = yield from source.take('"', "'")
    pieces: list[str] = []
    while True:
        yield from source.up_to(QUOTATION_MARKS[quote], pieces.append)
        if (yield from source.peek()) == "":
            return quote + "".join(pieces)
        source.advance()
        if (yield from _ends(source, closers)):
            text = "".join(pieces)
            decoded = decode_string(f'"{text}"') if quote == '"' else None
            return text if decoded is None else decoded
        pieces.append(quote)


def goes_on(source: Source) -> Steps[bool]:
    """Tell whether a comma that comes next is part of a string that has no mark but the last."""
    while True:
        unread = source.look(LONGEST_WAIT)
        if REST.match(unread):
            return True
        if source.ended or not _may_be(REST_PART, unread):
            return False
        yield


def _ends(source: Source, closers: str) -> Steps[bool]:
    """Tell whether a string ends here, by what comes next."""
    while True:
        unread = source.look(LONGEST_WAIT)
        if unread.lstrip().startswith(tuple(closers)) or KEY.match(unread):
            return True
        may_be_key = _may_be(KEY_PART, unread)
        if source.ended or not may_be_key:
            return may_be_key
        yield


def _may_be(pattern: re.Pattern[str], text: str) -> bool:
    return len(text) < LONGEST_WAIT and pattern.fullmatch(text) is not None
