"""Log-probabilities as answers carry them."""

from collections.abc import Sequence

import msgspec

from umbel_text import PositionLogprobs

LOWEST = -9999.0
"""What stands for minus infinity, which JSON has no word for."""


class TopLogprob(msgspec.Struct, frozen=True):
    """One of the most likely tokens of a position."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprobs(msgspec.Struct, frozen=True):
    """A token of a chat answer."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """The log-probabilities of a chat choice."""

    content: list[TokenLogprobs]


class CompletionLogprobs(msgspec.Struct, frozen=True):
    """The log-probabilities of a completion choice; offsets are in characters."""

    text_offset: list[int]
    token_logprobs: list[float]
    tokens: list[str]
    top_logprobs: list[dict[str, float]]


def chat_logprobs(positions: Sequence[PositionLogprobs], top: int | None) -> ChatLogprobs:
    """Give the tokens with their `top` most likely rivals, all of them with -1.

    The list begins with the sampled token, as in
    vllm/entrypoints/generate/base/serving.py.
    """
    count = 0 if top is None else top
    content = []
    for position in positions:
        sampled = position[0]
        rivals = position if count == -1 else position[:count]
        content.append(
            TokenLogprobs(
                sampled.text,
                max(sampled.logprob, LOWEST),
                list(sampled.text.encode()),
                [
                    TopLogprob(entry.text, max(entry.logprob, LOWEST), list(entry.text.encode()))
                    for entry in rivals
                ],
            )
        )
    return ChatLogprobs(content)


class CompletionLogprobsWriter:
    """Turns the positions of one choice into completion log-probabilities, offsets running on."""

    def __init__(self, offset: int = 0) -> None:
        self._offset = offset

    def feed(self, positions: Sequence[PositionLogprobs], top: int) -> CompletionLogprobs:
        """Give the next positions with up to `top` + 1 tokens each, the sampled one first."""
        result = CompletionLogprobs([], [], [], [])
        for position in positions:
            sampled = position[0]
            result.text_offset.append(self._offset)
            self._offset += len(sampled.text)
            result.tokens.append(sampled.text)
            result.token_logprobs.append(max(sampled.logprob, LOWEST))
            entries = position[: top + 1] if top >= 0 else position
            result.top_logprobs.append(
                {entry.text: max(entry.logprob, LOWEST) for entry in entries}
            )
        return result
