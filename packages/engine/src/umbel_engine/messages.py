"""What the layers above see of an engine's outputs: steps, finishes, token deltas."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from umbel_engine.errors import EngineError, EngineRequestError
from umbel_engine.tensors import join_arrays, to_array
from umbel_engine.wire import (
    FINISH_REASONS,
    EngineCoreOutput,
    FinishReason,
    LogprobsArrays,
    PrefillStats,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ItemT_co = TypeVar("ItemT_co", covariant=True)


class Step(msgspec.Struct, frozen=True):
    """What the outputs of one message have in common.

    `timestamp` is on the engine's monotonic clock, `received` on this host's wall clock, both in
    seconds.  `frames` are the frames of the message, for the arrays in its outputs.
    `weight_version` is the engine's label of the weights that sampled the tokens.
    """

    engine_index: int
    timestamp: float
    received: float
    frames: Sequence[bytes]
    weight_version: str | None = None


class Finish(msgspec.Struct, frozen=True):
    """How a sample ended.

    `stop_reason` is the stop string or the stop token id; None for an end-of-sequence token and
    for every other reason.  `error` is set when the reason is "error".
    """

    reason: FinishReason
    stop_reason: int | str | None = None
    error: EngineError | None = None


NUMBER_KINDS = frozenset(itertools.product("iu", "f", "iu"))
"""numpy's letters for the types that token ids, log-probabilities and ranks may have."""

ABORTED = Finish("abort")
"""The finish of a sample that its caller gave up."""


class Stage(Protocol[ItemT_co]):
    """The part of a sample that turns engine outputs into items, built by the layer above.

    `feed` takes the outputs in order, for good, and merges what they bring into the one pending
    item; it does no I/O and does not wait.  It returns the finish when the sample has ended, which may be
    before the engine thinks so (a stop string).  `end` ends the sample from this side.  `take`
    gives the pending item and begins a new one; its last item carries the finish.
    """

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None: ...

    def end(self, finish: Finish) -> None: ...

    def take(self) -> ItemT_co: ...


class Logprobs(msgspec.Struct, frozen=True):
    """Log-probabilities of consecutive positions.

    `token_ids` and `logprobs` are `[positions, k + 1]`: the sampled (or prompt) token, then the k
    most likely ones.  `ranks` is `[positions]`, the rank of the sampled token, from 1.
    """

    token_ids: NDArray[np.integer]
    logprobs: NDArray[np.floating]
    ranks: NDArray[np.integer]

    def head(self, count: int) -> Logprobs:
        """Give the first `count` positions."""
        return Logprobs(self.token_ids[:count], self.logprobs[:count], self.ranks[:count])


class WeightVersionSpan(msgspec.Struct, frozen=True):
    """The output tokens from `start` up to `end` were sampled by the weights of this label."""

    version: str
    start: int
    end: int


class Extras(msgspec.Struct, frozen=True):
    """What comes with the end of a sample beside its tokens, each None where there is none.

    The transfer parameters are what another engine needs to take over the key-value or the encoder
    cache.  `routed_experts` is `[positions, layers, experts per token]`.  `prompt_token_id_logprobs`
    is `[rows, token ids]`: the log-probabilities of `prompt_logprob_token_ids`, -inf where a row of
    those was shorter.
    """

    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None
    weight_versions: list[WeightVersionSpan] | None = None
    routed_experts: NDArray[np.generic] | None = None
    prompt_token_id_logprobs: NDArray[np.generic] | None = None


class TokenDelta(msgspec.Struct, frozen=True):
    """What a sample brought since the last hand-over, in tokens.

    `logprobs` has one row per token of `token_ids` when they were asked for.  `prompt_logprobs`
    (rows for prompt positions 1 and up) and `prefill` come once, `extras` with the finish.
    """

    token_ids: list[int]
    logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None
    prefill: PrefillStats | None = None
    extras: Extras | None = None
    finish: Finish | None = None


def read_logprobs(arrays: LogprobsArrays, frames: Sequence[bytes]) -> Logprobs:
    """Read log-probabilities from a message; raises ValueError when they are not well-formed."""
    token_ids = to_array(arrays.token_ids, frames)
    logprobs = to_array(arrays.logprobs, frames)
    ranks = to_array(arrays.ranks, frames)
    shape = token_ids.shape
    if len(shape) != 2 or shape != logprobs.shape or ranks.shape != shape[:1]:
        raise ValueError(
            f"logprobs of shapes {shape}, {logprobs.shape} and {ranks.shape} do not match"
        )
    # A position has at least the token itself.
    if shape[0] and not shape[1]:
        raise ValueError(f"logprobs of shape {shape} have no tokens")
    kinds = (token_ids.dtype.kind, logprobs.dtype.kind, ranks.dtype.kind)
    if kinds not in NUMBER_KINDS:
        raise ValueError(f"logprobs of types {', '.join(kinds)} are not numbers")
    return Logprobs(token_ids, logprobs, ranks)  # type: ignore[arg-type]


def join_logprobs(chunks: Sequence[Logprobs]) -> Logprobs:
    """Join consecutive log-probabilities, of which there must be some.

    A step of the engine has as many columns as the request in its batch that asked for the most,
    so chunks may differ in width; the narrowest has all that was asked for here.
    """
    # A chunk without positions may come without columns too.
    chunks = [chunk for chunk in chunks if len(chunk.ranks)] or chunks[:1]
    if len(chunks) == 1:
        return chunks[0]
    import numpy as np

    width = min(chunk.token_ids.shape[1] for chunk in chunks)
    return Logprobs(
        np.concatenate([chunk.token_ids[:, :width] for chunk in chunks]),
        np.concatenate([chunk.logprobs[:, :width] for chunk in chunks]),
        np.concatenate([chunk.ranks for chunk in chunks]),
    )


