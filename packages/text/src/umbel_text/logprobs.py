"""Log-probabilities in words: the engine's arrays as tokens with their text."""

from collections.abc import Iterable, Sequence

import msgspec

from umbel_engine import Logprobs
from umbel_text.token_texts import REPLACEMENT
from umbel_text.tokenizer import Tokenizer, shared_length

CONTEXT_TOKENS = 4
"""How many tokens before a fragment of a character are looked at to complete it."""

ALL_LOGPROBS = -1
"""The number of log-probabilities that stands for every entry the engine sends."""


class TokenLogprob(msgspec.Struct, frozen=True):
    """One token at one position.

    `logprob` is a natural logarithm and may be -inf.  `rank` counts from 1, the most likely token.
    `text` is the token's own text, empty for a token that ends within a character.
    """

    token_id: int
    logprob: float
    rank: int
    text: str


PositionLogprobs = tuple[TokenLogprob, ...]
"""The tokens of one position, each once: the sampled (or prompt) token, then the most likely."""


class LogprobsDecoder:
    """Turn the log-probabilities of one sample into tokens with text, position by position.

    `num_logprobs` is how many tokens besides the sampled one were asked for (the engine may send
    more), `ALL_LOGPROBS` for all.  The same rows cut in any way give the same positions.

    The rules are those of vllm/v1/engine/logprobs.py and vllm/logprobs.py.
    """

    __slots__ = ("_context", "_num_logprobs", "_tokenizer")

    def __init__(self, tokenizer: Tokenizer, num_logprobs: int) -> None:
        self._tokenizer = tokenizer
        self._num_logprobs = num_logprobs
        self._context: list[int] = []

    def feed(self, logprobs: Logprobs) -> list[PositionLogprobs]:
        """Take in the rows of the next positions; give one tuple of tokens for each."""
        rows: Iterable[tuple[list[int], list[float], int]] = zip(
            logprobs.token_ids.tolist(),
            logprobs.logprobs.tolist(),
            logprobs.ranks.tolist(),
            strict=True,
        )
        return [self._position(*row) for row in rows]

    def finish(self) -> list[PositionLogprobs]:
        """Give what is left at the end: nothing."""
        return []

    def _position(self, token_ids: list[int], logprobs: list[float], rank: int) -> PositionLogprobs:
        count = len(token_ids)
        if self._num_logprobs != ALL_LOGPROBS:
            count = min(count, self._num_logprobs + 1)
        context = self._context
        # A sampled token that is also among the most likely keeps its place and gets the rank of
        # the second entry.
        entries: dict[int, TokenLogprob] = {}
        for index in range(count):
            token_id = token_ids[index]
            text = self._text(token_id, context)
            entries[token_id] = TokenLogprob(token_id, logprobs[index], index or rank, text)
        context.append(token_ids[0])
        if len(context) > CONTEXT_TOKENS:
            del context[0]
        return tuple(entries.values())

    def _text(self, token_id: int, context: Sequence[int]) -> str:
        text = self._tokenizer.token_text(token_id)
        return self._complete(token_id, context) if text.endswith(REPLACEMENT) else text

    def _complete(self, token_id: int, context: Sequence[int]) -> str:
        """Give the text that a fragment completes together with the tokens before it, or none."""
        decode = self._tokenizer.decode
        for size in range(1, len(context) + 1):
            before = list(context[-size:])
            text = decode([*before, token_id], skip_special_tokens=False)
            if text.endswith(REPLACEMENT):
                continue
            # The fragments right before this token had no text of their own: it is given here.
            while before and self._tokenizer.token_text(before[-1]).endswith(REPLACEMENT):
                before.pop()
            known = decode(before, skip_special_tokens=False) if before else ""
            return text[shared_length(known, text) :]
        return ""


def decode_prompt_logprobs(
    tokenizer: Tokenizer, logprobs: Logprobs | None, num_logprobs: int
) -> list[PositionLogprobs | None]:
    """Turn the log-probabilities of a whole prompt into tokens with text.

    `logprobs` has one row for each prompt position but the first, which is None in the result; it
    may be None for a prompt of one token.
    """
    if logprobs is None:
        return [None]
    return [None, *LogprobsDecoder(tokenizer, num_logprobs).feed(logprobs)]
