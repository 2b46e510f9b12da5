"""Parameters as JSON, as they come."""

from umbel_chat.events import ArgumentsDelta
from umbel_chat.parsers.parameters import Parameters
from umbel_chat.parsers.sink import Sink

from .transcripts import TOOLS


def pieces(sink: Sink) -> str:
    """Join what has come since the last time."""
    events = sink.take()
    assert all(isinstance(event, ArgumentsDelta) and event.text for event in events)
    return "".join(event.text for event in events if isinstance(event, ArgumentsDelta))


def test_strings_come_at_once_and_other_values_at_their_end() -> None:
    sink = Sink()
    parameters = Parameters(sink, TOOLS["get_weather"])
    city = parameters.begin("city")
    assert pieces(sink) == '{"city": "'
    city.text('a"')
    assert pieces(sink) == 'a\\"'
    city.end()
    days = parameters.begin("days")
    assert pieces(sink) == '", "days": '
    days.text("1")
    days.text("2")
    assert pieces(sink) == ""
    days.end()
    parameters.end()
    assert pieces(sink) == "12}"


def test_one_line_break_at_each_end_may_be_the_formats() -> None:
    for text in ("\n\na\n\nb\n\n", "\n", "\n\n", "a", ""):
        for size in (1, 2, 100):
            sink = Sink()
            value = Parameters(sink, None, trims_newlines=True).begin("x")
            for start in range(0, len(text), size):
                value.text(text[start : start + size])
            value.end()
            expected = text.removeprefix("\n").removesuffix("\n").replace("\n", "\\n")
            assert pieces(sink) == f'{{"x": "{expected}"'


def test_without_parameters_nothing_is_written() -> None:
    sink = Sink()
    Parameters(sink, None).end()
    assert pieces(sink) == ""


def test_all_parameters_in_one_are_looked_for_only_where_the_schema_has_no_such_parameter() -> None:
    schema: dict[str, object] = {"properties": {"input": {"type": "string"}, "a": {}}}
    parameters = Parameters(Sink(), schema)
    assert parameters.begin_envelope("input") is None
    assert parameters.begin_envelope("a") is None
    assert parameters.begin_envelope("arguments") is not None
    parameters.begin("a")
    assert parameters.begin_envelope("arguments") is None
