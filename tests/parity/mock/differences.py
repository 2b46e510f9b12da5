"""Where umbel's answers differ from the reference's on purpose: the one list, with reasons.

A difference rewrites a pair of answers, the reference's and umbel's, so that they are equal if
nothing else differs.  Where it is listed for a row and changes nothing, a test fails.
"""

import json
import re
from collections.abc import Callable
from typing import NamedTuple


class Difference(NamedTuple):
    """Which rows differ, why, and what remains to be compared."""

    rows: str
    reason: str
    settle: Callable

    def concerns(self, row):
        """Tell whether it is listed for a row."""
        return re.fullmatch(self.rows, row.name) is not None


def own_words(vllm, umbel):
    """Compare errors without their messages."""

    def silent(answer):
        body = json.loads(answer.text)
        body["error"]["message"] = "..."
        return answer._replace(text=json.dumps(body))

    return silent(vllm), silent(umbel)


def real_status(vllm, umbel):
    """Take the error event that is all of a stream for an answer with the error's status."""
    (error,) = re.findall(r"^data: (\{.*\})$", vllm.text, re.MULTILINE)
    body = json.loads(error)
    return vllm._replace(
        status=body["error"]["code"],
        headers={**vllm.headers, "Content-Type": "application/json"},
        text=json.dumps(body, separators=(",", ":"), ensure_ascii=False),
    ), umbel


DIFFERENCES: list[Difference] = []

# What the engine is asked for.

MEANT = {
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_p": 1.0,
    "top_k": 0,
    "min_p": 0.0,
    "max_tokens": 16,
    "min_tokens": 0,
    "stop_token_ids": [],
    "_all_stop_token_ids": [],
    "ignore_eos": False,
    "skip_reading_prefix_cache": False,
    "watermarking": False,
}
"""What the engine takes where a sampling parameter is not sent (vllm/sampling_params.py)."""

UNREAD = {
    "n": "every child is sent with 1",
    "stop": "stop strings are matched in the frontend",
    "bad_words": "the engine reads them as token ids",
    "detokenize": "texts are made in the frontend",
    "skip_special_tokens": "texts are made in the frontend",
    "spaces_between_special_tokens": "texts are made in the frontend",
    "include_stop_str_in_output": "texts are made in the frontend",
    "output_text_buffer_length": "text is held back in the frontend",
    "output_kind": "outputs are collected in the frontend",
    "stream_interval": "outputs are collected in the frontend",
    "skip_clone": "tells the frontend whether to copy the parameters",
}
"""Sampling parameters that the engine does not look at, with what they are for."""


def asked(sample):
    """Give what the engine is asked for a sample, as it understands it."""
    params = {**MEANT, **sample.get("sampling_params", {})}
    params["_all_stop_token_ids"] = sorted(params["_all_stop_token_ids"])
    structured = params.get("structured_outputs")
    if structured is not None:
        params["structured_outputs"] = {
            key: value for key, value in structured.items() if value not in (None, False)
        }
    params = {key: value for key, value in sorted(params.items()) if key not in UNREAD}
    return {**sample, "sampling_params": params}