def finish_of(output: EngineCoreOutput) -> Finish | None:
    """Give the finish that an engine output carries, None while the sample goes on.

    Raises ValueError for a reason that no engine is known to have.
    An error without an error object is the engine's "Internal server error"
    (vllm/entrypoints/openai, GenerationError).
    """
    if output.finish_reason is None:
        return None
    if not 0 <= output.finish_reason < len(FINISH_REASONS):
        raise ValueError(f"finish reason {output.finish_reason} is not known")
    reason = FINISH_REASONS[output.finish_reason]
    if reason != "error":
        return Finish(reason, output.stop_reason)
    if output.error is None:
        return Finish(reason, error=EngineRequestError("Internal server error"))
    fault = output.error
    return Finish(reason, error=EngineRequestError(fault.message, fault.code, fault.retryable))


class TokenBuffer:
    """What outputs have brought since the last hand-over, besides what is made of it: for stages."""

    __slots__ = (
        "_ec_transfer_params",
        "_kv_transfer_params",
        "_logprobs",
        "_prefill",
        "_prompt_logprobs",
        "_prompt_token_id_logprobs",
        "_routed_experts",
        "_token_ids",
        "_weight_version",
        "_weight_version_starts",
        "count",
    )

    def __init__(self) -> None:
        self.count = 0
        """How many tokens the sample has so far."""
        self._token_ids: list[int] = []
        self._logprobs: list[Logprobs] = []
        self._prompt_logprobs: list[Logprobs] = []
        self._prefill: PrefillStats | None = None
        self._kv_transfer_params: dict[str, object] | None = None
        self._ec_transfer_params: dict[str, object] | None = None
        self._routed_experts: list[NDArray[np.generic]] = []
        self._prompt_token_id_logprobs: NDArray[np.generic] | None = None
        self._weight_version: str | None = None
        self._weight_version_starts: list[tuple[str, int]] = []

    def add(self, output: EngineCoreOutput, step: Step, count: int) -> None:
        """Merge the first `count` tokens of an output and what came with them.

        The list of tokens is taken over.  The positions of the others are the last of its routed
        experts (vllm/v1/engine/output_processor.py).
        """
        tokens = output.new_token_ids
        dropped = len(tokens) - count
        if dropped:
            tokens = tokens[:count]
        version = step.weight_version
        if version is not None and version != self._weight_version and output.new_token_ids:
            self._weight_version = version
            self._weight_version_starts.append((version, self.count))
        if self._token_ids:
            self._token_ids += tokens
        else:
            self._token_ids = tokens
        self.count += count
        if output.new_logprobs is not None:
            logprobs = read_logprobs(output.new_logprobs, step.frames)
            if len(logprobs.ranks) < len(output.new_token_ids):
                raise ValueError(
                    f"logprobs for {len(logprobs.ranks)} of {len(output.new_token_ids)} tokens"
                )
            self._logprobs.append(logprobs.head(count))
        if output.new_prompt_logprobs_tensors is not None:
            self._prompt_logprobs.append(
                read_logprobs(output.new_prompt_logprobs_tensors, step.frames)
            )
        if output.prompt_token_id_logprobs is not None:
            self._prompt_token_id_logprobs = to_array(output.prompt_token_id_logprobs, step.frames)
        if output.prefill_stats is not None:
            self._prefill = output.prefill_stats
        if output.kv_transfer_params is not None:
            self._kv_transfer_params = output.kv_transfer_params
        if output.ec_transfer_params is not None:
            self._ec_transfer_params = output.ec_transfer_params
        if output.routed_experts is not None:
            experts = to_array(output.routed_experts, step.frames)
            if self._routed_experts and experts.shape[1:] != self._routed_experts[0].shape[1:]:
                raise ValueError(f"routed experts of shape {experts.shape} do not follow others")
            self._routed_experts.append(experts[:-dropped] if dropped else experts)

    def collect(self, finish: Finish | None) -> TokenDelta:
        """Give what is pending and begin anew; the caller knows how the sample has ended."""
        delta = TokenDelta(
            self._token_ids,
            join_logprobs(self._logprobs) if self._logprobs else None,
            join_logprobs(self._prompt_logprobs) if self._prompt_logprobs else None,
            self._prefill,
            self._extras() if finish is not None else None,
            finish,
        )
        self._token_ids = []
        if self._logprobs:
            self._logprobs = []
        if self._prompt_logprobs:
            self._prompt_logprobs = []
        self._prefill = None
        return delta

    def _extras(self) -> Extras:
        return Extras(
            self._kv_transfer_params,
            self._ec_transfer_params,
            self._weight_version_spans(),
            join_arrays(self._routed_experts),
            self._prompt_token_id_logprobs,
        )

    def _weight_version_spans(self) -> list[WeightVersionSpan] | None:
        starts = self._weight_version_starts
        if not starts and self.count:
            return None
        ends = [*(start for _, start in starts[1:]), self.count]
        return [
            WeightVersionSpan(version, start, end)
            for (version, start), end in zip(starts, ends, strict=False)
        ]


class TokenStage(TokenBuffer):
    """A stage that hands tokens over as they are."""

    __slots__ = ("_finish",)

    def __init__(self) -> None:
        super().__init__()
        self._finish: Finish | None = None

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None:
        """Merge an output; see `Stage`."""
        self._finish = finish_of(output)
        self.add(output, step, len(output.new_token_ids))
        return self._finish

    def end(self, finish: Finish) -> None:
        """End the sample from this side; see `Stage`."""
        self._finish = finish

    def take(self) -> TokenDelta:
        """Give what is pending and begin anew."""
        return self.collect(self._finish)
