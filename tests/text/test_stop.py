from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_text.stop import StopMatcher

letters = st.text("abc", max_size=4)
stops = st.lists(st.text("abc", min_size=1, max_size=4), max_size=4)
pieces_of_text = st.lists(letters, max_size=20)


def match(
    pieces: Sequence[str], stop: Sequence[str], include: bool = False, min_tokens: int = 0
) -> tuple[list[str], str | None]:
    """What each piece released, what the finish did, and the stop string."""
    matcher = StopMatcher(stop, include, min_tokens)
    released = []
    found = None
    for piece in pieces:
        text, found = matcher.feed(piece)
        released.append(text)
        if found is not None:
            break
    return [*released, matcher.finish()], found


def match_whole_text(
    pieces: Sequence[str], stop: Sequence[str], include: bool, min_tokens: int
) -> tuple[str, str | None]:
    """vLLM's rule on the whole text: after each token, look for what completed within it."""
    text = ""
    for count, piece in enumerate(pieces, 1):
        before = len(text)
        text += piece
        if count <= min_tokens:
            continue
        ends = [
            (end, order, word)
            for order, word in enumerate(stop)
            for end in range(before + 1, len(text) + 1)
            if text[:end].endswith(word)
        ]
        if ends:
            end, _, word = min(ends)
            return text[: end if include else end - len(word)], word
    return text, None


@given(pieces_of_text, stops, st.booleans(), st.integers(0, 5))
def test_what_is_found_in_pieces_is_what_is_found_in_the_whole(
    pieces: list[str], stop: list[str], include: bool, min_tokens: int
) -> None:
    released, found = match(pieces, stop, include, min_tokens)
    assert ("".join(released), found) == match_whole_text(pieces, stop, include, min_tokens)


@given(st.text("abc", max_size=30), stops, st.booleans(), st.data())
def test_the_result_does_not_depend_on_where_the_text_is_cut(
    text: str, stop: list[str], include: bool, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    released, found = match(pieces, stop, include)
    by_character, found_by_character = match(list(text), stop, include)
    assert ("".join(released), found) == ("".join(by_character), found_by_character)


@given(pieces_of_text, stops)
def test_no_more_is_held_back_than_what_may_become_a_stop_string(
    pieces: list[str], stop: list[str]
) -> None:
    matcher = StopMatcher(stop)
    held = 0
    hold_back = max(map(len, stop), default=1) - 1
    for piece in pieces:
        text, found = matcher.feed(piece)
        if found is not None:
            break
        held += len(piece) - len(text)
        assert 0 <= held <= hold_back


def test_without_stop_strings_text_passes_at_once() -> None:
    assert match(["a", "", "bc"], []) == (["a", "", "bc", ""], None)


def test_a_stop_string_spans_tokens_and_is_left_out() -> None:
    assert match(["well", " ST", "O", "P now"], ["STOP"]) == (["w", "ell", " ", "", ""], "STOP")


def test_an_included_stop_string_ends_the_text_without_delay() -> None:
    assert match(["a ST", "OP now"], ["STOP"], include=True) == (["a ST", "OP", ""], "STOP")


def test_the_stop_string_that_completes_first_wins() -> None:
    assert match(["xx abcd"], ["abcd", "bc"]) == (["xx a", ""], "bc")


def test_of_two_that_complete_together_the_first_in_the_list_wins() -> None:
    assert match(["xab"], ["b", "ab"]) == (["xa", ""], "b")
    assert match(["xab"], ["ab", "b"]) == (["x", ""], "ab")


def test_characters_are_counted_not_bytes() -> None:
    assert match(["学字🎉x"], ["🎉🎉"]) == (["学字🎉", "x"], None)


def test_a_stop_string_within_the_minimum_is_text() -> None:
    assert match(["a", "b", "c"], ["b"], min_tokens=2) == (["a", "b", "c", ""], None)


def test_a_stop_string_that_completes_after_the_minimum_counts() -> None:
    assert match(["a", "b", "c"], ["bc"], min_tokens=2) == (["", "a", "", ""], "bc")


def test_tokens_without_text_count_for_the_minimum() -> None:
    assert match(["", "", "b"], ["b"], min_tokens=2) == (["", "", "", ""], "b")


def test_tokens_after_a_match_are_ignored() -> None:
    matcher = StopMatcher(["b"])
    assert matcher.feed("ab") == ("a", "b")
    assert matcher.feed("cb") == ("", None)
    assert matcher.finish() == ""


def test_an_empty_stop_string_is_refused() -> None:
    with pytest.raises(ValueError, match="must not be empty"):
        StopMatcher(["a", ""])
