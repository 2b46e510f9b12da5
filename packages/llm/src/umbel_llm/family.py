"""The children of one request: what is known of them while they run, and counted at their end."""

import time
from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from umbel_engine import Child, FinishReason, OpenFanout, Stage
from umbel_llm.admission import Admission
from umbel_llm.child import ChildStage
from umbel_llm.inflight import InFlight
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats
from umbel_llm.request import GenerateRequest

ItemT = TypeVar("ItemT")

RequestListener = Callable[["RequestSummary"], None]
"""Is told of every request that has ended, in the task that waited for it."""

StageFactory = Callable[[ChildStats], Stage[ItemT]]
"""Makes the stage of one child; the layer above decides what comes out of a sample."""


class RequestSummary(msgspec.Struct, frozen=True):
    """What became of n samples of a prompt.

    `finish_reasons` has the number of samples that ended for each reason.  Times are in seconds
    from the request's arrival; that of the first token is None when there was none.
    """

    response_id: str
    n: int
    num_prompt_tokens: int
    num_generation_tokens: int
    finish_reasons: dict[str, int]
    time_to_first_token: float | None
    duration: float


class Family(Generic[ItemT]):
    """Makes the stages of n children and keeps the layer's tables of them.

    All children are let in together when the fan-out opens, or none: `open` raises QueueFullError.
    """

    def __init__(
        self,
        request: GenerateRequest,
        n: int,
        stage: StageFactory[ItemT],
        metrics: LlmMetrics,
        admission: Admission,
        in_flight: InFlight,
        listener: RequestListener | None,
    ) -> None:
        self._request = request
        self._stage = stage
        self._metrics = metrics
        self._admission = admission
        self._in_flight = in_flight
        self._listener = listener
        self._parent = ParentStats(metrics, n)
        self._prompt_tokens = len(request.prompt_token_ids)
        self._response_id = request.response_id or request.request_id
        self._n = n
        self._made = 0
        self._unfinished = n
        self._first_output: float | None = None
        self._generated = 0
        self._reasons: dict[str, int] = {}
        self._fanout: OpenFanout[ItemT] | None = None

    def open(self, fanout: OpenFanout[ItemT], is_first: bool) -> None:
        """Let the children in; called before the first is made."""
        # What is let in together does not stand in its own way.
        self._admission.check(self._n, with_backlog=is_first)
        self._admission.enter(self._n, self._prompt_tokens)
        self._in_flight.add(self._response_id, fanout)
        self._fanout = fanout

    def new_stage(self, child: Child) -> ChildStage[ItemT]:
        """Make the stage of the next child."""
        request = self._request
        stats = ChildStats(
            self._metrics,
            self._parent,
            request.arrival_time,
            self._prompt_tokens,
            request.sampling_params.max_tokens,
        )
        stage = ChildStage(self._stage(stats), stats, self)
        self._made += 1
        return stage

    def child_prefilled(self) -> None:
        """Count the prompt of a child as read; see `Parent`."""
        self._admission.prefilled(self._prompt_tokens)
        if self._first_output is None:
            self._first_output = time.time()

    def child_ended(self, reason: FinishReason, num_generation_tokens: int) -> None:
        """Count a child as ended; see `Parent`."""
        self._admission.leave()
        self._generated += num_generation_tokens
        self._reasons[reason] = self._reasons.get(reason, 0) + 1
        self._unfinished -= 1
        if self._unfinished == 0:
            # There is nothing left to abort, however long the answer may still be read.
            self._forget()

    def close(self) -> None:
        """Forget the children; called when none runs any more, also of those never made."""
        unmade = self._n - self._made
        self._admission.prefilled(unmade * self._prompt_tokens)
        self._admission.leave(unmade)
        if self._unfinished:
            self._forget()
        if self._listener is not None:
            self._listener(self._summary())

    def _forget(self) -> None:
        assert self._fanout is not None
        self._in_flight.discard(self._response_id, self._fanout)
        # It has this family as its own; together they would wait for the garbage collector.
        self._fanout = None

    def _summary(self) -> RequestSummary:
        arrival = self._request.arrival_time
        first = self._first_output if self._generated else None
        return RequestSummary(
            self._response_id,
            self._n,
            self._prompt_tokens,
            self._generated,
            self._reasons,
            None if first is None else first - arrival,
            time.time() - arrival,
        )
