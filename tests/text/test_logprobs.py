import math
from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from umbel_engine import Logprobs
from umbel_text.logprobs import (
    ALL_LOGPROBS,
    LogprobsDecoder,
    PositionLogprobs,
    TokenLogprob,
    decode_prompt_logprobs,
)
from umbel_text.token_texts import REPLACEMENT
from umbel_text.tokenizer import Tokenizer


def rows(token_ids: Sequence[Sequence[int]], ranks: Sequence[int]) -> Logprobs:
    ids = np.array(token_ids, dtype=np.int32)
    values = -np.arange(ids.size, dtype=np.float32).reshape(ids.shape)
    return Logprobs(ids, values, np.array(ranks, dtype=np.int32))


def texts(positions: Sequence[PositionLogprobs]) -> list[str]:
    """The text of the sampled token of each position."""
    return [position[0].text for position in positions]


def test_the_sampled_token_comes_first_with_its_own_rank(byte_level: Tokenizer) -> None:
    a, b, c = byte_level.encode("abc")
    assert LogprobsDecoder(byte_level, 2).feed(rows([[c, a, b]], [77])) == [
        (
            TokenLogprob(c, 0.0, 77, "c"),
            TokenLogprob(a, -1.0, 1, "a"),
            TokenLogprob(b, -2.0, 2, "b"),
        )
    ]


def test_a_sampled_token_among_the_most_likely_is_there_once(byte_level: Tokenizer) -> None:
    a, b = byte_level.encode("ab")
    logprobs = Logprobs(np.array([[b, a, b]]), np.array([[-0.5, -0.25, -0.5]]), np.array([3]))
    assert LogprobsDecoder(byte_level, 2).feed(logprobs) == [
        (TokenLogprob(b, -0.5, 2, "b"), TokenLogprob(a, -0.25, 1, "a"))
    ]


def test_no_more_entries_than_were_asked_for(byte_level: Tokenizer) -> None:
    a, b, c = byte_level.encode("abc")
    logprobs = rows([[c, a, b]], [9])
    for asked, expected in ((0, 1), (1, 2), (2, 3), (5, 3), (ALL_LOGPROBS, 3)):
        (position,) = LogprobsDecoder(byte_level, asked).feed(logprobs)
        assert len(position) == expected


def test_minus_infinity_passes(byte_level: Tokenizer) -> None:
    (a,) = byte_level.encode("a")
    logprobs = Logprobs(np.array([[a]]), np.array([[-np.inf]]), np.array([1]))
    assert LogprobsDecoder(byte_level, 0).feed(logprobs)[0][0].logprob == -math.inf


def test_the_token_that_completes_a_character_gets_its_text(byte_tokenizer: Tokenizer) -> None:
    ids = byte_tokenizer.encode("ok 🎉 学", add_special_tokens=False)
    decoder = LogprobsDecoder(byte_tokenizer, 0)
    found = texts(decoder.feed(rows([[token_id] for token_id in ids], [1] * len(ids))))
    assert "".join(found).removeprefix(" ") == "ok 🎉 学"
    assert not any(REPLACEMENT in text for text in found)
    assert found[-1] == "学"


def test_alternatives_are_completed_by_the_sampled_tokens_before(byte_level: Tokenizer) -> None:
    lead, second, last = byte_level.encode("学")
    other = byte_level.encode("字")[-1]
    decoder = LogprobsDecoder(byte_level, 1)
    decoder.feed(rows([[lead, lead], [second, lead]], [1, 1]))
    ((sampled, alternative),) = decoder.feed(rows([[other, last]], [1]))
    assert (sampled.text, alternative.text) == (byte_level.decode([lead, second, other]), "学")


def test_a_fragment_without_the_rest_has_no_text(byte_level: Tokenizer) -> None:
    last = byte_level.encode("学")[-1]
    assert texts(LogprobsDecoder(byte_level, 0).feed(rows([[last]], [1]))) == [""]


def test_a_space_that_decoding_drops_is_kept(byte_fallback: Tokenizer) -> None:
    ids = byte_fallback.encode("the")
    assert texts(LogprobsDecoder(byte_fallback, 0).feed(rows([[ids[0]]], [1]))) == [" th"]


def test_a_token_id_without_a_token_has_no_text(byte_level: Tokenizer) -> None:
    ids = [[byte_level.max_token_id + 1], [-1]]
    assert texts(LogprobsDecoder(byte_level, 0).feed(rows(ids, [1, 1]))) == ["", ""]


def test_the_first_prompt_position_has_none(byte_level: Tokenizer) -> None:
    a, b = byte_level.encode("ab")
    assert decode_prompt_logprobs(byte_level, rows([[a, b]], [4]), 1) == [
        None,
        (TokenLogprob(a, 0.0, 4, "a"), TokenLogprob(b, -1.0, 1, "b")),
    ]


@given(st.lists(st.tuples(st.integers(0, 500), st.integers(0, 500)), max_size=20), st.data())
def test_rows_cut_in_any_way_give_the_same_positions(
    tokenizer: Tokenizer, pairs: list[tuple[int, int]], data: st.DataObject
) -> None:
    logprobs = rows(
        np.array(pairs).reshape(len(pairs), 2).tolist() or [[0, 0]], [1] * (len(pairs) or 1)
    )
    whole = LogprobsDecoder(tokenizer, 1).feed(logprobs)
    decoder = LogprobsDecoder(tokenizer, 1)
    cut = data.draw(st.integers(0, len(logprobs.ranks)))
    rest = Logprobs(logprobs.token_ids[cut:], logprobs.logprobs[cut:], logprobs.ranks[cut:])
    assert [*decoder.feed(logprobs.head(cut)), *decoder.feed(rest), *decoder.finish()] == whole
