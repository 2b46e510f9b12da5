"""A row of the table: a request, and what the engine says while it is answered."""

import json
from typing import NamedTuple

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

JSON_TYPE = {"Content-Type": "application/json"}

OPTIONS = {"server", "headers", "samples", "weight_version"}
"""Arguments of `chat` and the like that are not fields of the body."""

LEFT_OUT = object()
"""Stands for a field that the body does not have."""

QUESTION = [{"role": "user", "content": "hi"}]


class Row(NamedTuple):
    """A request with its engine behind it.

    `content` goes out as it is.  `says` has the engine's answers, one per sample.  `samples` is
    how many samples the engine is asked for before it begins, 0 where no engine is needed.
    """

    name: str
    path: str
    content: bytes | None
    says: tuple = ()
    server: str = "plain"
    headers: dict[str, str] = JSON_TYPE
    method: str = "POST"
    n: int = 1
    samples: int = 1
    weight_version: str | None = None


def post(name, path, body, *says, server="plain", headers=None, samples=None, **rest):
    """Make the row of a request whose body is JSON."""
    body = {key: value for key, value in body.items() if value is not LEFT_OUT}
    n = sample_count(body)
    return Row(
        name,
        path,
        json.dumps(body).encode(),
        says,
        server,
        {**JSON_TYPE, **(headers or {})},
        n=n,
        samples=n * prompt_count(body) if samples is None else samples,
        **rest,
    )


def chat(name, *says, messages=QUESTION, n=2, path=CHAT, **fields):
    """Make the row of a chat for two samples; fields of its body, and options of the row."""
    options = {key: fields.pop(key) for key in OPTIONS & fields.keys()}
    return post(f"chat: {name}", path, {"messages": messages, "n": n, **fields}, *says, **options)


def complete(name, *says, prompt="Hello world", n=2, path=COMPLETIONS, **fields):
    """Make the row of a completion for two samples; fields of its body, and options of the row."""
    options = {key: fields.pop(key) for key in OPTIONS & fields.keys()}
    return post(f"completion: {name}", path, {"prompt": prompt, "n": n, **fields}, *says, **options)


def both(name, *says, **fields):
    """Make the rows of a chat and of a completion with the same fields."""
    return [chat(name, *says, **fields), complete(name, *says, **fields)]


def in_every_way(name, *says, **fields):
    """Make four rows: a chat and a completion, each as a whole and as a stream."""
    return [*both(name, *says, **fields), *both(f"{name}, streamed", *says, stream=True, **fields)]


def content(name, path, content, headers=JSON_TYPE, method="POST", server="plain"):
    """Make the row of a request that no engine sees."""
    return Row(name, path, content, (), server, headers, method, samples=0)


def bare(name, path, method="GET", headers=None, server="plain"):
    """Make the row of a request without a body."""
    return Row(name, path, None, (), server, headers or {}, method, samples=0)


def sample_count(body):
    """Give the n of a body, 1 where it is none."""
    value = body.get("n")
    if isinstance(value, str) and value.isdigit():
        value = int(value)
    return int(value) if isinstance(value, int | float) and 0 < value < 100 else 1


def prompt_count(body):
    prompt = body.get("prompt")
    if not isinstance(prompt, list) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
