"""Tokens in, tokens out, n times."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

import msgspec

from umbel_engine import (
    ABORTED,
    EngineClient,
    EngineCoreRequest,
    Fanout,
    Sample,
    Samples,
    SchedulerStats,
    Stage,
    TokenDelta,
    TokenStage,
)
from umbel_llm.child import ChildStage
from umbel_llm.fanout import children
from umbel_llm.inflight import InFlight
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats
from umbel_llm.request import GenerateRequest

ItemT = TypeVar("ItemT")

StageFactory = Callable[[ChildStats], Stage[ItemT]]
"""Makes the stage of one child; the layer above decides what comes out of a sample."""


def token_stage(stats: ChildStats) -> TokenStage:
    """Make the stage that hands tokens over as they are."""
    return TokenStage()


class Llm:
    """Generates samples of token prompts on the engines of a client.

    `metrics` collects the statistics of the requests; without it nothing is exposed.
    """

    def __init__(self, client: EngineClient, metrics: LlmMetrics | None = None) -> None:
        self.client = client
        self.metrics = (
            metrics if metrics is not None else LlmMetrics.of(client, "", log_stats=False)
        )
        self.in_flight = InFlight()
        client.step_listener = self.metrics.on_step

    def update_stats(self, engine_index: int, stats: SchedulerStats) -> None:
        """Take over the state of a scheduler that told it to another client of the same engines.

        What it did since its last message is counted there.
        """
        self.client.update_stats(engine_index, stats)
        self.metrics.tally(engine_index).take_over(stats)

    def generate(self, request: GenerateRequest) -> Samples[TokenDelta]:
        """Prepare the one sample of a request; the same as `generate_n` with n = 1."""
        return self.generate_n(request, 1)

    def generate_n(self, request: GenerateRequest, n: int) -> Samples[TokenDelta]:
        """Prepare n samples of a request, in index order.

        Nothing is sent before the samples are entered with `async with`.  Raises ValueError when
        n is less than 1 and InvalidRankError when no engine has the request's rank.
        """
        return self.generate_with(request, n, token_stage)

    def generate_with(
        self, request: GenerateRequest, n: int, stage: StageFactory[ItemT]
    ) -> Samples[ItemT]:
        """Prepare n samples whose items come out of stages of the caller's, one per child."""
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}.")
        self.client.check_rank(request.data_parallel_rank)
        response_id = request.response_id or request.request_id
        parent = ParentStats(self.metrics, n)
        request = self._with_max_tokens(request)
        max_tokens = request.sampling_params.max_tokens
        family = children(request.request_id, request.sampling_params.seed, n)
        stages = []
        for child in family:
            stats = ChildStats(
                self.metrics,
                parent,
                request.arrival_time,
                len(request.prompt_token_ids),
                max_tokens,
            )
            on_end = partial(self.in_flight.discard, response_id, child.request_id)
            stages.append(ChildStage(stage(stats), stats, on_end))
        on_open = partial(self.in_flight.add, response_id)
        fanout = Fanout(_engine_request(request), family, on_open)
        return self.client.fan_out(fanout, stages, request.stream_interval)

    def _with_max_tokens(self, request: GenerateRequest) -> GenerateRequest:
        """Let a request without a limit go on to the end of the context, as in vLLM."""
        if request.sampling_params.max_tokens is not None:
            return request
        room = max(self.client.max_model_len - len(request.prompt_token_ids), 1)
        params = msgspec.structs.replace(request.sampling_params, max_tokens=room)
        return msgspec.structs.replace(request, sampling_params=params)

    def abort(self, response_ids: Iterable[str]) -> int:
        """Abort responses by their ids, with all their samples; gives the number of samples.

        Readers of the samples get the finish reason "abort".  Unknown ids are ignored.
        """
        aborted: list[Sample[object]] = []
        for response_id in dict.fromkeys(response_ids):
            aborted += self.in_flight.children(response_id)
        self.client.abort(aborted)
        for sample in aborted:
            sample.end(ABORTED)
        return len(aborted)


def _engine_request(request: GenerateRequest) -> EngineCoreRequest:
    return EngineCoreRequest(
        request_id=request.request_id,
        prompt_token_ids=request.prompt_token_ids,
        sampling_params=request.sampling_params,
        arrival_time=request.arrival_time,
        cache_salt=request.cache_salt,
        data_parallel_rank=request.data_parallel_rank,
        priority=request.priority,
        trace_headers=request.trace_headers,
        external_req_id=request.request_id,
        session_id=request.session_id,
    )
