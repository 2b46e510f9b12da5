"""Text becomes the same tokens whichever package does it."""

import logging
import sys

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from umbel_text.encoders import encoder_of
from umbel_text.errors import InvalidTextError
from umbel_text.tokenizer import Tokenizer

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
    (expected,) = byte_level.backend.encode_batch_fast([text], add_special_tokens=adds)
    assert byte_level.encode(text, adds) == expected.ids


def test_fastokens_is_used_where_it_is_installed(byte_level: Tokenizer) -> None:
    assert encoder_of(byte_level.backend).__name__ == "encode_fast"


@pytest.mark.usefixtures("plain")
def test_tokenizers_is_used_where_it_is_not(byte_level: Tokenizer) -> None:
    encode = encoder_of(byte_level.backend)
    assert encode.__name__ == "encode"
    assert encode("Hello", False) == byte_level.encode("Hello", False)


def test_a_tokenizer_that_fastokens_does_not_know_is_left_to_tokenizers(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "umbel_text")
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    assert encoder_of(backend)("a b", False) == [0, 1]
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
    assert encoder_of(byte_level.backend).__name__ == "encode"
    assert "tokenizes" in caplog.text


def test_lone_surrogates_are_refused(byte_level: Tokenizer) -> None:
    with pytest.raises(InvalidTextError):
        byte_level.encode("\ud800")


@pytest.mark.usefixtures("plain")
def test_lone_surrogates_are_refused_without_fastokens(byte_level: Tokenizer) -> None:
    with pytest.raises(TypeError):
        encoder_of(byte_level.backend)("\ud800", False)
