"""Tool calls as Phi-4-mini writes them: a JSON array after a word."""

from umbel_chat.parsers.formats import Schemas, ToolFormat
from umbel_chat.parsers.json_calls import json_calls
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Source, Steps

START = "functools["


def read_phi4_mini(source: Source, sink: Sink, tools: Schemas) -> Steps[None]:
    """Read an answer with calls like `functools[{"name": ..., "arguments": ...}]`."""
    while (yield from source.until((START,), sink.content)) is not None:
        yield from json_calls(source, sink, START)


PHI4_MINI_JSON = ToolFormat(
    names=("phi4_mini_json",),
    parse=read_phi4_mini,
    starts=(START,),
    summary="A JSON array of objects with `name` and `arguments` after the word `functools`.",
    models=("Phi-4-mini",),
    example='functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]',
    differences=(
        "Streams; vLLM's parser gives nothing at all in a stream.",
        "Text around the calls is content; vLLM drops it.",
        "Arguments may hold arrays; vLLM takes the first `]` for the end of the calls.",
        "`functools[]` without a call in it is content; vLLM drops it.",
    ),
)
