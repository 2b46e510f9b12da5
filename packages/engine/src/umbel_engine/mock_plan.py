"""What a request will get from the mock engine command, encoded before it is sent.

The cost of a mock engine is the encoding of its outputs.  Here all of an output but the request's
id is encoded once for each of a pool of random token ids; a request is a stretch of that pool.
"""

import itertools
import random
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from umbel_engine.messages import Logprobs
from umbel_engine.mock_run import as_prompt_logprobs, like_torch
from umbel_engine.mock_scenario import Rule
from umbel_engine.mock_script import made_up_logprobs, made_up_scores
from umbel_engine.tensors import inline_array
from umbel_engine.wire import (
    EVENT_QUEUED,
    EVENT_SCHEDULED,
    FINISH_REASONS,
    EngineCoreOutput,
    EngineCoreRequest,
    EngineEvent,
    FinishReason,
    LogprobsArrays,
    PrefillStats,
    RequestFault,
    SamplingParams,
)

POOL_SIZE = 1 << 16

_encoder = msgspec.msgpack.Encoder()
_OUTPUT_HEADER = b"\xdc\x00\x13"  # an array of 19 elements
_EMPTY_ID = b"\xa0"


def head(request_id: str) -> bytes:
    """Encode the part of an output that comes before its body."""
    return _OUTPUT_HEADER + _encoder.encode(request_id)


def body(output: EngineCoreOutput) -> bytes:
    """Encode all of an output but its id, which must be empty."""
    return _encoder.encode(output)[len(_OUTPUT_HEADER) + len(_EMPTY_ID) :]


def failure(message: str, code: str | None = None) -> bytes:
    """Encode the body of an output that refuses its request."""
    return body(_last((), "error", error=RequestFault(message, code)))


class Plan(NamedTuple):
    """The bodies of all outputs of a request, one per engine step from step `delay` on."""

    bodies: Iterator[bytes]
    step_count: int
    delay: int


