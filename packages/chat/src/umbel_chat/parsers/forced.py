"""Calls that are all of an answer, in JSON, as a schema made the model write them."""

from umbel_chat.parsers.json_calls import JsonCall
from umbel_chat.parsers.json_text import json_value
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps, ignore


def read_call_list(source: Source, sink: Sink) -> Steps[None]:
    """Read an array of objects with a `name` and `parameters`."""
    yield from source.space()
    if not (yield from source.take("[")):
        return
    separator = ","
    while separator == ",":
        call = JsonCall(sink)
        yield from call.read(source)
        if not call.is_complete:
            yield from source.rest(ignore)
            return
        sink.end_call()
        yield from source.space()
        separator = yield from source.take(",", "]")
    yield from source.space()


def read_named_call(source: Source, sink: Sink, name: str) -> Steps[None]:
    """Read an answer that is nothing but the arguments of a tool."""
    yield from source.space()
    if not (yield from source.peek()):
        return
    sink.start_call(name)
    if (yield from json_value(source, sink.arguments)):
        sink.end_call()
    yield from source.rest(ignore)
