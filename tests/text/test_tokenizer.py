import json
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, processors

from umbel_text.errors import (
    InvalidRequestError,
    InvalidTextError,
    ModelFilesError,
    ModelNotFoundError,
)
from umbel_text.tokenizer import Tokenizer, read_model_vocabulary_size, resolve_model_folder


@given(st.text(st.characters(codec="utf-8")))
def test_a_text_comes_back_from_its_tokens(byte_level: Tokenizer, text: str) -> None:
    ids = byte_level.encode(text)
    assert byte_level.decode(ids, skip_special_tokens=False) == text
    assert all(byte_level.is_known(token_id) for token_id in ids)


def test_special_tokens_in_a_text_are_tokens(byte_level: Tokenizer) -> None:
    ids = byte_level.encode("<|start|>a<tool>")
    assert [byte_level.is_special(token_id) for token_id in ids] == [True, False, False]
    assert byte_level.decode(ids) == "a<tool>"
    assert byte_level.decode(ids, skip_special_tokens=False) == "<|start|>a<tool>"
    assert byte_level.added_tokens[ids[2]] == "<tool>"


def test_special_tokens_are_added_when_they_are_asked_for(model_folder: Any) -> None:
    backend = Tokenizer.from_folder(model_folder.path).backend
    start = backend.token_to_id("<|start|>")
    backend.post_processor = processors.TemplateProcessing(
        single="<|start|> $A", special_tokens=[("<|start|>", start)]
    )
    backend.save(str(model_folder.path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.encode("a", add_special_tokens=True)[0] == start
    assert tokenizer.encode("a", add_special_tokens=False)[0] != start


def test_a_lone_surrogate_is_refused_in_the_tokenizers_words(byte_level: Tokenizer) -> None:
    message = (
        "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
    )
    with pytest.raises(InvalidTextError) as caught:
        byte_level.encode("a\ud800b")
    assert str(caught.value) == message
    assert isinstance(caught.value, InvalidRequestError)
    assert caught.value.parameter is None


def test_an_id_that_is_no_32_bit_number_is_refused(byte_level: Tokenizer) -> None:
    for token_id in (-1, 2**32, 2**63):
        with pytest.raises(InvalidRequestError):
            byte_level.decode([token_id])


def test_truncation_and_padding_of_the_file_do_not_apply(model_folder: Any) -> None:
    backend = Tokenizer.from_folder(model_folder.path).backend
    backend.enable_truncation(4)
    backend.enable_padding(length=64)
    backend.save(str(model_folder.path / "tokenizer.json"))
    text = "words " * 100
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert len(tokenizer.encode("a")) == 1


def test_other_threads_run_while_a_text_is_encoded(byte_level: Tokenizer) -> None:
    texts = [f"{index} words and more " * 2000 for index in range(4)]
    expected = [byte_level.encode(text) for text in texts]
    barrier = threading.Barrier(len(texts))

    def encode(text: str) -> list[int]:
        barrier.wait()
        return byte_level.encode(text)

    with ThreadPoolExecutor(len(texts)) as pool:
        assert list(pool.map(encode, texts)) == expected


def test_sizes_are_those_of_the_vocabulary(byte_level: Tokenizer) -> None:
    vocabulary = byte_level.backend.get_vocab()
    assert byte_level.max_token_id == max(vocabulary.values())
    assert byte_level.max_characters_per_token == max(map(len, vocabulary))
    assert not byte_level.is_known(byte_level.max_token_id + 1)
    assert not byte_level.is_known(-1)


def test_the_text_of_a_token_is_what_it_decodes_to_by_itself(byte_level: Tokenizer) -> None:
    (end,) = byte_level.encode("<|end|>")
    assert byte_level.token_text(end) == "<|end|>"
    assert byte_level.token_text(byte_level.encode("学")[0]) == "\N{REPLACEMENT CHARACTER}"
    assert byte_level.token_text(byte_level.max_token_id + 1) == ""
    assert byte_level.token_text(-1) == ""


def test_pieces_are_tokens_as_they_stand_in_the_vocabulary(
    byte_level: Tokenizer, byte_fallback: Tokenizer
) -> None:
    ids = byte_level.encode("\u00df<|end|>")
    assert byte_level.pieces(ids) == ["\u00c3", "\u0141", "<|end|>"]
    pieces = byte_fallback.pieces(byte_fallback.encode("th\u5b66"))
    assert pieces == ["\u2581th", "<0xE5>", "<0xAD>", "<0xA6>"]
    for token_id in (-1, byte_level.max_token_id + 1, 2**64):
        assert byte_level.pieces([token_id]) == [""]


def test_a_space_that_decoding_drops_is_put_back(byte_fallback: Tokenizer) -> None:
    backend = byte_fallback.backend
    for token, text in (("▁", " "), ("▁▁", "  "), ("▁th", " th"), ("th", "th")):
        token_id = backend.token_to_id(token)
        assert token_id is not None
        assert byte_fallback.token_text(token_id) == text


def test_the_config_is_kept(model_folder: Any) -> None:
    assert Tokenizer.from_folder(model_folder.path).config == {}
    config = {"tokenizer_class": "Qwen2TokenizerFast", "eos_token": "<|end|>", "padding": None}
    model_folder.write("tokenizer_config.json", json.dumps(config))
    assert Tokenizer.from_folder(model_folder.path).config == config


def test_special_tokens_are_named_by_the_config(model_folder: Any) -> None:
    model_folder.write(
        "tokenizer_config.json",
        json.dumps(
            {
                "bos_token": None,
                "eos_token": {"content": "<|end|>", "lstrip": False},
                "pad_token": "<|pad|>",
                "add_bos_token": False,
                "additional_special_tokens": ["<tool>"],
                "image_token": "<image>",
            }
        ),
    )
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.special_tokens == {"eos_token": "<|end|>", "pad_token": "<|pad|>"}
    assert tokenizer.eos_token_id == tokenizer.backend.token_to_id("<|end|>")
    ids = tokenizer.encode("<|end|><|pad|><tool><image>")
    assert len(ids) == 4
    assert all(tokenizer.is_special(token_id) for token_id in ids)
    assert tokenizer.decode(ids) == ""


def test_special_tokens_that_no_file_names_are_those_of_the_class(model_folder: Any) -> None:
    backend = Tokenizer.from_folder(model_folder.path).backend
    model_folder.write("tokenizer_config.json", '{"tokenizer_class": "GPT2Tokenizer"}')
    assert Tokenizer.from_folder(model_folder.path).special_tokens == {}
    backend.add_tokens(["<|endoftext|>"])
    backend.save(str(model_folder.path / "tokenizer.json"))
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.eos_token_id == backend.token_to_id("<|endoftext|>")
    model_folder.write(
        "tokenizer_config.json", '{"tokenizer_class": "GPT2TokenizerFast", "eos_token": "<|end|>"}'
    )
    assert Tokenizer.from_folder(model_folder.path).special_tokens["eos_token"] == "<|end|>"


def test_the_older_files_name_special_tokens_too(model_folder: Any) -> None:
    model_folder.write("tokenizer_config.json", '{"eos_token": "<|start|>"}')
    model_folder.write("special_tokens_map.json", '{"eos_token": {"content": "<|end|>"}}')
    model_folder.write("added_tokens.json", '{"<extra>": 10000}')
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.special_tokens == {"eos_token": "<|end|>"}
    (extra,) = tokenizer.encode("<extra>")
    assert not tokenizer.is_special(extra)


def test_added_tokens_of_the_config_are_added_in_the_order_of_their_ids(model_folder: Any) -> None:
    first = Tokenizer.from_folder(model_folder.path).max_token_id + 1
    added = {
        str(first + 1): {"content": "<b>", "special": False},
        str(first): {"content": "<a>", "special": True},
        "0": {"content": "<|end|>", "special": True},
    }
    model_folder.write("tokenizer_config.json", json.dumps({"added_tokens_decoder": added}))
    tokenizer = Tokenizer.from_folder(model_folder.path)
    assert tokenizer.encode("<a><b>") == [first, first + 1]
    assert [tokenizer.is_special(first), tokenizer.is_special(first + 1)] == [True, False]


def test_a_llama_2_tokenizer_puts_one_space_at_the_beginning_only(
    tmp_path: Path, byte_fallback: Tokenizer
) -> None:
    backend = Tokenizer(byte_fallback.backend, _nothing()).backend
    backend.save(str(tmp_path / "tokenizer.json"))
    content = json.loads((tmp_path / "tokenizer.json").read_text())
    content["normalizer"] = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": "▁"},
            {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        ],
    }
    content["pre_tokenizer"] = None
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    text = "the<|end|>the"
    assert _tokens(tmp_path, text) == ["▁th", "e", "<|end|>", "▁th", "e"]
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    config = tmp_path / "tokenizer_config.json"
    config.write_text('{"tokenizer_class": "LlamaTokenizerFast"}')
    assert _tokens(tmp_path, text) == ["▁th", "e", "<|end|>", "th", "e"]
    config.write_text('{"tokenizer_class": "LlamaTokenizer", "legacy": true}')
    assert _tokens(tmp_path, text) == ["▁th", "e", "<|end|>", "▁th", "e"]
    config.write_text('{"tokenizer_class": "LlamaTokenizer", "add_prefix_space": false}')
    assert _tokens(tmp_path, text) == ["th", "e", "<|end|>", "th", "e"]


def _nothing() -> Any:
    from umbel_text.tokenizer import SpecialTokens

    return SpecialTokens({})


def _tokens(folder: Path, text: str) -> list[str]:
    return Tokenizer.from_folder(folder).backend.encode(text).tokens


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelFilesError, match=r"has no tokenizer\.json"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    with pytest.raises(ModelFilesError, match="is not a tokenizer"):
        Tokenizer.from_folder(tmp_path)


def test_an_empty_vocabulary_is_no_reason_to_fail() -> None:
    import tokenizers

    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel()
    assert Tokenizer(backend, _nothing()).max_token_id == -1


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ('{"vocab_size": 49152}', 49152),
        ('{"vocab_size": 1, "text_config": {"vocab_size": 151936}}', 151936),
        ("{}", None),
        (None, None),
    ],
)
def test_the_models_vocabulary_size_is_that_of_its_config(
    tmp_path: Path, config: str | None, size: int | None
) -> None:
    if config is not None:
        (tmp_path / "config.json").write_text(config)
    assert read_model_vocabulary_size(tmp_path) == size


def test_a_folder_is_found_without_the_hub(tmp_path: Path) -> None:
    assert resolve_model_folder(str(tmp_path)) == tmp_path


def test_only_small_files_are_fetched_from_the_hub(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, str | None, list[str]]] = []

    def download(repo_id: str, *, revision: str | None, allow_patterns: list[str]) -> str:
        asked.append((repo_id, revision, allow_patterns))
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert resolve_model_folder("someone/model", "main") == tmp_path
    ((repo_id, revision, patterns),) = asked
    assert (repo_id, revision) == ("someone/model", "main")
    assert "tokenizer.json" in patterns
    assert not any("safetensors" in pattern for pattern in patterns)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (HFValidationError("bad name"), "neither a folder nor"),
        (LocalEntryNotFoundError("no"), "not in the hub's cache"),
        (OSError("404 Client Error.\n\nmore"), "cannot be fetched: 404 Client Error.$"),
    ],
)
def test_a_model_that_is_nowhere_is_named(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def download(*args: object, **options: object) -> str:
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    with pytest.raises(ModelNotFoundError, match=reason) as caught:
        resolve_model_folder("someone/model")
    assert "someone/model" in str(caught.value)
