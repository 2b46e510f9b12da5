"""Text becomes the same tokens whichever package does it."""

import logging
import sys
from types import SimpleNamespace

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from umbel_text.encoders import fast_encoder_of
from umbel_text.errors import InvalidTextError
from umbel_text.tokenizer import SpecialTokens, Tokenizer

MARKS = st.sampled_from(
    ["<|im_start|>", "<|im_end|>\n", " ", "\n\n\t", "don't ", "été", "学生", "ﬁ"]
)
TEXTS = st.lists(st.text(max_size=20) | MARKS, max_size=12).map("".join)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Be without fastokens."""
    monkeypatch.setitem(sys.modules, "fastokens", None)


@given(text=TEXTS, adds=st.booleans())
def test_both_packages_give_the_same_tokens(byte_level: Tokenizer, text: str, adds: bool) -> None:
    fast = fast_encoder_of(byte_level.backend)
    assert fast is not None
    assert fast(text, adds) == byte_level.encode(text, adds)


@pytest.fixture
def fresh(byte_level: Tokenizer) -> Tokenizer:
    """One of its own, which a test may change."""
    return Tokenizer(tokenizers.Tokenizer.from_str(byte_level.backend.to_str()), SpecialTokens({}))


def test_fastokens_is_used_on_demand(fresh: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = fresh.encode("Hello")
    assert fresh.use_fastokens()
    monkeypatch.setattr(fresh, "backend", None)
    assert fresh.encode("Hello") == expected


def test_a_text_that_fastokens_gives_up_is_tokenized_all_the_same(
    fresh: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = fresh.backend

    class Fast:
        """As fastokens with a very long run of spaces."""

        @classmethod
        def from_json_str(cls, text: str) -> "Fast":
            return cls()

        def encode(self, text: str, add_special_tokens: bool) -> tokenizers.Encoding:
            if len(text) > 100_000:
                raise ValueError("Max stack size exceeded for backtracking")
            return backend.encode(text, add_special_tokens=add_special_tokens)

    monkeypatch.setitem(sys.modules, "fastokens", SimpleNamespace(Tokenizer=Fast))
    expected = fresh.encode(" " * 200_000)
    assert fresh.use_fastokens()
    assert fresh.encode(" " * 200_000) == expected


@pytest.mark.usefixtures("plain")
def test_it_stays_with_tokenizers_where_fastokens_is_not_installed(fresh: Tokenizer) -> None:
    expected = fresh.encode("Hello")
    assert not fresh.use_fastokens()
    assert fresh.encode("Hello") == expected


def test_a_tokenizer_that_fastokens_does_not_know_is_left_to_tokenizers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "umbel_text")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert fast_encoder_of(backend) is None
    assert "fastokens is not used" in caplog.text


def test_one_that_disagrees_is_left_to_tokenizers(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    import fastokens

    class Other:
        @classmethod
        def from_json_str(cls, text: str) -> "Other":
            return cls()

        def encode(self, text: str, add_special_tokens: bool) -> tokenizers.Encoding:
            return byte_level.backend.encode(text.lower(), add_special_tokens=add_special_tokens)

    monkeypatch.setattr(fastokens, "Tokenizer", Other)
    assert fast_encoder_of(byte_level.backend) is None
    assert "tokenizes" in caplog.text


def test_lone_surrogates_are_refused(fresh: Tokenizer) -> None:
    with pytest.raises(InvalidTextError):
        fresh.encode("\ud800")
    assert fresh.use_fastokens()
    with pytest.raises(InvalidTextError):
        fresh.encode("\ud800")
