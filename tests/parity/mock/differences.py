"""Where umbel differs from the reference on purpose: the one list, with reasons.

A difference rewrites a pair of answers, the reference's and umbel's, so that they are equal if
nothing else differs.  Where one applies to a row and the pair is equal without it, a test fails.
"""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from .observed import Answer, events_of
from .rows import Row

FAILURE = "list index out of range"
"""What vLLM answers where it looks for log-probabilities that are not there."""

Pair = tuple[Answer, Answer]


class Difference(NamedTuple):
    """Why answers differ, to which rows it applies, and how the pair becomes comparable."""

    reason: str
    concerns: Callable[[Row, Answer], bool]
    settle: Callable[[Answer, Answer], Pair]


def named(pattern):
    """Choose rows by their names."""
    return lambda row, vllm: re.fullmatch(pattern, row.name) is not None


def worded_by_pydantic(row, vllm):
    """Choose faults whose words are those of vLLM's libraries."""
    told_otherwise = re.search(
        r"'type': '(json_invalid|dataclass_type|value_error)'"
        r"|body\.(messages\.\d|response_format|tool_choice|0)\.",
        vllm.text,
    )
    return vllm.status == 400 and "'msg': " in vllm.text and told_otherwise is None


def failing_stream(row, vllm):
    """Choose streams that tell of an error before any text."""
    events = events_of(vllm.text, vllm.headers) or []
    spoken = [event for event in events if '"role":"assistant","content":""' not in event]
    return spoken[:1] != [] and spoken[0].startswith('{"error":') and FAILURE not in spoken[0]


def without_words(vllm, umbel):
    """Compare faults by their number, types, places and inputs."""

    def silent(answer):
        return answer._replace(
            text=re.sub(r"'msg': ('[^']*'|\\\"[^\"]*\\\")", "'msg': ...", answer.text)
        )

    return silent(vllm), silent(umbel)


def without_message(vllm, umbel):
    """Compare errors by status, type and parameter."""
    return only(vllm, ("type", "param", "code")), only(umbel, ("type", "param", "code"))


def type_alone(vllm, umbel):
    """Compare errors by status and type."""
    return only(vllm, ("type", "code")), only(umbel, ("type", "code"))


def only(answer, keys):
    """Leave these keys of an error; what is no error stays as it is."""
    if not answer.text.startswith('{"error":{'):
        return answer
    error = json.loads(answer.text)["error"]
    return answer._replace(text=json.dumps({key: error[key] for key in keys}))


def real_status(vllm, umbel):
    """Take the error of a stream for an answer with its status."""
    events = events_of(vllm.text, vllm.headers)
    (error,) = (json.loads(event)["error"] for event in events if event.startswith('{"error"'))
    if error["code"] == 503 and error["type"] == "InternalServerError":
        # So a chat says it within a stream alone.
        error = {**error, "type": "ServiceUnavailableError"}
    text = json.dumps({"error": error}, separators=(",", ":"), ensure_ascii=False)
    headers = {**vllm.headers, "Content-Type": "application/json"}
    return vllm._replace(status=error["code"], headers=headers, text=text), umbel


def refused(vllm, umbel):
    """Take umbel's word where it refuses what vLLM answers, or answers with a failure."""
    return (umbel, umbel) if umbel.status == 400 and vllm.status in (200, 500) else (vllm, umbel)


def refused_alike(vllm, umbel):
    """Compare by status alone."""
    return (umbel, umbel) if umbel.status == vllm.status == 400 else (vllm, umbel)


def answered(vllm, umbel):
    """Take umbel's word where it answers what vLLM fails at."""
    failed = FAILURE in vllm.text
    return (umbel, umbel) if failed and umbel.status == 200 else (vllm, umbel)


def without(pattern):
    """Leave out what matches a pattern."""

    def settle(vllm, umbel):
        return (
            vllm._replace(text=re.sub(pattern, "", vllm.text)),
            umbel._replace(text=re.sub(pattern, "", umbel.text)),
        )

    return settle


def unsent(vllm, umbel):
    """Let vLLM have sent something before it found a fault."""
    return vllm._replace(wire=[], aborted=[]), umbel


