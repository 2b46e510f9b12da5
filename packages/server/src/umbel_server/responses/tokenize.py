"""What tokenizing answers, and how a tokenizer is described.

Fields and order are those of vllm/entrypoints/serve/tokenize/protocol.py.
"""

import msgspec

from umbel_text import Tokenizer

FILE_FIELDS = frozenset({"vocab_file", "merges_file"})
"""Fields of a configuration that name files of whoever wrote it."""

UNNAMED_CLASS = "TokenizersBackend"
"""What transformers makes of a `tokenizer.json` whose configuration names no class."""


class TokenizeResponse(msgspec.Struct, frozen=True):
    """The tokens of a prompt; `max_model_len` is in tokens, `token_strs` are vocabulary entries."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeResponse(msgspec.Struct, frozen=True):
    """The text of tokens."""

    prompt: str


def tokenizer_info(tokenizer: Tokenizer, chat_template: str | None) -> bytes:
    """Describe a tokenizer: its configuration, completed and named as transformers does on loading.

    Tokens that are written as objects are given as their content.  The rule is that of
    TokenizerInfo in vllm/entrypoints/serve/tokenize/serving.py.
    """
    info = {
        name: _plain(value) for name, value in tokenizer.config.items() if name not in FILE_FIELDS
    }
    _rename_extra_tokens(info)
    info |= tokenizer.special_tokens
    info["truncation_side"] = "left"
    info["added_tokens_decoder"] = {
        str(token_id): content for token_id, content in sorted(tokenizer.added_tokens.items())
    }
    info["backend"] = "tokenizers"
    if not isinstance(info.get("tokenizer_class"), str):
        info["tokenizer_class"] = UNNAMED_CLASS
    if chat_template is not None:
        info["chat_template"] = chat_template
    return msgspec.json.encode(info)


def _plain(value: object) -> object:
    if isinstance(value, dict):
        content = value.get("content")
        if isinstance(content, str):
            return content
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _rename_extra_tokens(info: dict[str, object]) -> None:
    """Give extra special tokens the names of transformers 5: one for a list, one for an object."""
    extra = info.get("extra_special_tokens")
    if isinstance(extra, dict):
        info["model_specific_special_tokens"] = info.pop("extra_special_tokens")
    if "additional_special_tokens" in info:
        additional = info.pop("additional_special_tokens")
        info.setdefault("extra_special_tokens", additional)
