"""A prompt that is longer than wanted is cut, at the side that was asked for."""

from collections.abc import Callable

import msgspec
import pytest
from tokenizers import processors

from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.lowering import LoweredRequest, lower
from umbel_text.model import TextModel
from umbel_text.request import SamplingOptions, TextRequest
from umbel_text.tokenizer import SpecialTokens, Tokenizer

MAX_MODEL_LEN = 8

Lowered = Callable[..., LoweredRequest]


@pytest.fixture(scope="session")
def model(byte_level: Tokenizer) -> TextModel:
    return TextModel(byte_level, MAX_MODEL_LEN, 500, SamplingDefaults())


@pytest.fixture(scope="session")
def enclosing(byte_level: Tokenizer) -> TextModel:
    """A model whose prompts stand between two special tokens, and whose offsets leave out spaces."""
    backend = type(byte_level.backend).from_str(byte_level.backend.to_str())
    start, end = (backend.token_to_id(name) for name in ("<|start|>", "<|end|>"))
    backend.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=True),
            processors.TemplateProcessing(
                single="<|start|> $A <|end|>",
                special_tokens=[("<|start|>", start), ("<|end|>", end)],
            ),
        ]
    )
    return TextModel(Tokenizer(backend, SpecialTokens({})), MAX_MODEL_LEN, 500, SamplingDefaults())


def make_request(prompt: str | list[int], max_tokens: int | None = 1, **fields: object):
    sampling = SamplingOptions(max_tokens=max_tokens)
    return TextRequest(request_id="x", prompt=prompt, sampling=sampling, **fields)


def kept(model: TextModel, prompt: str | list[int], size: int | None, **fields: object):
    """The token ids that stay of a prompt."""
    request = make_request(prompt, truncate_prompt_tokens=size, **fields)
    return lower(request, 1, model).prompt_token_ids


def fault(model: TextModel, prompt: str | list[int], size: int | None, **fields: object):
    with pytest.raises(InvalidRequestError) as caught:
        kept(model, prompt, size, **fields)
    return str(caught.value)


@pytest.mark.parametrize(
    ("side", "expected"), [(None, [3, 4, 5]), ("left", [3, 4, 5]), ("right", [1, 2, 3])]
)
def test_token_ids_are_cut_to_the_size_at_the_side_that_was_asked_for(
    model: TextModel, side: str | None, expected: list[int]
) -> None:
    assert kept(model, [1, 2, 3, 4, 5], 3, truncation_side=side) == expected


@pytest.mark.parametrize("side", [None, "left", "right"])
def test_text_is_cut_after_it_was_tokenized(model: TextModel, side: str | None) -> None:
    text = "The quick brown fox jumps over the lazy dog"
    whole = model.tokenizer.encode(text)
    assert len(whole) > MAX_MODEL_LEN
    expected = whole[:5] if side == "right" else whole[-5:]
    assert kept(model, text, 5, truncation_side=side) == expected


@pytest.mark.parametrize("size", [None, 5, 7, -1])
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_prompt_that_is_short_enough_stays_as_it_is(
    model: TextModel, size: int | None, side: str | None
) -> None:
    assert kept(model, [1, 2, 3, 4, 5], size, truncation_side=side) == [1, 2, 3, 4, 5]
    ids = model.tokenizer.encode("xyz")
    assert len(ids) == 3
    assert kept(model, "xyz", size, truncation_side=side) == ids


def test_added_special_tokens_count_and_stay_unless_a_side_was_asked_for(
    enclosing: TextModel,
) -> None:
    start, *inner, end = enclosing.tokenizer.encode("abcdef")
    assert inner == enclosing.tokenizer.encode("abcdef", add_special_tokens=False)
    assert kept(enclosing, "abcdef", 4) == [start, *inner[-2:], end]
    assert kept(enclosing, "abcdef", 4, truncation_side="left") == [*inner[-3:], end]
    assert kept(enclosing, "abcdef", 4, truncation_side="right") == [start, *inner[:3]]
    assert kept(enclosing, "abcdef", 4, add_special_tokens=False) == inner[-4:]
    # There is no room for both; of them, too, the last ones stay.
    assert kept(enclosing, "abcdef", 1) == [end]


def test_a_special_token_that_a_client_wrote_is_cut_like_any_other(enclosing: TextModel) -> None:
    start, *inner, end = enclosing.tokenizer.encode("<|end|>abc<|start|>")
    assert kept(enclosing, "<|end|>abc<|start|>", 4) == [start, *inner[-2:], end]
    assert inner[-1] == start


