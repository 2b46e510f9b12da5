"""Hermes 2 Pro, Qwen2.5, Qwen3."""

from ..transcripts import Corpus, Transcript

START, END = "<tool_call>", "</tool_call>"

HERMES = Corpus(
    tool="hermes",
    reasoning=None,
    tokens=(START, END),
    transcripts=(
        Transcript("plain text", "It is sunny.", content="It is sunny."),
        Transcript(
            "a call",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>',
            calls=(("get_weather", {"city": "Paris"}),),
        ),
        Transcript(
            "a call that is cut off",
            '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Par',
            calls=(("get_weather", '{"city": "Par'),),
            differs="vLLM gives the text of the call when it does not stream",
        ),
    ),
)

CORPORA = (HERMES,)