def relative_redirect(vllm, umbel):
    """Take the server's name off a redirect."""
    location = re.sub(r"^http://[^/]*", "", vllm.headers["Location"])
    return vllm._replace(headers={**vllm.headers, "Location": location}), umbel


def traced(vllm, umbel):
    """Let umbel send trace headers."""
    wire = [
        {key: value for key, value in sample.items() if key != "trace_headers"}
        for sample in umbel.wire
    ]
    return vllm, umbel._replace(wire=wire)


def siblings_aborted(vllm, umbel):
    """Let umbel abort what vLLM lets run to its end."""
    return (vllm._replace(aborted=umbel.aborted) if not vllm.aborted else vllm), umbel


def more_said(vllm, umbel):
    """Let umbel say more than vLLM before an error."""
    left = Counter(events_of(vllm.text, vllm.headers))
    kept = []
    for event in events_of(umbel.text, umbel.headers):
        if left[event]:
            left[event] -= 1
            kept.append(event)
    return vllm, umbel._replace(text="".join(f"data: {event}\n\n" for event in kept))


def changed_wire(change):
    """Rewrite what vLLM asks the engine for a sample."""
    return lambda vllm, umbel: (vllm._replace(wire=[change(one) for one in vllm.wire]), umbel)


def changed_params(change):
    """Rewrite the sampling parameters that vLLM sends."""
    return changed_wire(
        lambda sample: {**sample, "sampling_params": change(dict(sample["sampling_params"]))}
    )


def wrapped_seed(params):
    params["seed"] = (params["seed"] + 2**63) % 2**64 - 2**63
    return params


def no_prompt_logprobs(params):
    params.pop("prompt_logprobs", None)
    params["skip_reading_prefix_cache"] = False
    return params


