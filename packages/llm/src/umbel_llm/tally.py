"""What is counted for one engine."""

from dataclasses import dataclass, field
from functools import partial
from typing import Self

from umbel_engine import FinishReason, PrefillStats, SchedulerStats
from umbel_engine.wire import FINISH_REASONS
from umbel_llm import buckets
from umbel_llm.histogram import Histogram

CACHE_SOURCES = ("device", "host", "p2p", "disk", "external_unspecified")
"""Where cached blocks may come from (vllm/v1/metrics/cache_hit_source.py)."""

_request_latency = partial(Histogram, buckets.REQUEST_LATENCY)
_inter_token_latency = partial(Histogram, buckets.INTER_TOKEN_LATENCY)


@dataclass(slots=True, eq=False, kw_only=True)
class EngineTally:
    """The numbers of one engine: the state of its scheduler, totals, and histograms.

    Totals are in tokens or requests since the start, histograms in tokens or seconds.  Whoever
    counts adds to the fields; there is no lock, so all of it happens in one thread.
    """

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    kv_cache_usage: float = 0.0

    prefix_cache_queries: int = 0
    prefix_cache_hits: int = 0
    external_prefix_cache_queries: int = 0
    external_prefix_cache_hits: int = 0
    cache_hits: dict[str, int] = field(default_factory=lambda: dict.fromkeys(CACHE_SOURCES, 0))

    flops: float = 0.0
    read_bytes: float = 0.0
    write_bytes: float = 0.0

    num_preemptions: int = 0
    prompt_tokens: int = 0
    computed_prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    local_cached_prompt_tokens: int = 0
    external_cached_prompt_tokens: int = 0
    generation_tokens: int = 0
    finished: dict[FinishReason, int] = field(
        default_factory=lambda: dict.fromkeys(FINISH_REASONS, 0)
    )

    request_prompt_tokens: Histogram
    request_generation_tokens: Histogram
    request_max_num_generation_tokens: Histogram
    request_params_max_tokens: Histogram
    request_prefill_kv_computed_tokens: Histogram
    request_params_n: Histogram = field(
        default_factory=partial(Histogram, buckets.REQUEST_PARAMS_N)
    )
    request_num_preemptions: Histogram = field(
        default_factory=partial(Histogram, buckets.REQUEST_NUM_PREEMPTIONS)
    )
    iteration_tokens: Histogram = field(
        default_factory=partial(Histogram, buckets.ITERATION_TOKENS)
    )
    time_to_first_token: Histogram = field(
        default_factory=partial(Histogram, buckets.TIME_TO_FIRST_TOKEN)
    )
    inter_token_latency: Histogram = field(default_factory=_inter_token_latency)
    time_per_output_token: Histogram = field(default_factory=_inter_token_latency)
    e2e_latency: Histogram = field(default_factory=_request_latency)
    queue_time: Histogram = field(default_factory=_request_latency)
    prefill_time: Histogram = field(default_factory=_request_latency)
    decode_time: Histogram = field(default_factory=_request_latency)
    inference_time: Histogram = field(default_factory=_request_latency)

    token_gap: float = 0.0
    token_gap_times: int = 0
    """Seconds between two tokens of a sample, and how often in a row they were seen: within a step
    most samples have the same."""

    step_start: int | None = None
    """`processed_tokens` when the current step began; None between steps."""

    @classmethod
    def for_length(cls, max_model_len: int) -> Self:
        """Make an empty tally for requests of up to `max_model_len` tokens."""
        bounds = buckets.request_tokens(max_model_len)
        return cls(
            request_prompt_tokens=Histogram(bounds),
            request_generation_tokens=Histogram(bounds),
            request_max_num_generation_tokens=Histogram(bounds),
            request_params_max_tokens=Histogram(bounds),
            request_prefill_kv_computed_tokens=Histogram(bounds),
        )

    @property
    def processed_tokens(self) -> int:
        """How many tokens the engine has computed, those of prompts included."""
        return self.computed_prompt_tokens + self.generation_tokens

    def begin_step(self) -> None:
        """Take what is counted from here on as the work of one engine step."""
        self.end_step()
        self.step_start = self.processed_tokens

    def end_step(self) -> None:
        """Observe the step, if one has begun."""
        if self.step_start is not None:
            self.iteration_tokens.observe(self.processed_tokens - self.step_start)
            self.step_start = None
        if self.token_gap_times:
            self.begin_gap(0.0, 0)

    def begin_gap(self, gap: float, times: int = 1) -> None:
        """Observe the gap that was seen last, and begin to count another one."""
        if self.token_gap_times:
            self.inter_token_latency.observe(self.token_gap, self.token_gap_times)
        self.token_gap = gap
        self.token_gap_times = times

    def add_prefill(self, stats: PrefillStats) -> None:
        """Count the tokens of a prompt by where they came from."""
        self.prompt_tokens += stats.num_prompt_tokens
        self.computed_prompt_tokens += stats.num_computed_tokens
        self.cached_prompt_tokens += stats.num_cached_tokens
        self.local_cached_prompt_tokens += stats.num_local_cached_tokens
        self.external_cached_prompt_tokens += stats.num_external_cached_tokens

    def take_over(self, stats: SchedulerStats) -> None:
        """Take over the state of the scheduler."""
        self.num_running_reqs = stats.num_running_reqs
        self.num_waiting_reqs = stats.num_waiting_reqs
        self.num_skipped_waiting_reqs = stats.num_skipped_waiting_reqs
        self.kv_cache_usage = stats.kv_cache_usage

    def add_scheduler_stats(self, stats: SchedulerStats) -> None:
        """Take over the state of the scheduler and count what it did since its last message."""
        self.take_over(stats)
        if (cache := stats.prefix_cache_stats) is not None:
            self.prefix_cache_queries += cache.queries
            self.prefix_cache_hits += cache.hits
            self.cache_hits["device"] += cache.hits
        if (cache := stats.connector_prefix_cache_stats) is not None:
            self.external_prefix_cache_queries += cache.queries
            self.external_prefix_cache_hits += cache.hits
            sources = cache.hits_by_source
            self.cache_hits["device"] += sources.device
            self.cache_hits["host"] += sources.host
            self.cache_hits["p2p"] += sources.p2p
            self.cache_hits["disk"] += sources.disk
            self.cache_hits["external_unspecified"] += sources.external_unspecified
        if (work := stats.perf_stats) is not None:
            self.flops += work.num_flops_per_gpu
            self.read_bytes += work.num_read_bytes_per_gpu
            self.write_bytes += work.num_write_bytes_per_gpu