class Planner:
    """Plans the answers of an engine.

    Token ids are drawn from `range(vocab_size)`, `chunk_size` per step; the same `seed` and
    request give the same ones.  `max_model_len` is where a request without max_tokens ends.
    """

    def __init__(self, vocab_size: int, chunk_size: int, seed: str, max_model_len: int) -> None:
        generator = random.Random(seed)  # noqa: S311
        self._seed = seed
        self._chunk_size = chunk_size
        self._max_model_len = max_model_len
        self._ids = [generator.choices(range(vocab_size), k=chunk_size) for _ in range(POOL_SIZE)]
        self._bodies = [body(EngineCoreOutput("", ids)) for ids in self._ids]

    def plan(self, request: EngineCoreRequest, params: SamplingParams, rule: Rule) -> Plan:
        """Plan the answer to a request."""
        if rule.error is not None:
            bodies = [body(_last((), "error", error=rule.error))]
            return Plan(iter(bodies), 1, rule.delay_steps)
        limit = self._limit(request, params)
        start = self._start(request, params)
        wants_logprobs = params.logprobs is not None or params.prompt_logprobs is not None
        if rule.token_ids is None and rule.eos_after is None and not wants_logprobs:
            return self._random(request, params, start, rule)
        token_ids, finish, stop_reason = self._tokens(limit, start, params, rule)
        size = self._chunk_size
        last = max(0, len(token_ids) - 1) // size * size

        def output(start: int) -> EngineCoreOutput:
            ids = list(token_ids[start : start + size])
            made = EngineCoreOutput("", ids, _sampled(ids, params))
            if start == last:
                made = _end(made, finish, stop_reason, rule.kv_transfer_params)
            return made if start else _begin(made, request, rule, params)

        # One by one, when their time has come: most requests of a load may be aborted before.
        starts = range(0, last + 1, size)
        return Plan(map(body, map(output, starts)), len(starts), rule.delay_steps)

    def _random(
        self, request: EngineCoreRequest, params: SamplingParams, start: int, rule: Rule
    ) -> Plan:
        """Plan random tokens up to the limit; only the ends are encoded for this request."""
        limit = self._limit(request, params)
        count = -(-limit // self._chunk_size)
        rest = limit - (count - 1) * self._chunk_size
        last = EngineCoreOutput("", self._ids[(start + count - 1) % POOL_SIZE][:rest])
        last = _end(last, "length", None, rule.kv_transfer_params)
        bodies: Iterable[bytes]
        if count == 1:
            bodies = (body(_begin(last, request, rule, params)),)
        else:
            first = body(_begin(EngineCoreOutput("", self._ids[start]), request, rule, params))
            bodies = itertools.chain((first,), self._stretch(start + 1, count - 2), (body(last),))
        return Plan(iter(bodies), count, rule.delay_steps)

    def _stretch(self, start: int, count: int) -> Iterable[bytes]:
        stretch = self._bodies[start : start + count]
        if len(stretch) == count:
            return stretch
        again = itertools.chain.from_iterable(itertools.repeat(self._bodies))
        return itertools.chain(stretch, itertools.islice(again, count - len(stretch)))

    def _tokens(
        self, limit: int, start: int, params: SamplingParams, rule: Rule
    ) -> tuple[Sequence[int], FinishReason, int | str | None]:
        if rule.token_ids is not None:
            if len(rule.token_ids) > limit:
                return rule.token_ids[:limit], "length", None
            return rule.token_ids, rule.finish, rule.stop_reason
        eos = params.eos_token_id
        before = limit
        if rule.eos_after is not None and eos is not None:
            before = max(rule.eos_after, params.min_tokens)
        pool = itertools.chain.from_iterable(
            self._ids[(start + i) % POOL_SIZE] for i in range(min(before, limit))
        )
        token_ids = list(itertools.islice(pool, min(before, limit)))
        if before < limit and eos is not None:
            return [*token_ids, eos], "stop", None
        return token_ids, "length", None

    def _limit(self, request: EngineCoreRequest, params: SamplingParams) -> int:
        room = self._max_model_len - len(request.prompt_token_ids or ())
        return max(1, room if params.max_tokens is None else min(params.max_tokens, room))

    def _start(self, request: EngineCoreRequest, params: SamplingParams) -> int:
        own = request.request_id if params.seed is None else params.seed
        return zlib.crc32(f"{self._seed} {own}".encode()) % POOL_SIZE


def _last(
    token_ids: Sequence[int], finish: FinishReason, error: RequestFault | None = None
) -> EngineCoreOutput:
    code = FINISH_REASONS.index(finish)
    return EngineCoreOutput("", list(token_ids), finish_reason=code, error=error)


def _begin(
    output: EngineCoreOutput, request: EngineCoreRequest, rule: Rule, params: SamplingParams
) -> EngineCoreOutput:
    """Add what only the first output of a request has."""
    now = time.monotonic()
    prompt = request.prompt_token_ids or []
    cached = min(rule.cached_tokens, max(0, len(prompt) - 1))
    logprobs, scores = params.prompt_logprobs, made_up_scores(params)
    return msgspec.structs.replace(
        output,
        new_prompt_logprobs_tensors=None
        if logprobs is None
        else as_prompt_logprobs(_inline(made_up_logprobs(prompt[1:], logprobs))),
        events=[EngineEvent(EVENT_QUEUED, now), EngineEvent(EVENT_SCHEDULED, now)],
        prefill_stats=PrefillStats(len(prompt), len(prompt) - cached, cached, cached),
        prompt_token_id_logprobs=None if scores is None else like_torch(inline_array(scores)),
    )


def _end(
    output: EngineCoreOutput,
    finish: FinishReason,
    stop_reason: int | str | None,
    kv_transfer_params: dict[str, object] | None,
) -> EngineCoreOutput:
    """Add what only the last output of a request has."""
    return msgspec.structs.replace(
        output,
        finish_reason=FINISH_REASONS.index(finish),
        stop_reason=stop_reason,
        kv_transfer_params=kv_transfer_params,
    )


def _sampled(token_ids: Sequence[int], params: SamplingParams) -> LogprobsArrays | None:
    if params.logprobs is None:
        return None
    return _inline(made_up_logprobs(token_ids, params.logprobs))


def _inline(logprobs: Logprobs) -> LogprobsArrays:
    # A frame of its own would have to know its place in a message that is not made yet.
    return LogprobsArrays(
        inline_array(logprobs.token_ids),
        inline_array(logprobs.logprobs),
        inline_array(logprobs.ranks),
    )
