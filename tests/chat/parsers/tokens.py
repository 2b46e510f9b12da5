"""Tokenizers that have the markers of a model as tokens."""

from collections.abc import Sequence
from functools import cache

import tokenizers
from tokenizers import decoders, models, pre_tokenizers

from umbel_text import Tokenizer
from umbel_text.tokenizer import SpecialTokens

END_OF_TURN = "<|end_of_turn|>"


def backend_with(markers: Sequence[str], special: bool = False) -> tokenizers.Tokenizer:
    """Make a tokenizer with a token for every byte, one for each marker, and a special one."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {symbol: index for index, symbol in enumerate(alphabet)}
    backend = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([END_OF_TURN])
    backend.add_tokens(
        [tokenizers.AddedToken(marker, special=special, normalized=False) for marker in markers]
    )
    return backend


@cache
def tokenizer_with(markers: tuple[str, ...], special: bool = False) -> Tokenizer:
    """Make a tokenizer of a model whose markers are tokens."""
    return Tokenizer(backend_with(markers, special), SpecialTokens({"eos_token": END_OF_TURN}))
