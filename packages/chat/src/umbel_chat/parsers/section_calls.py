"""Tool calls between markers, in a section: a header, then the arguments in JSON."""

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from umbel_chat.parsers.json_text import json_document
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, ignore, within


class CallHeader(NamedTuple):
    """What stands before the arguments of a call.

    `is_whole` says that what follows a header was there.  There is no name if it is none.
    """

    name: str = ""
    call_id: str = ""
    is_whole: bool = False


class SectionMarkers(msgspec.Struct, frozen=True):
    """The markers around a section and around each call in it.

    `call_ends` are further texts with which a call may end.
    """

    section_start: str
    section_end: str
    call_start: str
    call_end: str
    call_ends: tuple[str, ...] = ()


def read_section_calls(
    source: Source,
    sink: Sink,
    markers: SectionMarkers,
    read_header: Callable[[Source], Steps[CallHeader]],
) -> Steps[None]:
    """Read an answer with calls between markers.

    The markers of the section say nothing that those of the calls do not, so it does not matter
    whether they are there.
    """
    looked_for = (markers.section_start, markers.section_end, markers.call_start)
    found = yield from source.until(looked_for, sink.content)
    while found is not None:
        if found == markers.call_start:
            found = yield from _read_call(source, sink, markers, read_header)
        else:
            yield from source.space()
            found = yield from source.until(looked_for, sink.content)


def _read_call(
    source: Source,
    sink: Sink,
    markers: SectionMarkers,
    read_header: Callable[[Source], Steps[CallHeader]],
) -> Steps[str | None]:
    """Read a call whose start marker was read; gives the marker with which it ended."""

    def read(part: Source) -> Steps[tuple[CallHeader, bool, str]]:
        part.keep()
        header = yield from read_header(part)
        if header.name and header.is_whole:
            part.kept()
            sink.start_call(header.name, header.call_id)
            is_complete = yield from json_document(part, sink.arguments)
            return header, is_complete, ""
        yield from part.rest(ignore)
        return header, False, part.kept()

    ends = (*markers.call_ends, markers.call_end, markers.call_start, markers.section_end)
    (header, is_complete, text), found = yield from within(source, ends, read)
    if not header.name or not (header.is_whole or found):
        closing = found if found == markers.call_end else None
        sink.content(markers.call_start + text + (closing or ""))
    else:
        if not header.is_whole:
            sink.start_call(header.name, header.call_id)
        if found is not None or is_complete:
            sink.end_call()
    return found
