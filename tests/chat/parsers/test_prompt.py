"""What a prompt says of the reasoning after it."""

import pytest
from tokenizers import AddedToken

from umbel_chat.parsers.prompt import LONGEST_TURN, prompt_state
from umbel_chat.parsers.think import QWEN3
from umbel_text import Tokenizer
from umbel_text.tokenizer import SpecialTokens

from .tokens import END_OF_TURN, backend_with

USER, ASSISTANT = "<|user|>", "<|assistant|>"
SPACES = "        "


def tokenizer_of(thinks: tuple[str, ...], special_roles: bool) -> Tokenizer:
    """Make a tokenizer with tokens for roles and for some of the markers of reasoning."""
    backend = backend_with(thinks)
    roles = [
        AddedToken(role, special=special_roles, normalized=False) for role in (USER, ASSISTANT)
    ]
    backend.add_tokens([*roles, AddedToken(SPACES, normalized=False)])
    return Tokenizer(backend, SpecialTokens({"eos_token": END_OF_TURN}))


BOTH = ("<think>", "</think>")

PROMPTS = {
    "reasoning has begun": (f"{USER}Hi{ASSISTANT}\n<think>\n", "open"),
    "reasoning has ended": (f"{USER}Hi{ASSISTANT}\n<think>\n\n</think>\n\n", "closed"),
    "the end marker alone": (f"{USER}Hi{ASSISTANT}</think>", "closed"),
    "no markers": (f"{USER}Hi{ASSISTANT}\n", "unsaid"),
    "nothing": ("", "unsaid"),
    "reasoning in an earlier turn": (
        f"{USER}Hi{ASSISTANT}<think>a</think>b{END_OF_TURN}{USER}Yes{ASSISTANT}",
        "unsaid",
    ),
    "open reasoning in an earlier turn": (
        f"{USER}Hi{ASSISTANT}<think>a{END_OF_TURN}{USER}Yes{ASSISTANT}",
        "unsaid",
    ),
    "an earlier turn, and reasoning has begun": (
        f"{USER}Hi{ASSISTANT}<think>a</think>b{END_OF_TURN}{USER}Yes{ASSISTANT}<think>\n",
        "open",
    ),
    "the user writes the first marker": (f"{USER}What is <think>?{ASSISTANT}\n", "unsaid"),
    "the user writes the last marker": (f"{USER}What is </think>?{ASSISTANT}\n", "unsaid"),
    "the user writes the last marker, and reasoning has begun": (
        f"{USER}What is </think>?{ASSISTANT}<think>",
        "open",
    ),
    "reasoning is prefilled": (f"{USER}Hi{ASSISTANT}<think>\nI see", "open"),
    "the answer is prefilled": (f"{USER}Hi{ASSISTANT}<think>a</think>\n\nWell,", "closed"),
    "the answer is prefilled, with spaces": (
        f"{USER}Hi{ASSISTANT}<think>a</think>\n{SPACES}x = 1",
        "closed",
    ),
    "the answer is prefilled, without reasoning": (f"{USER}Hi{ASSISTANT}Well,", "unsaid"),
    "a part of a marker": (f"{USER}Hi{ASSISTANT}<think", "unsaid"),
    "a whole marker after a part": (f"{USER}Hi{ASSISTANT}</thin<think>", "open"),
}


@pytest.mark.parametrize(("prompt", "state"), PROMPTS.values(), ids=PROMPTS)
@pytest.mark.parametrize("special_roles", [True, False], ids=["special", "added"])
@pytest.mark.parametrize("markers", [BOTH, ()], ids=["tokens", "text"])
def test_a_prompt_says_how_its_answer_begins(
    prompt: str, state: str, markers: tuple[str, ...], special_roles: bool
) -> None:
    tokenizer = tokenizer_of(markers, special_roles)
    assert prompt_state(tokenizer.encode(prompt, False), QWEN3, tokenizer) == state


def test_a_marker_as_text_is_looked_for_in_the_last_tokens_only() -> None:
    tokenizer = tokenizer_of((), True)
    near = tokenizer.encode("<think>" + "a" * (LONGEST_TURN - 7), False)
    far = tokenizer.encode("<think>" + "a" * LONGEST_TURN, False)
    assert prompt_state(near, QWEN3, tokenizer) == "open"
    assert prompt_state(far, QWEN3, tokenizer) == "unsaid"


def test_a_marker_that_is_a_token_is_found_however_far_away_it_is() -> None:
    tokenizer = tokenizer_of(BOTH, True)
    prompt = tokenizer.encode("<think>" + "a" * 3 * LONGEST_TURN, False)
    assert prompt_state(prompt, QWEN3, tokenizer) == "open"
