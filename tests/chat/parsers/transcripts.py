"""What models write, and what is in it."""

import json
from typing import NamedTuple

TOOLS: dict[str, dict[str, object]] = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string"},
            "days": {"type": "integer"},
            "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
        },
        "required": ["city"],
    },
    "get_time": {"type": "object", "properties": {}},
    "search": {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "number"},
            "exact": {"type": "boolean"},
            "tags": {"type": "array", "items": {"type": "string"}},
            "filter": {"type": "object", "properties": {"after": {"type": "string"}}},
            "anything": {},
        },
    },
}
"""The tools of all transcripts: the schemas of their parameters."""


class Transcript(NamedTuple):
    """An answer as a model wrote it, and what it says.

    `calls` are the names and the arguments, decoded, or as text where they are not whole.
    `prompt` is the end of the prompt where the answer depends on it.  `differs` says why vLLM's
    parser of the same name gives something else, in one of its modes or both, and ours is right.
    """

    name: str
    text: str
    content: str = ""
    calls: tuple[tuple[str, object], ...] = ()
    reasoning: str = ""
    prompt: str = ""
    differs: str = ""


class Corpus(NamedTuple):
    """The transcripts of a format, tools or reasoning, or of both together.

    `tokens` are the markers that are tokens of the real models' tokenizers, `template_arguments` what
    a request says to the chat template, for vLLM's parsers that look there.
    """

    tool: str | None
    reasoning: str | None
    tokens: tuple[str, ...]
    transcripts: tuple[Transcript, ...]
    template_arguments: dict[str, object] = {}


def decoded(arguments: str) -> object:
    """Decode arguments; they stay text where they are not whole."""
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments
