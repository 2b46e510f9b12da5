"""A request in tokens."""

import time

import msgspec

from umbel_engine import SamplingParams


class GenerateRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate from, for every sample alike.

    `request_id` is the caller's id, carried to the engine on every child.  `response_id` is the
    id that `Llm.abort` takes; several requests may share one (the prompts of a completion), and
    it defaults to the request id.  `arrival_time` is in seconds of the wall clock, now by default.  A sample is
    handed over every `stream_interval` tokens, or, with None, only at its end.  `reasoning_ended`
    says whether structured outputs hold from the first token on; with None the engine finds out
    with its own reasoning parser, which `reasoning_parser_kwargs` are for.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling_params: SamplingParams
    arrival_time: float = msgspec.field(default_factory=time.time)
    response_id: str | None = None
    stream_interval: int | None = 1
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    priority: int = 0
    session_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, object] | None = None
    trace_headers: dict[str, str] | None = None
