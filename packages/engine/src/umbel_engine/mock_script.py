"""What a mock engine answers: steps, and scripts that give them for a request.

A script is called with each request and gives its steps.  `tokens` writes the steps of the plain
case, `per_child` tells siblings apart, and `sampled` draws token ids as a model would.
"""

import asyncio
import random
import re
import zlib
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from umbel_engine.messages import Logprobs
from umbel_engine.tensors import to_array
from umbel_engine.wire import (
    EngineCoreRequest,
    EngineEvent,
    FinishReason,
    PrefillStats,
    RequestFault,
    SamplingParams,
)


class MockStep(msgspec.Struct, frozen=True, kw_only=True):
    """What one engine step brings for one request.

    `logprobs` has one row per token id, `prompt_logprobs` one per prompt position from 1 on,
    `prompt_token_id_logprobs` one per row of the request's `prompt_logprob_token_ids`.
    `finish` ends the request; with "error", `error` is the engine's error object (None: an error
    without one, as 0.32 sends it), and an `error` alone implies the finish.  `stop_reason` is None
    for an end-of-sequence token.  `prefill` replaces the statistics of a first output (nothing
    cached), `events` are added to its QUEUED and SCHEDULED.  The step is held back until `wait` is
    set.
    """

    token_ids: Sequence[int] = ()
    logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None
    prompt_token_id_logprobs: NDArray[np.float32] | None = None
    finish: FinishReason | None = None
    stop_reason: int | str | None = None
    error: RequestFault | None = None
    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None
    routed_experts: NDArray[np.generic] | None = None
    prefill: PrefillStats | None = None
    events: Sequence[EngineEvent] = ()
    wait: asyncio.Event | None = None

    @property
    def reason(self) -> FinishReason | None:
        """Why the request ends with this step; None while it goes on."""
        return "error" if self.error is not None else self.finish


Script = Callable[[EngineCoreRequest], Iterable[MockStep] | AsyncIterator[MockStep]]
"""Gives the steps of a request; one that ends without a finish leaves the request running."""


def tokens(
    *token_ids: int,
    finish: FinishReason | None = "length",
    stop_reason: int | str | None = None,
    wait: asyncio.Event | None = None,
) -> list[MockStep]:
    """Write steps of one token each, the last one with the finish.

    With `wait`, every step after the first is held back until it is set.  Without any token there
    is one step, which brings the finish alone.
    """
    steps = [
        MockStep(token_ids=(token_id,), wait=wait if position else None)
        for position, token_id in enumerate(token_ids)
    ]
    last = steps.pop() if steps else MockStep()
    steps.append(msgspec.structs.replace(last, finish=finish, stop_reason=stop_reason))
    return steps


def child_index(request: EngineCoreRequest) -> int:
    """Give the index of a sample among its siblings, read from its id; 0 for a single one.

    The ids of siblings are `{index}_{id}` (vllm/v1/engine/parallel_sampling.py).
    """
    found = re.match(r"(\d+)_", request.request_id)
    external = request.external_req_id
    if found is None or (external is not None and request.request_id.startswith(external)):
        return 0
    return int(found[1])


def per_child(*answers: Iterable[MockStep]) -> Script:
    """Give the siblings of a request one answer each, in index order, and then from the start."""

    def script(request: EngineCoreRequest) -> Iterable[MockStep]:
        return answers[child_index(request) % len(answers)]

    return script


