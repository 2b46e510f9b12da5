"""The loads that frontends are measured under."""

import json
from typing import NamedTuple


class Load(NamedTuple):
    """Requests that are sent to a frontend, so many of them at once.

    `max_tokens` is what each of the n samples gets, `step_ms` the time between two steps of the
    engine, 0 for as fast as it goes.  `others` streams of one sample run beside the load, without
    belonging to it.  With `says_calls` the engine answers with `CALLS`, which are tool calls for
    those whose requests have tools.
    """

    name: str
    about: str
    requests: int
    at_once: int
    n: int
    max_tokens: int
    step_ms: float
    stream: bool = True
    prompt_words: int = 40
    logprobs: int | None = None
    others: int = 0
    says_calls: bool = False
    has_tools: bool = False

    def as_singles(self) -> "Load":
        """Give the load as requests for one sample each, for a frontend that takes no others."""
        return self._replace(requests=self.requests * self.n, at_once=self.at_once * self.n, n=1)

    def bodies(self, model: str) -> list[bytes]:
        """Write the bodies of all requests, no two of which have the same prompt."""
        return [self._body(model, number) for number in range(self.requests)]

    def other_body(self, model: str, max_tokens: int) -> bytes:
        """Write the body of a stream that runs beside the load."""
        return self._replace(max_tokens=max_tokens, n=1, prompt_words=40)._body(model, 0)

    def _body(self, model: str, number: int) -> bytes:
        words = " ".join(WORDS[(number + i * i) % len(WORDS)] for i in range(self.prompt_words))
        fields: dict[str, object] = {
            "model": model,
            "messages": [{"role": "user", "content": f"{number}: {words}{self._phrase()}"}],
            "max_tokens": self.max_tokens,
            "ignore_eos": True,
        }
        if self.has_tools:
            fields["tools"] = TOOLS
        if self.n > 1:
            fields["n"] = self.n
        if self.stream:
            fields["stream"] = True
            fields["stream_options"] = {"include_usage": True}
        if self.logprobs is not None:
            fields["logprobs"] = True
            fields["top_logprobs"] = self.logprobs
        return json.dumps(fields).encode()

    def _phrase(self) -> str:
        return PHRASE if self.says_calls else ""


PHRASE = " Please ask the tools."
"""What makes the mock engine answer with calls."""

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": name,
            "parameters": {
                "type": "object",
                "properties": {"place": {"type": "string"}, "days": {"type": "integer"}},
            },
        },
    }
    for name in ("get_weather", "get_news")
]

CALLS = "".join(
    f'<tool_call>\n{{"name": "{name}", "arguments": {{"place": "{place}", "days": {days}}}}}\n'
    "</tool_call>\n"
    for name in ("get_weather", "get_news")
    for days, place in enumerate(("the old town of Prague, and what is around it", "Paris", "Rome"))
)
"""What the mock engine answers then; it is cut where a request's tokens end."""


WORDS = [
    "the",
    "of",
    "and",
    "to",
    "in",
    "is",
    "that",
    "it",
    "was",
    "for",
    "on",
    "are",
    "as",
    "with",
    "his",
    "they",
    "at",
    "be",
    "this",
    "from",
    "have",
    "or",
    "by",
    "one",
    "had",
    "not",
    "but",
    "what",
    "all",
    "were",
    "when",
    "we",
    "there",
    "can",
    "an",
    "your",
    "which",
    "their",
    "said",
    "if",
    "do",
    "will",
    "each",
    "about",
    "how",
    "up",
]

LOADS = (
    Load("R", "one token, 64 at once", 3000, 64, 1, 1, 0),
    Load("A", "n = 1, 64 at once, a step every 20 ms", 192, 64, 1, 150, 20),
    Load("B", "n = 8, 16 at once, a step every 20 ms", 48, 16, 8, 150, 20),
    Load("S1", "n = 1, 64 at once, no pause between steps", 768, 64, 1, 250, 0),
    Load("S8", "n = 8, 16 at once, no pause between steps", 160, 16, 8, 250, 0),
    Load("N", "n = 8, 16 at once, not streamed", 48, 16, 8, 150, 20, stream=False),
    Load("L", "prompts of 8k tokens, 8 at once", 32, 8, 1, 8, 20, prompt_words=7800, others=8),
    Load("P", "logprobs = 5, 64 at once", 128, 64, 1, 100, 20, logprobs=5),
    Load("C", "n = 8, 16 at once, text of calls", 48, 16, 8, 150, 20, says_calls=True),
    Load("T", "as C, with tools", 48, 16, 8, 150, 20, says_calls=True, has_tools=True),
    Load("M", "1000 streams of 1000 tokens", 1000, 1000, 1, 1000, 50),
)
