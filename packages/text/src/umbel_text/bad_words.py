"""Bad words: the token sequences that an answer must not contain."""

from collections.abc import Sequence

from umbel_text.errors import InvalidRequestError
from umbel_text.tokenizer import Tokenizer

MAX_SEQUENCES = 128
MAX_TOKENS = 1024
"""What the engine has room for (VLLM_MAX_NUM_BAD_WORDS, VLLM_MAX_BAD_WORDS_TOTAL_TOKENS); vLLM does
not check the latter, and its engine dies of more (vllm/v1/worker/gpu/sample/bad_words.py)."""


def tokenize_bad_words(
    words: Sequence[str], tokenizer: Tokenizer, vocabulary_size: int
) -> list[list[int]]:
    """Give the token ids of each word, at the beginning of a text and, where it differs, within.

    Raises InvalidRequestError for a word without tokens, for too many, and for a token that the
    model does not have.  The rule is that of vllm/sampling_params.py (update_from_tokenizer).
    """
    sequences: list[list[int]] = []
    longest = MAX_TOKENS * tokenizer.max_characters_per_token
    for word in words:
        if len(word.lstrip()) > longest:
            raise InvalidRequestError(
                f"bad_words must have at most {MAX_TOKENS} tokens together, and a word of "
                f"{len(word)} characters has more.",
                "bad_words",
                len(word),
            )
        bare = tokenizer.encode(word.lstrip(), add_special_tokens=False)
        if not bare:
            raise InvalidRequestError(
                "bad_words entries must tokenize to at least one token.", "bad_words", list(words)
            )
        sequences.append(bare)
        spaced = tokenizer.encode(f" {word.lstrip()}", add_special_tokens=False)
        if spaced and spaced[0] != bare[0] and len(spaced) == len(bare):
            sequences.append(spaced)
        if len(sequences) > MAX_SEQUENCES:
            # vLLM counts no further.
            raise InvalidRequestError(
                f"Too many bad words after tokenization: {MAX_SEQUENCES + 1}. "
                f"The max number is {MAX_SEQUENCES}.",
                "bad_words",
                list(words),
            )
    _check_tokens(words, sequences, vocabulary_size)
    return sequences


def _check_tokens(words: Sequence[str], sequences: list[list[int]], vocabulary_size: int) -> None:
    token_ids = [token_id for sequence in sequences for token_id in sequence]
    unknown = [token_id for token_id in token_ids if token_id >= vocabulary_size]
    if unknown:
        raise InvalidRequestError(
            f"The model vocabulary size is {vocabulary_size}, but the following tokens were "
            f"specified as bad: {unknown}. All token id values should be integers satisfying: "
            f"0 <= token_id <= {vocabulary_size - 1}.",
            "bad_words",
            list(words),
        )
    if len(token_ids) > MAX_TOKENS:
        raise InvalidRequestError(
            f"bad_words must have at most {MAX_TOKENS} tokens together, got {len(token_ids)}.",
            "bad_words",
            len(token_ids),
        )
