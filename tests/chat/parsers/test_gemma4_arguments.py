"""Values of Gemma 4 whose schema allows several types."""

from umbel_chat.events import ArgumentsDelta
from umbel_chat.parsers.gemma4_arguments import Gemma4Arguments
from umbel_chat.parsers.sink import Sink
from umbel_chat.parsers.source import Markers, Source


def test_a_quoted_value_is_a_string_where_it_may_be_one() -> None:
    types = ["string", "integer", "null"]
    schema: dict[str, object] = {
        "properties": {"a": {"type": types}, "b": {"type": "array", "items": {"type": types}}}
    }
    sink = Sink()
    source = Source(Markers())
    source.push('a:<|"|>5<|"|>,b:[<|"|>null<|"|>,null,5,five]}')
    source.end()
    assert list(Gemma4Arguments(sink, schema, "{").read(source)) == []
    events = [event.text for event in sink.take() if isinstance(event, ArgumentsDelta)]
    assert "".join(events) == '{"a": "5", "b": ["null", null, 5, "five"]}'
