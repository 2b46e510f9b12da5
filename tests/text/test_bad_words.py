"""Bad words are sent to the engine as tokens."""

from collections.abc import Sequence

import pytest

from umbel_text.bad_words import MAX_TOKENS, tokenize_bad_words
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.lowering import lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.tokenizer import Tokenizer

VOCABULARY_SIZE = 1000


def fault(tokenizer: Tokenizer, words: Sequence[str], size: int = VOCABULARY_SIZE) -> str:
    with pytest.raises(InvalidRequestError) as caught:
        tokenize_bad_words(words, tokenizer, size)
    assert caught.value.parameter == "bad_words"
    return str(caught.value)


def test_a_word_is_sent_as_it_begins_a_text_and_as_it_stands_within(
    byte_level: Tokenizer,
) -> None:
    bare, spaced = (byte_level.encode(text) for text in ("the", " the"))
    assert [len(bare), len(spaced)] == [1, 1]
    assert bare != spaced
    assert tokenize_bad_words(["the"], byte_level, VOCABULARY_SIZE) == [bare, spaced]
    # It is the same word with spaces before it.
    assert tokenize_bad_words(["  the"], byte_level, VOCABULARY_SIZE) == [bare, spaced]


def test_a_word_that_the_space_makes_longer_is_sent_once(byte_level: Tokenizer) -> None:
    bare, spaced = (byte_level.encode(text) for text in ("zz", " zz"))
    assert len(spaced) == len(bare) + 1
    assert tokenize_bad_words(["zz"], byte_level, VOCABULARY_SIZE) == [bare]


def test_a_word_that_begins_alike_in_both_places_is_sent_once(word_level: Tokenizer) -> None:
    ids = word_level.encode("the")
    assert word_level.encode(" the") == ids
    assert tokenize_bad_words(["the"], word_level, VOCABULARY_SIZE) == [ids]


def test_special_tokens_of_the_tokenizer_are_not_added(byte_level: Tokenizer) -> None:
    from tokenizers.processors import TemplateProcessing

    from umbel_text.tokenizer import SpecialTokens

    backend = type(byte_level.backend).from_str(byte_level.backend.to_str())
    start = backend.token_to_id("<|start|>")
    backend.post_processor = TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", start)]
    )
    tokenizer = Tokenizer(backend, SpecialTokens({}))
    words = tokenize_bad_words(["zz"], tokenizer, VOCABULARY_SIZE)
    assert words == [byte_level.encode("zz")]


@pytest.mark.parametrize("word", [" ", "   ", "\n"])
def test_a_word_of_spaces_alone_is_refused(byte_level: Tokenizer, word: str) -> None:
    message = "bad_words entries must tokenize to at least one token."
    assert fault(byte_level, ["ok", word]) == message


def test_128_sequences_are_the_most(byte_level: Tokenizer) -> None:
    words = [f"z{index:03}" for index in range(129)]
    assert len(tokenize_bad_words(words[:128], byte_level, VOCABULARY_SIZE)) == 128
    assert fault(byte_level, words).startswith(
        "Too many bad words after tokenization: 129. The max number is 128."
    )


def test_both_forms_of_a_word_count(byte_level: Tokenizer) -> None:
    words = [f"do{index:02}" for index in range(65)]
    assert len(tokenize_bad_words(words[:64], byte_level, VOCABULARY_SIZE)) == 128
    assert fault(byte_level, words).startswith("Too many bad words after tokenization: 129.")


def test_a_token_that_the_model_does_not_have_is_refused(byte_level: Tokenizer) -> None:
    special = byte_level.backend.token_to_id("<|start|>")
    assert tokenize_bad_words(["<|start|>"], byte_level, special + 1)[0] == [special]
    assert fault(byte_level, ["<|start|>"], special).startswith(
        f"The model vocabulary size is {special}, but the following tokens were specified as bad: "
        f"[{special}]. All token id values should be integers satisfying: 0 <= token_id <= "
        f"{special - 1}."
    )


def test_more_tokens_than_the_engine_has_room_for_are_refused(byte_level: Tokenizer) -> None:
    assert len(byte_level.encode("z" * MAX_TOKENS)) == MAX_TOKENS
    tokenize_bad_words(["z" * MAX_TOKENS], byte_level, VOCABULARY_SIZE)
    assert fault(byte_level, ["z" * MAX_TOKENS, "q"]).startswith(
        "bad_words must have at most 1024 tokens together, got 1025."
    )


def test_no_words_are_no_tokens(byte_level: Tokenizer) -> None:
    assert tokenize_bad_words([], byte_level, VOCABULARY_SIZE) == []


def lowered(byte_level: Tokenizer, words: list[str]):
    model = TextModel(byte_level, 32, VOCABULARY_SIZE, SamplingDefaults())
    sampling = SamplingOptions(bad_words=words)
    return lower(TextRequest(request_id="x", prompt="a", sampling=sampling), 1, model)


def test_the_engine_gets_the_tokens_of_every_word_once(byte_level: Tokenizer) -> None:
    zz, qq = byte_level.encode("zz"), byte_level.encode("qq")
    params = lowered(byte_level, ["zz", "qq", "zz"]).sampling_params
    assert params.bad_words_token_ids == [zz, qq]
    assert lowered(byte_level, []).sampling_params.bad_words_token_ids is None


def test_an_empty_word_is_refused_with_the_other_parameters(byte_level: Tokenizer) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        lowered(byte_level, ["a", ""])
    assert str(caught.value) == "bad_words cannot contain an empty string. Got bad_words=['a', '']"
    assert caught.value.parameter is None
