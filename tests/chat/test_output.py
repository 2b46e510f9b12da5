"""The output processors."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from umbel_chat.output import (
    ContentDelta,
    OutputEvent,
    OutputProcessor,
    OutputProcessorFactory,
    PlainTextProcessor,
)

new_processor: OutputProcessorFactory = PlainTextProcessor


def read(processor: OutputProcessor, pieces: list[str]) -> list[OutputEvent]:
    events = [event for piece in pieces for event in processor.feed(piece, [0])]
    return events + processor.finish()


def test_plain_text_is_content_as_it_comes() -> None:
    assert read(new_processor(), ["Hel", "lo"]) == [ContentDelta("Hel"), ContentDelta("lo")]


def test_a_step_without_text_makes_no_event() -> None:
    assert new_processor().feed("", [1, 2]) == []


@given(st.text(), st.lists(st.integers(0, 40)))
def test_text_cut_in_any_way_gives_the_same_content(text: str, places: list[int]) -> None:
    cuts = [0, *sorted(min(place, len(text)) for place in places), len(text)]
    pieces = [text[start:end] for start, end in itertools.pairwise(cuts)]
    assert "".join(event.text for event in read(new_processor(), pieces)) == text


def test_every_sample_gets_a_processor_of_its_own() -> None:
    assert new_processor() is not new_processor()
