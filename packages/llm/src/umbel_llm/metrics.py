"""Request metrics: what is counted while samples run, and how Prometheus gets it.

On the way of a token there are only plain numbers; they become metrics when they are scraped.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import msgspec
from prometheus_client import Counter, Metric
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from umbel_engine import EngineClient, EngineCoreOutput, EngineCoreOutputs, FinishReason, Step
from umbel_engine.wire import (
    EVENT_PREEMPTED,
    EVENT_QUEUED,
    EVENT_SCHEDULED,
    EngineEvent,
    ReadyResponse,
)
from umbel_llm import cache_config
from umbel_llm.families import engine_families
from umbel_llm.tally import EngineTally

ADMISSION_REASONS = ("max_num_queued_reqs", "max_num_queued_tokens", "max_concurrent_sequences")
"""Why a request may be turned away at the door."""


class LlmMetrics(Collector):
    """Counts what requests and engines do; a collector for any Prometheus registry.

    `engines` are the index and the registration of each engine, `max_model_len` is in tokens and
    bounds the token histograms.  The metrics are those that vLLM's Python server always has, under
    its names (vllm/v1/metrics/loggers.py).  With `log_stats` off nothing is counted or exposed.

    Everything is counted on the event loop; scrape from there, too, for numbers of one moment.
    """

    def __init__(
        self,
        model_name: str,
        engines: Sequence[tuple[int, ReadyResponse]],
        max_model_len: int,
        log_stats: bool = True,
    ) -> None:
        self.log_stats = log_stats
        self._model_name = model_name
        self._cache_configs = cache_config.label_values(engines)
        self._tallies = {index: EngineTally.for_length(max_model_len) for index, _ in engines}
        self._unlisted = EngineTally.for_length(max_model_len)
        self._rejections = dict.fromkeys(ADMISSION_REASONS, 0)
        self.aborted_samples: Mapping[str, int] = {"stop_string": 0, "abandoned": 0}
        """How many samples engines were told to abort, by reason; the client's own count."""
        self._created = time.time() if _has_created_series() else None

    @classmethod
    def of(cls, client: EngineClient, model_name: str, log_stats: bool = True) -> Self:
        """Make the metrics of a client whose engines are ready."""
        engines = [(engine.index, engine.ready) for engine in client.engines]
        return cls(model_name, engines, client.max_model_len, log_stats)

    def tally(self, engine_index: int) -> EngineTally:
        """Give the numbers of an engine; those of one that never registered are not exposed."""
        return self._tallies.get(engine_index, self._unlisted)

    def on_step(self, outputs: EngineCoreOutputs, step: Step) -> None:
        """Count a message of an engine; to be called before its outputs are fed."""
        if not self.log_stats:
            return
        tally = self.tally(step.engine_index)
        if outputs.outputs:
            tally.begin_step()
        if outputs.scheduler_stats is not None:
            tally.add_scheduler_stats(outputs.scheduler_stats)

    def admission_rejected(self, reason: str) -> None:
        """Count a request that was turned away; `reason` is one of `ADMISSION_REASONS`."""
        if reason not in self._rejections:
            raise ValueError(f"{reason!r} is not one of {', '.join(ADMISSION_REASONS)}")
        self._rejections[reason] += 1

    def collect(self) -> Iterator[Metric]:
        """Give all metric families as they are now; called by the registry."""
        if not self.log_stats:
            return
        for tally in self._tallies.values():
            tally.end_step()
        yield from engine_families(self._model_name, self._tallies, self._created)
        yield self._by_reason(
            "vllm:admission_rejections",
            "Requests that were turned away because of a limit on the queue.",
            self._rejections,
        )
        yield self._by_reason(
            "umbel:aborted_samples",
            "Samples that an engine was told to abort.",
            self.aborted_samples,
        )
        info = GaugeMetricFamily(
            "vllm:cache_config_info",
            "What an engine told of its KV cache, in labels.",
            labels=cache_config.LABELS,
        )
        for values in self._cache_configs:
            info.add_metric(values, 1)
        yield info

    def _by_reason(
        self, name: str, documentation: str, counts: Mapping[str, int]
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(name, documentation, labels=["model_name", "reason"])
        for reason, count in counts.items():
            family.add_metric([self._model_name, reason], count, self._created)
        return family

    def describe(self) -> Iterator[Metric]:
        """Give the families whose names a registry is to keep for this collector."""
        return self.collect()


class ParentStats:
    """What is counted once per request, when its last child has ended.

    The sample is recorded for the engine of that child, and only if the child was not dropped
    (vllm/v1/engine/parallel_sampling.py).
    """

    __slots__ = ("_max_num_generation_tokens", "_metrics", "_n", "_unfinished")

    def __init__(self, metrics: LlmMetrics, n: int) -> None:
        self._metrics = metrics
        self._n = n
        self._unfinished = n
        self._max_num_generation_tokens = 0

    def child_finished(self, num_generation_tokens: int, tally: EngineTally) -> None:
        """Count a child that ran to its end."""
        self._unfinished -= 1
        self._max_num_generation_tokens = max(
            self._max_num_generation_tokens, num_generation_tokens
        )
        if self._unfinished == 0:
            tally.request_max_num_generation_tokens.observe(self._max_num_generation_tokens)
            tally.request_params_n.observe(self._n)

    def child_dropped(self) -> None:
        """Expect one child less."""
        self._unfinished -= 1


class RequestTiming(msgspec.Struct, frozen=True):
    """How long the phases of a sample took, on the engine's clock; None where it is not known.

    `time_to_first_token_ms` begins when the sample was scheduled, `generation_time_ms` with its
    first token.  `tokens_per_second` is over the time from scheduling to the last token
    (vllm/entrypoints/generate/base/serving.py).
    """

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None


class ChildStats:
    """What is counted for one child: `feed` for every output, then `finish` or `drop`, once.

    `arrival_time` is in seconds of the wall clock, `num_prompt_tokens` and `max_tokens` are in
    tokens.  The rules are those of vllm/v1/metrics/stats.py.
    """

    __slots__ = (
        "_arrival_time",
        "_ended",
        "_first_token_time",
        "_last_token_time",
        "_log_stats",
        "_max_tokens",
        "_metrics",
        "_num_cached_tokens",
        "_num_preemptions",
        "_num_prompt_tokens",
        "_parent",
        "_queued_time",
        "_scheduled_time",
        "_tally",
        "num_generation_tokens",
    )

    def __init__(
        self,
        metrics: LlmMetrics,
        parent: ParentStats,
        arrival_time: float,
        num_prompt_tokens: int,
        max_tokens: int | None,
    ) -> None:
        self.num_generation_tokens = 0
        self._metrics = metrics
        self._log_stats = metrics.log_stats
        self._parent = parent
        self._arrival_time = arrival_time
        self._num_prompt_tokens = num_prompt_tokens
        self._max_tokens = max_tokens
        self._tally: EngineTally | None = None
        self._ended = False
        self._num_cached_tokens = 0
        self._num_preemptions = 0
        # On the engine's clock; 0 until it happens.
        self._queued_time = 0.0
        self._scheduled_time = 0.0
        self._first_token_time = 0.0
        self._last_token_time = 0.0

    def feed(self, output: EngineCoreOutput, step: Step) -> None:
        """Count an output; one that carries an error object is not counted."""
        if output.error is not None:
            return
        count = len(output.new_token_ids)
        self.num_generation_tokens += count
        if not self._log_stats:
            return
        timestamp = step.timestamp
        tally = self._tally
        if tally is None:
            tally = self._begin(output, step)
        else:
            gap = timestamp - self._last_token_time
            if gap == tally.token_gap:
                tally.token_gap_times += 1
            else:
                tally.begin_gap(gap)
        self._last_token_time = timestamp
        tally.generation_tokens += count
        if output.events is not None:
            self._add_events(output.events, tally)

    def _begin(self, output: EngineCoreOutput, step: Step) -> EngineTally:
        # A sample stays with its engine, so this is looked up once.
        tally = self._tally = self._metrics.tally(step.engine_index)
        tally.time_to_first_token.observe(step.received - self._arrival_time)
        self._first_token_time = step.timestamp
        if output.prefill_stats is not None:
            tally.add_prefill(output.prefill_stats)
            self._num_cached_tokens = output.prefill_stats.num_cached_tokens
        return tally

    def _add_events(self, events: Sequence[EngineEvent], tally: EngineTally) -> None:
        for event in events:
            if event.type == EVENT_QUEUED:
                self._queued_time = event.timestamp
            elif event.type == EVENT_SCHEDULED:
                # After a preemption it is scheduled again; the first time counts.
                self._scheduled_time = self._scheduled_time or event.timestamp
            elif event.type == EVENT_PREEMPTED:
                self._num_preemptions += 1
                tally.num_preemptions += 1

    def finish(self, reason: FinishReason, step: Step) -> None:
        """Record the child, which has ended with this step."""
        if self._ended:
            return
        self._ended = True
        if not self._log_stats:
            return
        tally = self._metrics.tally(step.engine_index)
        tally.finished[reason] += 1
        tally.e2e_latency.observe(step.received - self._arrival_time)
        self._record_phases(tally)
        self._record_tokens(tally)
        self._parent.child_finished(self.num_generation_tokens, tally)

    def _record_phases(self, tally: EngineTally) -> None:
        decode_time = self._last_token_time - self._first_token_time
        tally.decode_time.observe(decode_time)
        later_tokens = self.num_generation_tokens - 1
        tally.time_per_output_token.observe(decode_time / later_tokens if later_tokens > 0 else 0.0)
        # A sample that the engine aborted in its queue was never scheduled, and an engine whose
        # own statistics are off tells of no events.
        if self._scheduled_time:
            tally.prefill_time.observe(self._first_token_time - self._scheduled_time)
            tally.inference_time.observe(self._last_token_time - self._scheduled_time)
            if self._queued_time:
                tally.queue_time.observe(self._scheduled_time - self._queued_time)

    def _record_tokens(self, tally: EngineTally) -> None:
        tally.request_num_preemptions.observe(self._num_preemptions)
        tally.request_prompt_tokens.observe(self._num_prompt_tokens)
        tally.request_generation_tokens.observe(self.num_generation_tokens)
        computed = self._num_prompt_tokens - self._num_cached_tokens
        tally.request_prefill_kv_computed_tokens.observe(computed)
        if self._max_tokens:
            tally.request_params_max_tokens.observe(self._max_tokens)

    def drop(self) -> None:
        """Forget the child: it was aborted from this side, or failed; does nothing after `finish`."""
        if not self._ended:
            self._ended = True
            self._parent.child_dropped()

    def timing(self, num_generation_tokens: int | None = None) -> RequestTiming:
        """Give the timing so far; all None when `log_stats` is off.

        `num_generation_tokens` is how many tokens the caller counts, when a stop string has cut
        some off; the default is what the engine sent.
        """
        count = (
            self.num_generation_tokens if num_generation_tokens is None else num_generation_tokens
        )
        queued, scheduled = self._queued_time, self._scheduled_time
        first, last = self._first_token_time, self._last_token_time
        decode_time = last - first
        inference_time = last - scheduled if scheduled and last else 0.0
        return RequestTiming(
            time_to_first_token_ms=(first - scheduled) * 1000 if scheduled and first else None,
            generation_time_ms=decode_time * 1000 if first else None,
            queue_time_ms=(scheduled - queued) * 1000 if queued and scheduled else None,
            mean_itl_ms=decode_time / (count - 1) * 1000 if first and count > 1 else None,
            tokens_per_second=count / inference_time if inference_time > 0 else None,
        )


def _has_created_series() -> bool:
    """Tell whether prometheus_client is set to give `_created` series, as it is by default."""
    probe = Counter("probe", "Not registered anywhere.", registry=None)
    return any(
        sample.name.endswith("_created") for metric in probe.collect() for sample in metric.samples
    )
