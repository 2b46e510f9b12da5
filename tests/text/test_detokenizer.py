from collections.abc import Sequence

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.decoders import DecodeStream

from umbel_text.detokenizer import LONGEST_WAIT, Detokenizer, left_context
from umbel_text.token_texts import REPLACEMENT
from umbel_text.tokenizer import Tokenizer

seeds = st.lists(st.integers(0, 1_000_000), max_size=40)
texts = st.text(
    st.one_of(st.characters(codec="utf-8"), st.sampled_from("the 学字🎉é \n")), max_size=30
).filter(lambda text: not {REPLACEMENT, "▁", "<"} & {*text})


def ids_from(tokenizer: Tokenizer, seeds: Sequence[int]) -> list[int]:
    """Any token ids; half of them bytes, where the tokenizer has bytes."""
    backend = tokenizer.backend
    some_bytes = [
        token_id
        for byte in b"\xe5\xad\x97\xf0\x9f\x8e\x89\xff a"
        for content in (f"<0x{byte:02X}>",)
        if (token_id := backend.token_to_id(content)) is not None
    ]
    # One id beyond the vocabulary: a model may have more ids than its tokenizer.
    size = tokenizer.max_token_id + 2
    return [
        some_bytes[seed // 2 % len(some_bytes)] if some_bytes and seed % 2 else seed // 2 % size
        for seed in seeds
    ]


def detokenize(
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    output: Sequence[int],
    skip_special_tokens: bool = True,
    spaces_between_special_tokens: bool = True,
) -> list[str]:
    context = left_context(tokenizer, prompt, skip_special_tokens)
    detokenizer = Detokenizer(tokenizer, context, spaces_between_special_tokens)
    return [*(detokenizer.feed(token_id) for token_id in output), detokenizer.finish()]


def detokenize_with_whole_prompt(
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    output: Sequence[int],
    skip_special_tokens: bool,
    spaces_between_special_tokens: bool,
) -> list[str]:
    """The rules of vllm/v1/engine/detokenizer.py, with the library's own stream."""
    stream = DecodeStream(ids=list(prompt), skip_special_tokens=skip_special_tokens)
    added = {} if skip_special_tokens or spaces_between_special_tokens else tokenizer.added_tokens
    pieces = []
    after_added = False
    for token_id in output:
        try:
            text = stream.step(tokenizer.backend, token_id)
        except Exception as error:
            if not str(error).startswith("Invalid prefix"):
                raise
            stream = DecodeStream(skip_special_tokens=skip_special_tokens)
            text = stream.step(tokenizer.backend, token_id)
        if token_id in added and after_added:
            text = added[token_id]
        after_added = token_id in added
        pieces.append(text or "")
    return [*pieces, ""]


@given(seeds, seeds, st.booleans(), st.booleans())
def test_the_end_of_a_prompt_gives_the_same_text_as_all_of_it(
    tokenizer: Tokenizer,
    prompt_seeds: list[int],
    output_seeds: list[int],
    skip_special_tokens: bool,
    spaces_between_special_tokens: bool,
) -> None:
    prompt = ids_from(tokenizer, prompt_seeds)
    while tokenizer.decode(prompt, skip_special_tokens).endswith(REPLACEMENT):
        prompt.pop()
    output = ids_from(tokenizer, output_seeds)
    how = (skip_special_tokens, spaces_between_special_tokens)
    assert detokenize(tokenizer, prompt, output, *how) == detokenize_with_whole_prompt(
        tokenizer, prompt, output, *how
    )


@given(texts, texts)
def test_the_tokens_of_a_text_give_that_text_back(
    byte_tokenizer: Tokenizer, prompt_text: str, text: str
) -> None:
    prompt = byte_tokenizer.encode("The prompt." + prompt_text, add_special_tokens=False)
    whole = byte_tokenizer.encode("The prompt." + prompt_text + "|" + text)
    if whole[: len(prompt)] == prompt:
        pieces = detokenize(byte_tokenizer, prompt, whole[len(prompt) :])
        assert "".join(pieces) == "|" + text


@given(texts.filter(bool), st.integers(1, 3), texts)
def test_a_prompt_that_ends_within_a_character_is_not_repeated(
    byte_tokenizer: Tokenizer, before: str, cut: int, after: str
) -> None:
    prompt = byte_tokenizer.encode("A long prompt: " + before + "🎉", add_special_tokens=False)
    rest = byte_tokenizer.encode("🎉" + after, add_special_tokens=False)
    first = byte_tokenizer.encode("🎉", add_special_tokens=False)
    if prompt[-4:] == first[-4:] and rest[: len(first)] == first and len(first) >= 4:
        output = [*prompt[len(prompt) - cut :], *rest[len(first) :]]
        pieces = detokenize(byte_tokenizer, prompt[:-cut], output)
        assert "".join(pieces) == "🎉" + after
        assert pieces[:cut] == [*[""] * (cut - 1), "🎉"]


@pytest.mark.parametrize("ending", ["\N{REPLACEMENT CHARACTER}", "\N{REPLACEMENT CHARACTER}" * 20])
def test_a_prompt_that_ends_with_replacement_characters_does_not_leak(
    byte_tokenizer: Tokenizer, ending: str
) -> None:
    prompt = byte_tokenizer.encode("What is this: " + ending)
    output = byte_tokenizer.encode("the answer", add_special_tokens=False)
    text = "".join(detokenize(byte_tokenizer, prompt, output))
    assert text.strip() == "the answer"
    output = byte_tokenizer.encode("学", add_special_tokens=False)[-3:]
    assert "".join(detokenize(byte_tokenizer, prompt, output)) == "学"


def test_an_unfinished_character_of_the_prompt_is_not_shown_when_it_stays_so(
    byte_tokenizer: Tokenizer,
) -> None:
    prompt = byte_tokenizer.encode("What is this: 学")[:-1]
    output = byte_tokenizer.encode("other words", add_special_tokens=False)
    assert "".join(detokenize(byte_tokenizer, prompt, output)).strip() == "other words"


def test_no_prompt_is_a_context_too(byte_level: Tokenizer) -> None:
    output = byte_level.encode("学 and more")
    assert "".join(detokenize(byte_level, [], output)) == "学 and more"


def test_an_incomplete_character_at_the_end_gives_nothing(byte_level: Tokenizer) -> None:
    output = byte_level.encode("ok 学")[:-1]
    assert "".join(detokenize(byte_level, [], output)) == "ok "


def test_bytes_that_are_no_character_do_not_stop_the_text(byte_fallback: Tokenizer) -> None:
    lead = byte_fallback.backend.token_to_id("<0xE5>")
    assert lead is not None
    good = byte_fallback.encode("学", add_special_tokens=False)[-3:]
    words = byte_fallback.encode("the words", add_special_tokens=False)
    text = "".join(detokenize(byte_fallback, [], [*good, lead, *words, *words]))
    assert text == "学the words the words"


def test_special_tokens_are_skipped_or_shown(byte_level: Tokenizer) -> None:
    start, end = (byte_level.backend.token_to_id(token) for token in ("<|start|>", "<|end|>"))
    assert start is not None
    assert end is not None
    words = byte_level.encode("hi")
    assert detokenize(byte_level, [], [start, *words, end]) == ["", *"hi", "", ""]
    shown = "".join(detokenize(byte_level, [], [start, *words, end], skip_special_tokens=False))
    assert shown == "<|start|>hi<|end|>"


def test_no_spaces_come_between_added_tokens_when_they_are_not_wanted(
    word_level: Tokenizer,
) -> None:
    ids = [
        word_level.backend.token_to_id(token) for token in ("<|start|>", "<tool>", "the", "<tool>")
    ]
    spaced = detokenize(word_level, [], ids, skip_special_tokens=False)
    assert "".join(spaced) == "<|start|> <tool> the <tool>"
    tight = detokenize(word_level, [], ids, False, spaces_between_special_tokens=False)
    assert "".join(tight) == "<|start|><tool> the <tool>"


def test_an_id_that_cannot_be_a_token_gives_nothing(byte_level: Tokenizer) -> None:
    words = byte_level.encode("hi")
    assert detokenize(byte_level, words, [-1, 2**40, *words]) == ["", "", *"hi", ""]


def test_the_context_is_short_however_long_the_prompt(tokenizer: Tokenizer) -> None:
    prompt = tokenizer.encode("The quick brown fox jumps over the lazy dog. " * 500)
    assert len(left_context(tokenizer, prompt).token_ids) <= 8


def lone_bytes(tokenizer: Tokenizer) -> list[int]:
    """The tokens that stand for a byte that is no character by itself."""
    every = range(tokenizer.max_token_id + 1)
    return [token_id for token_id in every if REPLACEMENT in tokenizer.decode([token_id])]


@given(st.data())
def test_a_long_run_of_bytes_reads_as_if_it_were_decoded_as_a_whole(
    byte_level: Tokenizer, data: st.DataObject
) -> None:
    bytes_ = st.sampled_from(lone_bytes(byte_level))
    runs = st.lists(
        st.tuples(st.lists(bytes_, min_size=1, max_size=5), st.integers(1, 40)), max_size=4
    )
    prompt = byte_level.encode("a") + data.draw(st.lists(bytes_, max_size=2))
    output: list[int] = []
    for run, times in data.draw(runs):
        output += [*run * times, *byte_level.encode(data.draw(st.sampled_from(["", "b", "学"])))]
    # An id that is no token, and one that cannot be, have no text wherever they stand.
    output.insert(len(output) // 2, byte_level.max_token_id + 1)
    pieces = detokenize(byte_level, prompt, output)
    if not byte_level.decode(prompt).endswith(REPLACEMENT):
        whole = detokenize_with_whole_prompt(byte_level, prompt, output, True, True)
        assert pieces == whole
    assert all(not piece.endswith(REPLACEMENT) for piece in pieces)


class CountingBackend:
    """A tokenizer's backend, or a stream of it, that counts the tokens it decodes."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend
        self.decoded = 0

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        self.decoded += len(token_ids)
        return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)


@pytest.mark.parametrize("prompt", ["a", "学"])
def test_bytes_that_never_become_a_character_are_not_decoded_again_and_again(
    byte_level: Tokenizer, monkeypatch: pytest.MonkeyPatch, prompt: str
) -> None:
    prompt_token_ids = byte_level.encode(prompt)
    if prompt == "学":
        prompt_token_ids.pop()
    context = left_context(byte_level, prompt_token_ids)
    counting = CountingBackend(byte_level.backend)
    monkeypatch.setattr(byte_level, "backend", counting)
    detokenizer = Detokenizer(byte_level, context)
    lone = byte_level.encode("学")[0]
    length = 10_000
    text = "".join(detokenizer.feed(lone) for _ in range(length))
    assert text == ""
    assert detokenizer.feed(byte_level.encode("b")[0]).endswith(REPLACEMENT + "b")
    assert counting.decoded < 6 * length


def test_a_stream_of_the_library_begins_anew_when_no_text_comes(
    byte_fallback: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[list[int]] = []

    def stream(ids: list[int], skip_special_tokens: bool) -> DecodeStream:
        begun.append(ids)
        return DecodeStream(ids=ids, skip_special_tokens=skip_special_tokens)

    monkeypatch.setattr("umbel_text.detokenizer.DecodeStream", stream)
    lone = byte_fallback.backend.token_to_id("<0xE5>")
    assert lone is not None
    words = byte_fallback.encode("the words", add_special_tokens=False)
    length = 10 * LONGEST_WAIT
    pieces = detokenize(byte_fallback, words, [*words, *[lone] * length, *words, *words])
    assert begun[1:] == [[lone]] * 10
    text = "".join(pieces)
    assert text.startswith(("the words", " the words"))
    assert text.endswith("the words the words")