DIFFERENCES = [
    Difference(
        "What a library words for vLLM is said in words of our own.",
        worded_by_pydantic,
        without_words,
    ),
    Difference(
        "An error before the first token of a stream gets its status.",
        failing_stream,
        real_status,
    ),
    Difference(
        "A message that fits none of the roles has one fault, not one for each role.",
        named(
            "chat: (a word for a message|a message without a role|null content"
            "|a number for content)"
        ),
        without_message,
    ),
    Difference(
        "A format that is none of the known ones has one fault, not one for each of them.",
        named(".*: (an unknown format|a format without a type)"),
        without_message,
    ),
    Difference(
        "A part of a message that is none of the known ones has one fault.",
        named("chat: an unknown part"),
        type_alone,
    ),
    Difference(
        "What the compiler says of a regular expression is told without the place in its source.",
        named(".*: a regex that is none(, streamed)?"),
        without(r"\[TIME\] <path>:\d+: "),
    ),
    Difference(
        "A piece of a character that ends a prompt is not repeated in the answer.",
        named("completion: prompts that end within a character"),
        without("\ufffd"),
    ),
    Difference(
        "Every prompt of a list is checked before the engine gets the first.",
        named("completion: an empty prompt among others"),
        unsent,
    ),
    Difference(
        "What vLLM adds for one family of chat templates is not there.",
        named("chat: rendered( with (parameters|stop strings( shown)?))?"),
        without('"cohere_format":"cmd4",'),
    ),
    Difference(
        "A body that is no JSON is told in one way on every route.",
        named("invocations: no JSON"),
        type_alone,
    ),
    Difference(
        "A body that is not UTF-8 gets an error of the usual shape.",
        named("body: not UTF-8, .*"),
        refused_alike,
    ),
    Difference(
        "`best_of` means what it means to OpenAI; vLLM ignores it.",
        named("body: best of more than is asked for"),
        refused,
    ),
    Difference(
        "The version of umbel stands beside the engine's.",
        named("version"),
        without(r',"umbel_version":"[^"]*"'),
    ),
    Difference(
        "A redirect names the path alone, which is right behind a proxy too.",
        named("slash at the end"),
        relative_redirect,
    ),
    Difference(
        "What transformers adds to the tokenizer's configuration is not there.",
        named("tokenizer info: open"),
        without(
            r'"tokenizer_class":"[^"]*",|,"(name_or_path|backend)":"[^"]*"'
            r'|,"(is_local|local_files_only)":(true|false)'
        ),
    ),
    Difference(
        "Trace headers are handed on; vLLM drops them unless it sends traces itself.",
        named(".*: trace(, streamed)?"),
        traced,
    ),
    Difference(
        "The range of n is checked with the request, before its prompt is looked at.",
        named(".*: zero and more than fits"),
        type_alone,
    ),
    Difference(
        "`true` is no number.",
        named("completion: prompt that is true"),
        refused,
    ),
    Difference(
        "What is no object is a fault of the body; vLLM fails.",
        named(".*: a word for constraints"),
        refused,
    ),
    Difference(
        "What is no object is told as everywhere; vLLM tells of a class of its own.",
        named(".*: a word for repetition detection"),
        without_message,
    ),
    Difference(
        "What belongs to the whole prompt comes from choice 0, not from the one that ended last.",
        named(r".*: cached tokens|.*: transfer of the cache of two"),
        without(r'"cached_tokens":\d+|"kv_transfer_params":\{[^}]*\}'),
    ),
    Difference(
        "When a sample fails, its siblings are aborted at once, also where nobody waits for chunks.",
        named(r".*: an error (at once|later)|generate: an error"),
        siblings_aborted,
    ),
    Difference(
        "What siblings said in the step of a failure is sent before the error.",
        named(r".*: broken later, streamed"),
        more_said,
    ),
    Difference(
        "Log-probabilities that the engine left out are left out; vLLM fails.",
        named(r".*: logprobs that the engine left out(, streamed)?"),
        answered,
    ),
    Difference(
        "A rendered request always says how long the output may be; vLLM leaves out 16, which it then "
        "takes for no limit.",
        named("completion: rendered( prompts| token ids| with stop strings)?"),
        without(r'"max_tokens":16,'),
    ),
    Difference(
        "A seed wraps around at 64 bits.",
        named("chat: largest seed"),
        changed_params(wrapped_seed),
    ),
    Difference(
        "A chat that streams has no place for log-probabilities of the prompt: none are asked for.",
        named(
            r"chat: ((continued and echoed|echo of a question|echo with logprobs"
            r"|tools: (thinking, )?echo), streamed"
            r"|a role by default, echoed|no prompt logprobs in a stream)"
        ),
        changed_params(no_prompt_logprobs),
    ),
]

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
}
"""What the engine takes where a sampling parameter is not sent (vllm/sampling_params.py)."""

MEANT_IN_TAGS = {
    "style": "json",
    "any_order": False,
    "max_whitespace_cnt": None,
    "excludes": [],
    "at_least_one": False,
}
"""What xgrammar takes where a structural tag does not say it."""

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
    "watermarking": "an engine without watermarks does not look at it",
}
"""Sampling parameters that the engine does not look at, with what they are for."""


def without_defaults(node):
    return {
        key: value
        for key, value in node.items()
        if key not in MEANT_IN_TAGS or value != MEANT_IN_TAGS[key]
    }


def asked(sample):
    """Give what the engine is asked for a sample, as it understands it."""
    params = {**MEANT, **sample.get("sampling_params", {})}
    scored = [params.get(name) for name in ("prompt_logprobs", "prompt_logprob_token_ids")]
    params.setdefault("skip_reading_prefix_cache", any(item is not None for item in scored))
    # To the engine they are sets.
    for key in ("stop_token_ids", "_all_stop_token_ids"):
        params[key] = sorted(params[key])
    for key in ("structured_outputs", "repetition_detection"):
        if params.get(key) is not None:
            params[key] = {name: item for name, item in params[key].items() if item}
    tag = (params.get("structured_outputs") or {}).get("structural_tag")
    if tag is not None:
        form = json.loads(tag, object_hook=without_defaults)
        params["structured_outputs"] = {**params["structured_outputs"], "structural_tag": form}
    params = {key: value for key, value in sorted(params.items()) if key not in UNREAD}
    return {**sample, "sampling_params": params}
