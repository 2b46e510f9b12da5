"""What tokens read where each stands for itself, looked up instead of decoded."""

import json

import tokenizers

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
"""What bytes that are no character decode to."""


class TokenTexts(dict[int, str | None]):
    """The text of every token of a tokenizer that decodes token by token.

    A text is None when the token begins or ends within a character, and has to be decoded with the
    tokens around it.  Texts are found when they are first asked for, so there are no more of them
    than tokens.
    """

    def __init__(self, backend: tokenizers.Tokenizer, skip_special_tokens: bool) -> None:
        super().__init__()
        self._backend = backend
        self._skip_special_tokens = skip_special_tokens

    def __missing__(self, token_id: int) -> str | None:
        try:
            text = self._backend.decode([token_id], skip_special_tokens=self._skip_special_tokens)
        except OverflowError:
            return ""  # not an unsigned 32-bit number, so not a token
        if self._backend.id_to_token(token_id) is None:
            return text  # an engine may have more ids than there are tokens
        known = self[token_id] = None if REPLACEMENT in text else text
        return known


def decodes_token_by_token(backend: tokenizers.Tokenizer) -> bool:
    """Say whether the text of tokens is that of each, one after the other, but for cut characters.

    That is so for byte-level BPE, whose decoder puts bytes together and does no more.
    """
    decoder = backend.decoder
    return decoder is not None and json.loads(decoder.__getstate__())["type"] == "ByteLevel"