def sampled(
    vocabulary: range = range(100, 1000), default_tokens: int = 16, eos_after: int | None = None
) -> Script:
    """Draw token ids as a model would, the same ones every time.

    They depend on the prompt and on the seed or, without one, on the index of the sample; greedy
    requests depend on the prompt alone.  Allowed token ids, end-of-sequence and stop tokens,
    min_tokens and max_tokens (`default_tokens` where a request has none) are honoured as the
    engine does it (vllm/v1/core/sched/utils.py); with `eos_after`, the end-of-sequence token comes
    after that many tokens.  Log-probabilities are made up where they are asked for.
    """

    def script(request: EngineCoreRequest) -> Iterator[MockStep]:
        params = request.sampling_params or SamplingParams()
        generator = random.Random(_source(request, params))  # noqa: S311
        candidates: Sequence[int] = params.allowed_token_ids or vocabulary
        unending = _without_stops(candidates, params)
        prompt_logprobs = _prompt_logprobs(request, params, vocabulary)
        scores = made_up_scores(params)
        max_tokens = params.max_tokens or default_tokens
        for count in range(1, max_tokens + 1):
            may_end = count > params.min_tokens
            token_id = generator.choice(candidates if may_end else unending)
            if may_end and eos_after is not None and count > eos_after:
                token_id = token_id if params.eos_token_id is None else params.eos_token_id
            finish, stop_reason = _finish_of(token_id, count, max_tokens, params)
            yield MockStep(
                token_ids=(token_id,),
                logprobs=_logprobs(token_id, params, vocabulary),
                prompt_logprobs=prompt_logprobs if count == 1 else None,
                prompt_token_id_logprobs=scores if count == 1 else None,
                finish=finish,
                stop_reason=stop_reason,
            )
            if finish is not None:
                return

    return script


def made_up_logprobs(
    token_ids: Sequence[int], count: int, vocabulary: range = range(100, 1000)
) -> Logprobs:
    """Make up log-probabilities: per token its own column and `count` others (-1: all), falling.

    The token is the most likely one of its row, and its value depends on nothing but its id.
    """
    if count < 0:
        count = len(vocabulary)
    ids = np.empty((len(token_ids), count + 1), np.int64)
    values = np.empty((len(token_ids), count + 1), np.float32)
    for row, token_id in enumerate(token_ids):
        others = (vocabulary[(token_id + i) % len(vocabulary)] for i in range(1, count))
        ids[row] = [token_id, token_id, *others][: count + 1]
        best = -0.1 - (token_id % 7) / 10
        values[row] = [best, *(best - i for i in range(count))]
    return Logprobs(ids, values, np.ones(len(token_ids), np.int64))


def made_up_scores(params: SamplingParams) -> NDArray[np.float32] | None:
    """Make up the log-probabilities of `prompt_logprob_token_ids`; -inf where a row is shorter."""
    if params.prompt_logprob_token_ids is None:
        return None
    ids = to_array(params.prompt_logprob_token_ids, ()).astype(np.int32)
    return np.where(ids < 0, -np.inf, -0.1 - ids % 7 / 10).astype(np.float32)


def _logprobs(token_id: int, params: SamplingParams, vocabulary: range) -> Logprobs | None:
    if not params.logprob_token_ids:
        if params.logprobs is None:
            return None
        return made_up_logprobs((token_id,), params.logprobs, vocabulary)
    ids = np.array([[token_id, *params.logprob_token_ids]])
    values = -0.1 - (ids % 7).astype(np.float32) / 10
    return Logprobs(ids, values, np.ones(1, np.int64))


def _source(request: EngineCoreRequest, params: SamplingParams) -> int:
    prompt = ",".join(map(str, request.prompt_token_ids or ()))
    if params.temperature == 0:
        source = f"greedy {prompt}"
    elif params.seed is not None:
        source = f"seed {params.seed} {prompt}"
    else:
        source = f"child {child_index(request)} {prompt}"
    # hash() of a string differs from process to process.
    return zlib.crc32(source.encode())


def _without_stops(candidates: Sequence[int], params: SamplingParams) -> Sequence[int]:
    """Mask what would end the request, as the engine's sampler does before min_tokens."""
    if not params.min_tokens:
        return candidates
    return [item for item in candidates if item not in params.all_stop_token_ids] or candidates


def _prompt_logprobs(
    request: EngineCoreRequest, params: SamplingParams, vocabulary: range
) -> Logprobs | None:
    if params.prompt_logprobs is None:
        return None
    prompt = request.prompt_token_ids or []
    return made_up_logprobs(prompt[1:], params.prompt_logprobs, vocabulary)


def _finish_of(
    token_id: int, count: int, max_tokens: int, params: SamplingParams
) -> tuple[FinishReason | None, int | None]:
    if token_id == params.eos_token_id:
        return "stop", None
    if token_id in params.stop_token_ids:
        return "stop", token_id
    return ("length" if count == max_tokens else None), None
