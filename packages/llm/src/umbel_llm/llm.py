"""Tokens in, tokens out, n times."""

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from umbel_engine import (
    EngineClient,
    EngineCoreRequest,
    Fanout,
    Samples,
    SchedulerStats,
    TokenDelta,
    TokenStage,
)
from umbel_llm.admission import Admission, AdmissionLimits, Counters
from umbel_llm.family import Family, RequestListener, StageFactory
from umbel_llm.fanout import Children
from umbel_llm.inflight import InFlight
from umbel_llm.metrics import ChildStats, LlmMetrics
from umbel_llm.request import GenerateRequest

ItemT = TypeVar("ItemT")

UNLIMITED = AdmissionLimits()


def token_stage(stats: ChildStats) -> TokenStage:
    """Make the stage that hands tokens over as they are."""
    return TokenStage()


class Llm:
    """Generates samples of token prompts on the engines of a client.

    `metrics` collects the statistics of the requests; without it nothing is exposed.  `limits` say
    how much is let in.  Clients that share the engines may share `counters`, too, one place for
    each by its index, so that the limits hold for all of them together.
    """

    def __init__(
        self,
        client: EngineClient,
        metrics: LlmMetrics | None = None,
        limits: AdmissionLimits = UNLIMITED,
        counters: Counters | None = None,
    ) -> None:
        self.client = client
        self.metrics = (
            metrics if metrics is not None else LlmMetrics.of(client, "", log_stats=False)
        )
        self.in_flight = InFlight()
        self.admission = Admission(
            limits,
            counters if counters is not None else [0] * (client.index + 1),
            client.index,
            self.metrics.admission_rejected,
        )
        self.listener: RequestListener | None = None
        self.metrics.aborted_samples = client.aborted_samples
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
        """Prepare n samples whose items come out of stages of the caller's, one per child.

        Entering them raises QueueFullError when they would be too many, and then sends none.
        """
        if n < 1:
            raise ValueError(f"n must be at least 1, got {n}.")
        self.client.check_rank(request.data_parallel_rank)
        request = self._with_max_tokens(request)
        family = Family(
            request, n, stage, self.metrics, self.admission, self.in_flight, self.listener
        )
        fanout = Fanout(
            _engine_request(request),
            Children(request.request_id, request.sampling_params.seed, n),
            family.new_stage,
            request.stream_interval,
            family.open,
            family.close,
        )
        return self.client.fan_out(fanout)

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
        return sum(
            fanout.abort()
            for response_id in dict.fromkeys(response_ids)
            for fanout in self.in_flight.fanouts(response_id)
        )


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
        reasoning_ended=request.reasoning_ended,
        reasoning_parser_kwargs=request.reasoning_parser_kwargs,
    )
