"""A request that is running in a mock engine: its next step, and that step as a wire output."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator

import msgspec
import numpy as np

from umbel_engine.messages import Logprobs
from umbel_engine.mock_script import MockStep, Script
from umbel_engine.tensors import WireArray, from_array
from umbel_engine.wire import (
    EVENT_QUEUED,
    EVENT_SCHEDULED,
    FINISH_REASONS,
    EngineCoreOutput,
    EngineCoreRequest,
    EngineEvent,
    LogprobsArrays,
    PrefillStats,
)

Spawn = Callable[[Coroutine[object, object, None]], "asyncio.Task[None]"]


class PromptLogprobs(LogprobsArrays, frozen=True):
    """Prompt log-probabilities have one element more than those of samples, and torch's types."""

    cu_num_generated_tokens_cpu: object = None


class Run:
    """Takes the steps of one request from its script.

    `queued_at` is on the engine's clock.  `wake` is called when a step that was held back is
    free, `spawn` starts a task that the engine watches.
    """

    def __init__(
        self,
        request: EngineCoreRequest,
        script: Script,
        queued_at: float,
        wake: Callable[[], None],
        spawn: Spawn,
    ) -> None:
        self.request = request
        self._queued_at = queued_at
        self._wake = wake
        self._spawn = spawn
        self._is_first = True
        self._step: MockStep | None = None
        self._task: asyncio.Task[None] | None = None
        steps = script(request)
        self._steps: Iterator[MockStep] | None = None
        self._awaited: AsyncIterator[MockStep] | None = None
        if isinstance(steps, AsyncIterator):
            self._awaited = steps
            self._task = spawn(self._fetch(steps))
        else:
            self._steps = iter(steps)

    def take(self) -> MockStep | None:
        """Give the next step; None while it is held back, or when the script has no more."""
        if self._step is None and self._steps is not None:
            self._step = next(self._steps, None)
        if self._task is not None and not self._task.done():
            return None
        step = self._step
        if step is None:
            return None
        if step.wait is not None and not step.wait.is_set():
            self._task = self._spawn(self._hold(step.wait))
            return None
        self._step = None
        if self._awaited is not None:
            self._task = self._spawn(self._fetch(self._awaited))
        return step

    def close(self) -> None:
        """Ask the script for nothing more."""
        if self._task is not None:
            self._task.cancel()

    def output(
        self, step: MockStep, frames: list[bytes], now: float, log_stats: bool
    ) -> EngineCoreOutput:
        """Write a step for the wire; large arrays are appended to `frames`."""
        events = list(step.events)
        prefill = step.prefill
        if self._is_first:
            self._is_first = False
            if log_stats:
                queued = EngineEvent(EVENT_QUEUED, self._queued_at)
                events[:0] = [queued, EngineEvent(EVENT_SCHEDULED, now)]
            count = len(self.request.prompt_token_ids or ())
            prefill = prefill or PrefillStats(count, count)
        logprobs = _write_logprobs(step.logprobs, frames)
        prompt_logprobs = _write_logprobs(step.prompt_logprobs, frames)
        return EngineCoreOutput(
            self.request.request_id,
            list(step.token_ids),
            logprobs,
            None if prompt_logprobs is None else as_prompt_logprobs(prompt_logprobs),
            finish_reason=None if step.reason is None else FINISH_REASONS.index(step.reason),
            stop_reason=step.stop_reason,
            events=events or None,
            kv_transfer_params=step.kv_transfer_params,
            ec_transfer_params=step.ec_transfer_params,
            routed_experts=None
            if step.routed_experts is None
            else from_array(step.routed_experts, frames),
            prefill_stats=prefill,
            prompt_token_id_logprobs=None
            if step.prompt_token_id_logprobs is None
            else like_torch(from_array(step.prompt_token_id_logprobs, frames)),
            error=step.error,
        )

    async def _hold(self, wait: asyncio.Event) -> None:
        await wait.wait()
        self._wake_later()

    async def _fetch(self, steps: AsyncIterator[MockStep]) -> None:
        self._step = await anext(steps, None)
        self._wake_later()

    def _wake_later(self) -> None:
        # The task is done only after it has returned.
        asyncio.get_running_loop().call_soon(self._wake)


def _write_logprobs(logprobs: Logprobs | None, frames: list[bytes]) -> LogprobsArrays | None:
    if logprobs is None:
        return None
    return LogprobsArrays(
        from_array(logprobs.token_ids, frames),
        from_array(logprobs.logprobs, frames),
        from_array(logprobs.ranks, frames),
    )


def as_prompt_logprobs(arrays: LogprobsArrays) -> PromptLogprobs:
    """Give arrays the types and the length of the prompt's log-probabilities."""
    return PromptLogprobs(
        like_torch(arrays.token_ids), like_torch(arrays.logprobs), like_torch(arrays.ranks)
    )


def like_torch(array: WireArray) -> WireArray:
    """Give an array the type that torch's have."""
    return msgspec.structs.replace(array, dtype=np.dtype(array.dtype).name)
