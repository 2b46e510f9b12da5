"""Log-probabilities as answers carry them."""

from collections.abc import Sequence

import msgspec

from umbel_text import PositionLogprobs, TokenLogprob

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
    """The log-probabilities of a completion choice; offsets are in characters.

    A token that nothing was predicted for, the first of an echoed prompt, has null twice.
    """

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class PromptTokenLogprob(msgspec.Struct, frozen=True):
    """One of the tokens of a prompt position; the rank counts from 1, the most likely token."""

    logprob: float
    rank: int
    decoded_token: str


class Display(msgspec.Struct, frozen=True):
    """How log-probabilities are shown.

    `top` is the number of rivals of a token, -1 for all; with `as_token_ids` tokens are written as
    `token_id:7`, for clients that must tell apart tokens that read the same.
    """

    top: int
    as_token_ids: bool = False

    def name(self, entry: TokenLogprob) -> str:
        """Give what stands for a token."""
        return f"token_id:{entry.token_id}" if self.as_token_ids else entry.text


def chat_logprobs(positions: Sequence[PositionLogprobs], display: Display) -> ChatLogprobs:
    """Give the tokens with their most likely rivals.

    The list of them begins with the sampled token, as in vllm/entrypoints/generate/base/serving.py.
    """
    content = []
    for position in positions:
        sampled = position[0]
        rivals = position if display.top == -1 else position[: display.top]
        content.append(
            TokenLogprobs(
                display.name(sampled),
                max(sampled.logprob, LOWEST),
                list(sampled.text.encode()),
                [_rival(entry, display) for entry in rivals],
            )
        )
    return ChatLogprobs(content)


def _rival(entry: TokenLogprob, display: Display) -> TopLogprob:
    name = display.name(entry)
    return TopLogprob(name, max(entry.logprob, LOWEST), list(name.encode()))


class CompletionLogprobsWriter:
    """Turns the positions of one choice into completion log-probabilities, offsets running on."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._offset = 0

    def feed(
        self, positions: Sequence[PositionLogprobs], first: TokenLogprob | None = None
    ) -> CompletionLogprobs:
        """Give the next positions with up to `top` + 1 tokens each, the sampled one first.

        `first` is a token before them that nothing was predicted for.
        """
        display = self._display
        result = CompletionLogprobs([], [], [], [])
        if first is not None:
            self._add(result, display.name(first), None, None)
        for position in positions:
            sampled = position[0]
            entries = position if display.top == -1 else position[: display.top + 1]
            top = {display.name(entry): max(entry.logprob, LOWEST) for entry in entries}
            self._add(result, display.name(sampled), max(sampled.logprob, LOWEST), top)
        return result

    def _add(
        self,
        result: CompletionLogprobs,
        token: str,
        logprob: float | None,
        top: dict[str, float] | None,
    ) -> None:
        result.text_offset.append(self._offset)
        self._offset += len(token)
        result.tokens.append(token)
        result.token_logprobs.append(logprob)
        result.top_logprobs.append(top)


def prompt_logprobs(
    positions: Sequence[PositionLogprobs | None],
) -> list[dict[int, PromptTokenLogprob] | None]:
    """Give the positions of a prompt by token id; nothing was predicted for the first."""
    return [
        None
        if position is None
        else {
            entry.token_id: PromptTokenLogprob(max(entry.logprob, LOWEST), entry.rank, entry.text)
            for entry in position
        }
        for position in positions
    ]
