"""What a prompt says of the reasoning that follows it."""

from collections.abc import Sequence

from umbel_chat.parsers.formats import ReasoningFormat
from umbel_chat.parsers.reasoning import PromptState
from umbel_text import Tokenizer

LONGEST_TURN = 4096
"""Tokens at the end of a prompt that are looked at, where markers are no tokens."""


def prompt_state(
    prompt_token_ids: Sequence[int], reasoning: ReasoningFormat, tokenizer: Tokenizer
) -> PromptState:
    """Tell whether reasoning has begun, or has ended, where a prompt ends.

    The last marker decides, unless a token that stands beside the vocabulary follows it, special or
    not: such tokens end turns, so the marker stands in an earlier turn, or is the user's.
    """
    start = tokenizer.backend.token_to_id(reasoning.start)
    end = tokenizer.backend.token_to_id(reasoning.end)
    if start is None or end is None:
        return _state_of_text(prompt_token_ids, reasoning, tokenizer)
    for token_id in reversed(prompt_token_ids):
        if token_id == start:
            return "open"
        if token_id == end:
            return "closed"
        if _ends_turn(token_id, tokenizer):
            break
    return "unsaid"


def _ends_turn(token_id: int, tokenizer: Tokenizer) -> bool:
    # Some tokenizers have runs of spaces beside their vocabulary.
    return tokenizer.added_tokens.get(token_id, "").strip() != ""


def _state_of_text(
    prompt_token_ids: Sequence[int], reasoning: ReasoningFormat, tokenizer: Tokenizer
) -> PromptState:
    turn: list[int] = []
    for token_id in reversed(prompt_token_ids[-LONGEST_TURN:]):
        if _ends_turn(token_id, tokenizer):
            break
        turn.append(token_id)
    text = tokenizer.decode(turn[::-1], skip_special_tokens=False)
    start = max(map(text.rfind, reasoning.starts))
    end = max(map(text.rfind, reasoning.ends))
    if start == end:
        return "unsaid"
    return "open" if start > end else "closed"
