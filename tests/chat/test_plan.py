"""Whether an answer begins with reasoning, from the prompt's end and from the request."""

import pytest

from umbel_chat.parsers.model_parsers import ModelParsers
from umbel_chat.parsers.registry import REASONING_FORMATS
from umbel_chat.plan import plan_answer
from umbel_chat.request import AnswerRequest

from .parsers.test_transcripts import message_of
from .parsers.tokens import tokenizer_with

THINK = ("<think>", "</think>")


def read(form: str, prompt: str, arguments: dict[str, object], answer: str) -> tuple[str, str]:
    """Give the reasoning and the content of an answer to a prompt."""
    tokenizer = tokenizer_with(THINK)
    parsers = ModelParsers(tokenizer, None, REASONING_FORMATS[form])
    plan = plan_answer(parsers, tokenizer.encode(prompt, False), AnswerRequest(), arguments)
    processor = plan.new_processor(parsers)
    reasoning, content, _ = message_of([*processor.feed(answer, []), *processor.finish()])
    return reasoning, content


@pytest.mark.parametrize("form", ["deepseek_r1", "nemotron_v3"])
@pytest.mark.parametrize(
    ("prompt", "arguments", "is_reasoning"),
    [
        ("a", {}, True),
        ("a", {"enable_thinking": True}, True),
        ("a", {"enable_thinking": False}, False),
        ("a", {"thinking": False}, False),
        ("a<think>", {"enable_thinking": False}, True),
        ("a<think></think>", {}, False),
    ],
)
def test_what_turns_reasoning_off_counts_where_the_prompt_tells_nothing(
    form: str, prompt: str, arguments: dict[str, object], is_reasoning: bool
) -> None:
    expected = ("Hello", "") if is_reasoning else ("", "Hello")
    assert read(form, prompt, arguments, "Hello") == expected
