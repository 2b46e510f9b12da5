"""The tokenizer of a model, read from its folder, and where that folder is found."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import TypeVar

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from umbel_text.encoders import encoder_of, fast_encoder_of
from umbel_text.errors import (
    InvalidRequestError,
    InvalidTextError,
    ModelFilesError,
    ModelNotFoundError,
)
from umbel_text.token_texts import TokenTexts, decodes_token_by_token

CACHED_TEXTS = 65536
"""How many tokens' own texts are kept; logprobs ask for the same ones again and again."""

MODEL_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template*",
    "additional_chat_templates/*",
)
"""What is fetched of a repository on the hub; the weights are the engine's business."""

SPECIAL_NAMES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
"""The special tokens with a name, as chat templates know them (transformers)."""


CLASS_DEFAULTS: Mapping[str, Mapping[str, str]] = {
    "GemmaTokenizer": {"bos_token": "<bos>", "eos_token": "<eos>", "mask_token": "<mask>"},
    "GPT2Tokenizer": dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>"),
    "LlamaTokenizer": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
    "Qwen2Tokenizer": dict.fromkeys(("eos_token", "pad_token", "unk_token"), "<|endoftext|>"),
}
"""Special tokens that transformers' classes have when no file says otherwise."""


def resolve_model_folder(model: str, revision: str | None = None) -> Path:
    """Find the folder with a model's tokenizer and configuration.

    `model` is a folder or a repository on the Hugging Face hub, whose small files are fetched into
    the hub's cache; with HF_HUB_OFFLINE set, only that cache is looked at.  Raises
    ModelNotFoundError when there is no such model or it cannot be fetched.
    """
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder
    # Takes a good part of the start-up time, and a model that is a folder does not need it.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=list(MODEL_FILES)))
    except HFValidationError as error:
        raise ModelNotFoundError(
            f"model {model!r} is neither a folder nor the name of a repository on the hub"
        ) from error
    except LocalEntryNotFoundError as error:
        raise ModelNotFoundError(
            f"model {model!r} is not in the hub's cache, and the hub is not to be reached"
        ) from error
    except (OSError, ValueError) as error:
        # All errors of a request to the hub are OSErrors; their first line says what it answered.
        reason = str(error).strip().split("\n", 1)[0]
        raise ModelNotFoundError(f"model {model!r} cannot be fetched: {reason}") from error


