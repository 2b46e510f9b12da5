"""What is observed of a row: the answer that the client got, and what the engine was asked.

Whatever differs from run to run is put aside: ids, times and the fingerprint, each replaced by a
word that is the same for every well-formed one.
"""

import json
import math
import re
from typing import NamedTuple

import msgspec

EVENT = "data: "

TIMES = "time_to_first_token_ms|generation_time_ms|queue_time_ms|mean_itl_ms|tokens_per_second"

OWN_VALUES = (
    (
        r'"(id|request_id)": ?"((?:chatcmpl|chatcmpl-tool|cmpl|generate-tokens|modelperm)-)[0-9a-f]{16,32}((?:-\d+)?)"',
        r'"\1":"\2ID\3"',
    ),
    (r'"created": ?\d{10}\b', '"created":0'),
    (
        r'"system_fingerprint":"vllm-0\.33\.0-[0-9a-f]{8}"',
        '"system_fingerprint":"vllm-0.33.0-HASH"',
    ),
    (r'"[^"]*/parity"', '"MODEL"'),
    (r"\[\d\d:\d\d:\d\d\]", "[TIME]"),
    (rf'"({TIMES})": ?-?\d+(?:\.\d+)?(?:e-?\d+)?', r'"\1":0.0'),
)


class Answer(NamedTuple):
    """What a server did with a row.

    `text` is the body; `wire` has what the engine was asked for each sample, in the order of
    prompts and children; `aborted` names the samples that it was told to drop.
    """

    status: int
    headers: dict[str, str]
    text: str
    wire: list[dict[str, object]]
    aborted: list[str]


COMPARED_HEADERS = (
    "Content-Type",
    "Allow",
    "Location",
    "X-Request-Id",
    "WWW-Authenticate",
    "Access-Control-Allow-Origin",
    "Access-Control-Allow-Methods",
    "Access-Control-Allow-Headers",
    "Access-Control-Max-Age",
    "endpoint-load-metrics",
)


def normal_headers(headers):
    """Give the headers that are compared, with what is made up anew replaced."""
    return {
        name: re.sub(r"^[0-9a-f]{32}$", "ID", re.sub(r":\d+(?=/)", ":PORT", headers[name]))
        for name in COMPARED_HEADERS
        if name in headers
    }


def normal_text(text, headers):
    """Replace what is made up anew on every run, and put the events of each choice together."""
    for pattern, word in OWN_VALUES:
        text = re.sub(pattern, word, text)
    events = events_of(text, headers)
    if events is None:
        return text
    return "".join(f"{EVENT}{event}\n\n" for event in sorted(events, key=choice_of))


def events_of(text, headers):
    """Give the events of a stream; None of anything else."""
    if not headers.get("Content-Type", "").startswith("text/event-stream"):
        return None
    *events, rest = text.split("\n\n")
    if rest or not all(event.startswith(EVENT) for event in events):
        return None
    return [event.removeprefix(EVENT) for event in events]


def choice_of(event):
    """Give the index of the choice of an event; those of no choice come last."""
    try:
        choices = json.loads(event)["choices"]
    except (ValueError, KeyError, TypeError):
        choices = None
    return choices[0]["index"] if choices else math.inf


FIELDS = (
    "request_id",
    "prompt_token_ids",
    "mm_features",
    "sampling_params",
    "pooling_params",
    "arrival_time",
    "lora_request",
    "cache_salt",
    "data_parallel_rank",
    "prompt_embeds",
    "prompt_is_token_ids",
    "client_index",
    "current_wave",
    "priority",
    "trace_headers",
    "resumable",
    "external_req_id",
    "reasoning_ended",
    "reasoning_parser_kwargs",
    "abort_immediately",
    "session_id",
    "kv_hints",
)
"""The elements of an ADD, in order (EngineCoreRequest in vllm/v1/engine/__init__.py)."""

ABSENT = {
    "client_index": 0,
    "current_wave": 0,
    "priority": 0,
    "resumable": False,
    "abort_immediately": False,
}
"""What an element means that is not there; others mean null."""


def wire_of(payload):
    """Give what a request to the engine says, by name; its time of arrival, a float, excluded."""
    values = msgspec.msgpack.decode(payload, strict=False)
    fields = dict.fromkeys(FIELDS) | ABSENT | dict(zip(FIELDS, values, strict=False))
    external = fields["external_req_id"] or ""
    fields["request_id"] = id_shape(fields["request_id"], external)
    fields["external_req_id"] = re.sub(r"[0-9a-f]{16,32}", "ID", external)
    del fields["arrival_time"]
    told = {key: value for key, value in fields.items() if value != ABSENT.get(key)}
    # As it is recorded, where the keys of objects are texts.
    return json.loads(json.dumps(told, default=bytes_in_hex))


def bytes_in_hex(value):
    """Give the bytes of an array, which have a MessagePack type of their own."""
    return {"type": value.code, "bytes": value.data.hex()}


def id_shape(request_id, external):
    """Describe how an id is made of the external one."""
    return re.sub(r"[0-9a-f]{8}$", "HEX", request_id.replace(external, "EXTERNAL"))
