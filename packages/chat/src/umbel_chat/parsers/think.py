"""Reasoning between `<think>` and `</think>`."""

from umbel_chat.parsers.formats import ReasoningFormat

DEEPSEEK_R1 = ReasoningFormat(
    names=("deepseek_r1", "step5"),
    start="<think>",
    end="</think>",
    summary="`<think>` and `</think>`; an answer begins with reasoning, with or without the former.",
    models=("DeepSeek-R1", "QwQ"),
)
