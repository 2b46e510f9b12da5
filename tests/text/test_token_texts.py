"""What tokens read by themselves."""

from umbel_text.token_texts import TokenTexts
from umbel_text.tokenizer import Tokenizer


def test_a_token_within_a_character_has_no_text_of_its_own(byte_level: Tokenizer) -> None:
    texts = TokenTexts(byte_level.backend, skip_special_tokens=True)
    lead, *rest = byte_level.encode("\N{PARTY POPPER}")
    assert rest
    assert texts[lead] is None
    (letter,) = byte_level.encode("H")
    assert texts[letter] == "H"


def test_special_tokens_read_like_nothing_where_they_are_skipped(byte_level: Tokenizer) -> None:
    start = byte_level.backend.token_to_id("<|start|>")
    assert start is not None
    assert TokenTexts(byte_level.backend, skip_special_tokens=True)[start] == ""
    assert TokenTexts(byte_level.backend, skip_special_tokens=False)[start] == "<|start|>"


def test_only_tokens_are_kept(byte_level: Tokenizer) -> None:
    texts = TokenTexts(byte_level.backend, skip_special_tokens=True)
    for token_id in (-1, byte_level.max_token_id + 1, 2**40):
        assert texts[token_id] == ""
    assert not texts
    known = [texts[token_id] for token_id in range(byte_level.max_token_id + 1)]
    assert None in known
    assert len(texts) == byte_level.max_token_id + 1


def test_a_decoder_that_looks_at_more_than_one_token_has_no_texts(
    byte_level: Tokenizer, byte_fallback: Tokenizer, word_level: Tokenizer
) -> None:
    assert byte_level.token_texts() is not None
    assert byte_fallback.token_texts() is None
    assert word_level.token_texts() is None