class Tokenizer:
    """Encodes and decodes as vLLM does with the tokenizer of the same model.

    It is read from `tokenizer.json`; `tokenizer_config.json` adds special tokens to it the way
    transformers does.  Every method may be called from any thread.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        special: "SpecialTokens",
        config: Mapping[str, object] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        special.add_to(backend)
        self.backend = backend
        """The tokenizer of the package `tokenizers`, for decoding streams."""
        self.config: Mapping[str, object] = MappingProxyType(dict(config or {}))
        """What `tokenizer_config.json` says, with the special tokens that its class has besides."""
        self.special_tokens = special.named
        """Special tokens by name ("bos_token"), as chat templates use them."""
        decoder = backend.get_added_tokens_decoder()
        self.added_tokens: Mapping[int, str] = {
            token_id: token.content for token_id, token in decoder.items()
        }
        """Tokens that stand beside the vocabulary proper, special or not."""
        self.skipped_ids = frozenset(
            token_id for token_id, token in decoder.items() if token.special
        )
        """The tokens that decoding leaves out when special tokens are skipped."""
        names = special.all
        self._special_ids = frozenset(
            token_id
            for token_id, token in decoder.items()
            if token.special or token.content in names
        )
        vocabulary = backend.get_vocab(with_added_tokens=True)
        self.max_token_id = max(vocabulary.values(), default=-1)
        """The highest token id; ids below it may be unused."""
        self.max_characters_per_token = max(map(len, vocabulary), default=0)
        """The length of the longest token, as it stands in the vocabulary."""
        eos_token = self.special_tokens.get("eos_token")
        self.eos_token_id = None if eos_token is None else backend.token_to_id(eos_token)
        """The token that ends a sequence; None when the model's files name none."""
        self._encode = encoder_of(backend)
        self._texts: Mapping[bool, TokenTexts] = {}
        if decodes_token_by_token(backend):
            self._texts = {skips: TokenTexts(backend, skips) for skips in (False, True)}
        self._space_marker = _space_marker(backend)
        self._cached_text = lru_cache(CACHED_TEXTS)(self._text)

    @classmethod
    def from_folder(cls, folder: Path) -> "Tokenizer":
        """Read the tokenizer of a model; raises ModelFilesError when that is not possible."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelFilesError(f"{folder} has no tokenizer.json")
        try:
            backend = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:
            raise ModelFilesError(f"{path} is not a tokenizer: {error}") from error
        config = read_json(folder / "tokenizer_config.json")
        if _is_rebuilt_by_transformers(backend, config, read_json(folder / "config.json")):
            _rebuild_as_llama(backend, config)
        class_name = str(config.get("tokenizer_class")).removesuffix("Fast")
        for name, token in CLASS_DEFAULTS.get(class_name, {}).items():
            if backend.token_to_id(token) is not None:
                config.setdefault(name, token)
        return cls(backend, SpecialTokens(config, folder), config)

    def use_fastokens(self) -> bool:
        """Encode with the package fastokens from now on; says whether that is so.

        It must be installed and give the same tokens for a number of texts.  Loading a large
        vocabulary takes it half a second, in which other threads run, and may encode.
        """
        fast = fast_encoder_of(self.backend)
        if fast is not None:
            self._encode = fast
        return fast is not None

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Give the token ids of a text; other threads run meanwhile.

        Raises InvalidTextError for a text with lone surrogates.
        """
        try:
            return self._encode(text, add_special_tokens)
        except (TypeError, UnicodeEncodeError) as error:
            raise InvalidTextError from error

    def encode_end(
        self, text: str, add_special_tokens: bool = True, keep: int | None = None
    ) -> tuple[list[int], list[tuple[int, int]]]:
        """Give the last `keep` token ids of a text and the place of each in it, in characters.

        The special tokens that are added count, and stay whatever is cut off.  Raises
        InvalidTextError for a text with lone surrogates.
        """
        try:
            (encoding,) = self.backend.encode_batch([text], add_special_tokens=add_special_tokens)
        except TypeError as error:
            raise InvalidTextError from error
        ids, offsets = encoding.ids, encoding.offsets
        surplus = 0 if keep is None else len(ids) - keep
        if surplus <= 0:
            return ids, offsets
        # What is added stands around the text, and is marked; what the text itself says is not.
        added = encoding.special_tokens_mask
        start = added.index(0) if 0 in added else 0
        cut = min(surplus, added.count(0))
        rest, stop = surplus - cut, start + cut
        return (ids[:start] + ids[stop:])[rest:], (offsets[:start] + offsets[stop:])[rest:]

    def decode(self, token_ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Give the text of tokens; ids that are no tokens have none.

        Raises InvalidRequestError for an id that is not an unsigned 32-bit number.
        """
        try:
            return self.backend.decode(token_ids, skip_special_tokens=skip_special_tokens)
        except OverflowError as error:
            raise InvalidRequestError(str(error)) from error

    def token_texts(self, skip_special_tokens: bool = True) -> TokenTexts | None:
        """Give the texts of single tokens; None where decoding does not go token by token."""
        return self._texts.get(skip_special_tokens)

    def token_text(self, token_id: int) -> str:
        """Give the text of one token by itself, special or not.

        A decoder that drops the space before a first word has it restored here
        (vllm/tokenizers/detokenizer_utils.py).  An id that is no token has the text "".
        """
        return self._cached_text(token_id)

    def _text(self, token_id: int) -> str:
        if not 0 <= token_id <= self.max_token_id:
            return ""
        text: str = self.backend.decode([token_id], skip_special_tokens=False)
        token = self.backend.id_to_token(token_id)
        if self._space_marker is None or token is None:
            return text
        spaces = len(token) - len(token.lstrip(self._space_marker))
        return " " * (spaces - (len(text) - len(text.lstrip(" ")))) + text

    def pieces(self, token_ids: Iterable[int]) -> list[str]:
        """Give tokens as they stand in the vocabulary, undecoded; "" for an id that is no token."""
        id_to_token = self.backend.id_to_token
        return [
            id_to_token(token_id) or "" if 0 <= token_id <= self.max_token_id else ""
            for token_id in token_ids
        ]

    def is_special(self, token_id: int) -> bool:
        """Say whether a token is left out when special tokens are skipped."""
        return token_id in self._special_ids

    def is_known(self, token_id: int) -> bool:
        """Say whether an id is a token."""
        return 0 <= token_id <= self.max_token_id and self.backend.id_to_token(token_id) is not None


class SpecialTokens:
    """The special tokens that the files beside `tokenizer.json` name.

    The order of precedence is that of transformers (PreTrainedTokenizerBase._from_pretrained).
    """

    def __init__(self, config: Mapping[str, object], folder: Path | None = None) -> None:
        merged = dict(config)
        self._added = {
            int(index): token
            for index, value in _mapping(config.get("added_tokens_decoder")).items()
            if (token := _added_token(value, special=False)) is not None
        }
        if "added_tokens_decoder" not in config and folder is not None:
            merged.update(read_json(folder / "special_tokens_map.json"))
        extra = merged.get("extra_special_tokens") or merged.get("additional_special_tokens")
        named = {
            name: value
            for name, value in merged.items()
            if name in SPECIAL_NAMES or (name.endswith("_token") and isinstance(value, str))
        }
        named.update(_mapping(extra))
        self._named = _added_tokens(named)
        self._extra = _added_tokens(dict(enumerate(extra if isinstance(extra, list) else [])))
        if "added_tokens_decoder" not in config and folder is not None:
            self._read_legacy(read_json(folder / "added_tokens.json"))
        self.named = {
            name: token.content for name, token in self._named.items() if name in SPECIAL_NAMES
        }
        """Contents of the tokens that have one of `SPECIAL_NAMES`."""

    @property
    def all(self) -> frozenset[str]:
        """The contents of all these tokens."""
        return frozenset(token.content for token in [*self._named.values(), *self._extra.values()])

    def _read_legacy(self, added: Mapping[str, object]) -> None:
        special = self.all
        for content, index in added.items():
            if isinstance(index, int):
                is_special = content in special
                self._added[index] = AddedToken(
                    content, special=is_special, normalized=not is_special
                )

    def add_to(self, backend: tokenizers.Tokenizer) -> None:
        """Add the tokens to a tokenizer and mark the named ones as special."""
        known = {token.content for token in backend.get_added_tokens_decoder().values()}
        backend.add_tokens(
            [token for _, token in sorted(self._added.items()) if token.content not in known]
        )
        backend.add_special_tokens([*self._named.values(), *self._extra.values()])


def read_json(path: Path) -> dict[str, object]:
    """Read a JSON object from a file, an empty one when there is no file.

    Raises ModelFilesError when the file holds something else.
    """
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelFilesError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ModelFilesError(f"{path} does not hold a JSON object")
    return content


def read_model_vocabulary_size(folder: Path) -> int | None:
    """Read the number of token ids that the model computes with; None when it is not said.

    It may differ from the tokenizer's.  It is the one of the text part where a model has several
    (vllm/transformers_utils/model_arch_config_convertor.py).
    """
    config = read_json(folder / "config.json")
    for part in (_mapping(config.get("text_config")), config):
        size = part.get("vocab_size")
        if isinstance(size, int):
            return size
    return None


def shared_length(first: str, second: str) -> int:
    """Give the length of the longest common beginning of two texts."""
    length = min(len(first), len(second))
    return next((i for i in range(length) if first[i] != second[i]), length)


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _added_token(value: object, special: bool) -> AddedToken | None:
    """Read a token that is written as its content or as an object with its properties."""
    if isinstance(value, str):
        return AddedToken(value, special=special, normalized=not special) if value else None
    properties = _mapping(value)
    content = properties.get("content")
    if not isinstance(content, str) or not content:
        return None
    is_special = special or properties.get("special") is True
    return AddedToken(
        content,
        single_word=properties.get("single_word") is True,
        lstrip=properties.get("lstrip") is True,
        rstrip=properties.get("rstrip") is True,
        normalized=bool(properties.get("normalized", not is_special)),
        special=is_special,
    )


KeyT = TypeVar("KeyT")


def _added_tokens(values: Mapping[KeyT, object]) -> dict[KeyT, AddedToken]:
    tokens = {key: _added_token(value, special=True) for key, value in values.items()}
    return {key: token for key, token in tokens.items() if token is not None}


def _space_marker(backend: tokenizers.Tokenizer) -> str | None:
    """Find the character that stands for a space in the vocabulary, where decoding may drop it."""
    pre_tokenizer = backend.pre_tokenizer
    if pre_tokenizer is None:
        return None
    state = json.loads(pre_tokenizer.__getstate__())
    for part in [state, *state.get("pretokenizers", [])]:
        if part["type"] == "Metaspace":
            return str(part.get("replacement", "\N{LOWER ONE EIGHTH BLOCK}"))
    return None


def _is_rebuilt_by_transformers(
    backend: tokenizers.Tokenizer, config: Mapping[str, object], model: Mapping[str, object]
) -> bool:
    """Say whether transformers takes only the vocabulary of a Llama 2 style `tokenizer.json`."""
    return (
        config.get("tokenizer_class") in ("LlamaTokenizer", "LlamaTokenizerFast")
        and model.get("model_type") == "llama"
        and isinstance(backend.model, models.BPE)
        and backend.model.byte_fallback
    )


def _rebuild_as_llama(backend: tokenizers.Tokenizer, config: Mapping[str, object]) -> None:
    """Put spaces before words the way transformers' LlamaTokenizer does.

    Its files of old put one before every piece of text between special tokens; the class puts one
    before the first piece only, unless the configuration asks for the legacy behaviour.
    """
    marker = "\N{LOWER ONE EIGHTH BLOCK}"
    prefixed = config.get("add_prefix_space") is not False
    scheme = "never" if not prefixed else "always" if config.get("legacy") is True else "first"
    steps = [decoders.Replace(marker, " "), decoders.ByteFallback(), decoders.Fuse()]
    if prefixed:
        steps.append(decoders.Strip(content=" ", left=1))
    backend.normalizer = None
    backend.pre_tokenizer = pre_tokenizers.Metaspace(marker, prepend_scheme=scheme, split=False)
    backend.decoder = decoders.Sequence(steps)