@pytest.mark.parametrize("prompt", [[1] * 20, "x" * 20])
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_minus_one_leaves_room_for_one_token_of_output(
    model: TextModel, prompt: str | list[int], side: str | None
) -> None:
    request = make_request(prompt, 5, truncate_prompt_tokens=-1, truncation_side=side)
    lowered = lower(request, 1, model)
    assert len(lowered.prompt_token_ids) == MAX_MODEL_LEN - 1
    assert lowered.sampling_params.max_tokens == 1
    without_limit = msgspec.structs.replace(request, sampling=SamplingOptions())
    assert len(lower(without_limit, 1, model).prompt_token_ids) == MAX_MODEL_LEN - 1


def test_a_prompt_cut_to_the_whole_context_leaves_no_room_for_output(model: TextModel) -> None:
    message = "max_tokens must be at least 1, got 0."
    assert fault(model, [1] * 20, MAX_MODEL_LEN) == message
    assert fault(model, [1] * 20, -1, max_tokens=0) == message


@pytest.mark.parametrize("prompt", [[1, 2, 3], "abc"])
@pytest.mark.parametrize("side", [None, "left", "right"])
def test_a_prompt_cut_to_nothing_is_refused(
    model: TextModel, prompt: str | list[int], side: str | None
) -> None:
    message = fault(model, prompt, 0, truncation_side=side)
    assert message == "The decoder prompt cannot be empty"


def test_a_size_beyond_the_context_is_refused_before_anything_is_tokenized(
    model: TextModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "encode", pytest.fail)
    monkeypatch.setattr(Tokenizer, "encode_end", pytest.fail)
    assert fault(model, "abc", 9) == (
        "truncate_prompt_tokens=9 cannot be greater than max_model_len = 8. Please request a "
        "smaller truncation size."
    )


@pytest.mark.parametrize("side", ["left", "right"])
def test_of_a_very_long_text_no_more_is_tokenized_than_could_fit(
    model: TextModel, monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    characters = MAX_MODEL_LEN * model.tokenizer.max_characters_per_token
    text = "a" * 3 + "x" * characters + "b" * 3
    tokenized: list[str] = []
    encode = Tokenizer.encode

    def watched(self: Tokenizer, text: str, add_special_tokens: bool = True) -> list[int]:
        tokenized.append(text)
        return encode(self, text, add_special_tokens)

    monkeypatch.setattr(Tokenizer, "encode", watched)
    kept(model, text, 4, truncation_side=side)
    expected = text[-characters:] if side == "left" else text[:characters]
    assert tokenized == [expected]


def offsets(model: TextModel, prompt: str | list[int], size: int | None = None, **fields: object):
    request = make_request(prompt, truncate_prompt_tokens=size, return_token_offsets=True, **fields)
    lowered = lower(request, 1, model)
    if lowered.token_offsets is not None:
        assert len(lowered.token_offsets) == len(lowered.prompt_token_ids)
    return lowered.token_offsets


def test_offsets_are_the_places_of_the_tokens_in_characters(enclosing: TextModel) -> None:
    # Of the token " the" the space does not count, and added tokens have no place.
    assert len(enclosing.tokenizer.encode("\u00e9 the", add_special_tokens=False)) == 3
    expected = [(0, 0), (0, 1), (0, 1), (2, 5), (0, 0)]
    assert offsets(enclosing, "\u00e9 the") == expected
    assert offsets(enclosing, "\u00e9 the", -1) == expected
    assert offsets(enclosing, "\u00e9 the", add_special_tokens=False) == expected[1:4]


@pytest.mark.parametrize(
    ("side", "expected"),
    [
        (None, [(0, 0), (3, 4), (0, 0)]),
        ("left", [(2, 3), (3, 4), (0, 0)]),
        ("right", [(0, 0), (0, 1), (1, 2)]),
    ],
)
def test_offsets_are_cut_like_their_tokens(
    enclosing: TextModel, side: str | None, expected: list[tuple[int, int]]
) -> None:
    assert offsets(enclosing, "wxyz", 3, truncation_side=side) == expected


def test_offsets_count_from_the_start_of_a_text_whose_start_was_not_tokenized(
    model: TextModel,
) -> None:
    text = "x" * (MAX_MODEL_LEN * model.tokenizer.max_characters_per_token + 50)
    last = offsets(model, text, 4, truncation_side="left")
    assert last is not None
    assert last[-1][1] == len(text)
    assert [text[start:end] for start, end in last] == ["x"] * 4


def test_a_prompt_in_token_ids_has_no_offsets(model: TextModel) -> None:
    assert offsets(model, [1, 2, 3]) is None


def test_offsets_that_were_not_asked_for_are_not_there(model: TextModel) -> None:
    assert lower(make_request("abc"), 1, model).token_offsets is None
