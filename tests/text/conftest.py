from collections.abc import Callable
from pathlib import Path

import pytest
import tokenizers
from hypothesis import settings
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from umbel_text.tokenizer import SpecialTokens, Tokenizer

# Shared machines stall now and then; nothing here is about time.
settings.register_profile("umbel", deadline=None, database=None)
settings.load_profile("umbel")

CORPUS = [
    "One prompt, n answers. The answers grow side by side, word by word.",
    "The quick brown fox jumps over the lazy dog, and the dog does not mind.",
    "Ein Wörterbuch für Grüße. ďábelské ódy, naïve café.",
    "学字 東京 人工知能 你好世界。",
    "🎉🎊 👩‍👩‍👧 ok 👍🏽 stop STOP stopping",
]

MARKER = "▁"

SPECIAL = ["<|start|>", "<|end|>"]


def add_tokens(backend: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    backend.add_special_tokens([AddedToken(content, special=True) for content in SPECIAL])
    backend.add_tokens([AddedToken("<tool>", normalized=False)])
    return backend


def make_byte_level() -> tokenizers.Tokenizer:
    """Every byte is a token; common words are, too."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    backend.train_from_iterator(CORPUS[:3], trainer)
    return add_tokens(backend)


def make_byte_fallback() -> tokenizers.Tokenizer:
    """The Llama 2 style: marked spaces, characters out of the vocabulary as runs of bytes."""
    characters = sorted({*"".join(CORPUS[:3])} - {" "})
    pieces = [MARKER, *characters, MARKER + "t", "th", MARKER + "th", MARKER * 2, "er"]
    tokens = ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    backend = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: index for index, token in enumerate(tokens)},
            merges=[(MARKER, "t"), ("t", "h"), (MARKER + "t", "h"), (MARKER, MARKER), ("e", "r")],
            byte_fallback=True,
            unk_token="<unk>",
            fuse_unk=True,
        )
    )
    backend.pre_tokenizer = pre_tokenizers.Metaspace(MARKER, prepend_scheme="first", split=False)
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace(MARKER, " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(content=" ", left=1),
        ]
    )
    return add_tokens(backend)


def make_word_level() -> tokenizers.Tokenizer:
    """Words joined by spaces, without a decoder."""
    words = sorted({word for text in CORPUS for word in text.split()})
    backend = tokenizers.Tokenizer(
        models.WordLevel({word: index for index, word in enumerate(["?", *words])}, unk_token="?")
    )
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return add_tokens(backend)


BACKENDS: dict[str, Callable[[], tokenizers.Tokenizer]] = {
    "byte_level": make_byte_level,
    "byte_fallback": make_byte_fallback,
    "word_level": make_word_level,
}


def wrap(backend: tokenizers.Tokenizer) -> Tokenizer:
    return Tokenizer(backend, SpecialTokens({"bos_token": SPECIAL[0], "eos_token": SPECIAL[1]}))


@pytest.fixture(scope="session", params=list(BACKENDS))
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A small tokenizer of each kind."""
    return wrap(BACKENDS[request.param]())


@pytest.fixture(scope="session", params=["byte_level", "byte_fallback"])
def byte_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A small tokenizer of each kind that has tokens smaller than characters."""
    return wrap(BACKENDS[request.param]())


@pytest.fixture(scope="session")
def byte_level() -> Tokenizer:
    return wrap(make_byte_level())


@pytest.fixture(scope="session")
def byte_fallback() -> Tokenizer:
    return wrap(make_byte_fallback())


@pytest.fixture(scope="session")
def word_level() -> Tokenizer:
    return wrap(make_word_level())


class ModelFolder:
    """A model's folder with a tokenizer, to which a test adds files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        make_byte_level().save(str(path / "tokenizer.json"))

    def write(self, name: str, content: str) -> None:
        (self.path / name).write_text(content, encoding="utf-8")


@pytest.fixture
def model_folder(tmp_path: Path) -> ModelFolder:
    return ModelFolder(tmp_path)
