"""The metric families of the engines: names, types and labels as in vLLM.

The source of names and labels is vllm/v1/metrics/loggers.py (PrometheusStatLogger).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from prometheus_client import Metric
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.samples import Sample

from umbel_engine.wire import FINISH_REASONS, FinishReason
from umbel_llm.histogram import Histogram
from umbel_llm.tally import CACHE_SOURCES, EngineTally

Reader = Callable[[EngineTally], float]


class Family(NamedTuple):
    """A gauge or a counter: one time series per engine and reader.

    With a label, the keys of the readers are its values.
    """

    name: str
    documentation: str
    readers: Mapping[str, Reader]
    label: str | None = None


class HistogramFamily(NamedTuple):
    """A histogram per engine."""

    name: str
    documentation: str
    read: Callable[[EngineTally], Histogram]


def _single(name: str, documentation: str, read: Reader) -> Family:
    return Family(name, documentation, {"": read})


def _finished(reason: FinishReason) -> Reader:
    return lambda tally: tally.finished[reason]


def _cache_hits(source: str) -> Reader:
    return lambda tally: tally.cache_hits[source]


GAUGES = (
    _single(
        "vllm:num_requests_running",
        "Requests that the engine is computing.",
        lambda tally: tally.num_running_reqs,
    ),
    _single(
        "vllm:num_requests_waiting",
        "Requests that wait for their turn in the engine.",
        lambda tally: tally.num_waiting_reqs + tally.num_skipped_waiting_reqs,
    ),
    Family(
        "vllm:num_requests_waiting_by_reason",
        "Waiting requests, by whether they lack room (capacity) or are held back (deferred).",
        {
            "capacity": lambda tally: tally.num_waiting_reqs,
            "deferred": lambda tally: tally.num_skipped_waiting_reqs,
        },
        "reason",
    ),
    Family(
        "vllm:engine_sleep_state",
        "Which state the engine is in: 1 for that state, 0 for the others.",
        {
            # Nothing here puts an engine to sleep.
            "awake": lambda tally: 1,
            "weights_offloaded": lambda tally: 0,
            "discard_all": lambda tally: 0,
        },
        "sleep_state",
    ),
    _single(
        "vllm:kv_cache_usage_perc",
        "The part of the KV cache that is in use, from 0 to 1.",
        lambda tally: tally.kv_cache_usage,
    ),
)

COUNTERS = (
    _single(
        "vllm:prefix_cache_queries",
        "Tokens looked up in the prefix cache.",
        lambda tally: tally.prefix_cache_queries,
    ),
    _single(
        "vllm:prefix_cache_hits",
        "Tokens found in the prefix cache.",
        lambda tally: tally.prefix_cache_hits,
    ),
    _single(
        "vllm:external_prefix_cache_queries",
        "Tokens looked up in the cache of a KV connector.",
        lambda tally: tally.external_prefix_cache_queries,
    ),
    _single(
        "vllm:external_prefix_cache_hits",
        "Tokens found in the cache of a KV connector.",
        lambda tally: tally.external_prefix_cache_hits,
    ),
    # There is no multi-modal input here, and so no cache for it; dashboards expect the series.
    _single(
        "vllm:mm_cache_queries",
        "Items looked up in the multi-modal cache.",
        lambda tally: 0,
    ),
    _single(
        "vllm:mm_cache_hits",
        "Items found in the multi-modal cache.",
        lambda tally: 0,
    ),
    _single(
        "vllm:num_preemptions",
        "How often the engine put a running request back to wait.",
        lambda tally: tally.num_preemptions,
    ),
    _single(
        "vllm:prompt_tokens",
        "Tokens of prompts, counted once per sample.",
        lambda tally: tally.prompt_tokens,
    ),
    Family(
        "vllm:prompt_tokens_by_source",
        "Tokens of prompts, by whether they were computed, cached or transferred.",
        {
            "local_compute": lambda tally: tally.computed_prompt_tokens,
            "local_cache_hit": lambda tally: tally.local_cached_prompt_tokens,
            "external_kv_transfer": lambda tally: tally.external_cached_prompt_tokens,
        },
        "source",
    ),
    _single(
        "vllm:prompt_tokens_cached",
        "Tokens of prompts that did not have to be computed.",
        lambda tally: tally.cached_prompt_tokens,
    ),
    Family(
        "vllm:prompt_tokens_cached_by_source",
        "Tokens found in prefix caches, by where their blocks were kept.",
        {source: _cache_hits(source) for source in CACHE_SOURCES},
        "source",
    ),
    _single(
        "vllm:generation_tokens",
        "Tokens generated.",
        lambda tally: tally.generation_tokens,
    ),
    Family(
        "vllm:request_success",
        "Samples that ended, by finish reason.",
        {reason: _finished(reason) for reason in FINISH_REASONS},
        "finished_reason",
    ),
    _single(
        "vllm:estimated_flops_per_gpu_total",
        "Floating-point operations of one GPU, as the engine estimates them.",
        lambda tally: tally.flops,
    ),
    _single(
        "vllm:estimated_read_bytes_per_gpu_total",
        "Bytes that one GPU read from its memory, as the engine estimates them.",
        lambda tally: tally.read_bytes,
    ),
    _single(
        "vllm:estimated_write_bytes_per_gpu_total",
        "Bytes that one GPU wrote to its memory, as the engine estimates them.",
        lambda tally: tally.write_bytes,
    ),
)

HISTOGRAMS = (
    HistogramFamily(
        "vllm:request_prompt_tokens",
        "Prompt tokens of a sample.",
        lambda tally: tally.request_prompt_tokens,
    ),
    HistogramFamily(
        "vllm:request_generation_tokens",
        "Generated tokens of a sample.",
        lambda tally: tally.request_generation_tokens,
    ),
    HistogramFamily(
        "vllm:iteration_tokens_total",
        "Tokens that an engine step computed, those of prompts included.",
        lambda tally: tally.iteration_tokens,
    ),
    HistogramFamily(
        "vllm:request_max_num_generation_tokens",
        "Generated tokens of the longest sample of a request.",
        lambda tally: tally.request_max_num_generation_tokens,
    ),
    HistogramFamily(
        "vllm:request_params_n",
        "How many samples a request asked for.",
        lambda tally: tally.request_params_n,
    ),
    HistogramFamily(
        "vllm:request_params_max_tokens",
        "How many tokens a sample was allowed to generate.",
        lambda tally: tally.request_params_max_tokens,
    ),
    HistogramFamily(
        "vllm:time_to_first_token_seconds",
        "Seconds from the arrival of a request to the first output of a sample.",
        lambda tally: tally.time_to_first_token,
    ),
    HistogramFamily(
        "vllm:inter_token_latency_seconds",
        "Seconds from one output of a sample to the next.",
        lambda tally: tally.inter_token_latency,
    ),
    HistogramFamily(
        "vllm:request_time_per_output_token_seconds",
        "Mean seconds per token of a sample, after its first token.",
        lambda tally: tally.time_per_output_token,
    ),
    HistogramFamily(
        "vllm:e2e_request_latency_seconds",
        "Seconds from the arrival of a request to the end of a sample.",
        lambda tally: tally.e2e_latency,
    ),
    HistogramFamily(
        "vllm:request_queue_time_seconds",
        "Seconds that a sample waited in the engine before it was scheduled.",
        lambda tally: tally.queue_time,
    ),
    HistogramFamily(
        "vllm:request_inference_time_seconds",
        "Seconds from when a sample was scheduled to its last token.",
        lambda tally: tally.inference_time,
    ),
    HistogramFamily(
        "vllm:request_prefill_time_seconds",
        "Seconds from when a sample was scheduled to its first token.",
        lambda tally: tally.prefill_time,
    ),
    HistogramFamily(
        "vllm:request_decode_time_seconds",
        "Seconds from the first token of a sample to its last.",
        lambda tally: tally.decode_time,
    ),
    HistogramFamily(
        "vllm:request_num_preemptions",
        "How often a sample was preempted.",
        lambda tally: tally.request_num_preemptions,
    ),
    HistogramFamily(
        "vllm:request_prefill_kv_computed_tokens",
        "Prompt tokens of a sample that were not cached.",
        lambda tally: tally.request_prefill_kv_computed_tokens,
    ),
)


def engine_families(
    model_name: str, tallies: Mapping[int, EngineTally], created: float | None
) -> Iterator[Metric]:
    """Give the metric families with the numbers of every engine.

    `created` is when counting began, in seconds since the epoch; None leaves the `_created` series
    out.
    """
    labels = ["model_name", "engine"]
    rows = [([model_name, str(index)], tally) for index, tally in tallies.items()]
    for family in GAUGES:
        gauge = GaugeMetricFamily(
            family.name, family.documentation, labels=_with_label(labels, family.label)
        )
        for values, value in _series(family, rows):
            gauge.add_metric(values, value)
        yield gauge
    for family in COUNTERS:
        counter = CounterMetricFamily(
            family.name, family.documentation, labels=_with_label(labels, family.label)
        )
        for values, value in _series(family, rows):
            counter.add_metric(values, value, created)
        yield counter
    for name, documentation, read in HISTOGRAMS:
        metric = HistogramMetricFamily(name, documentation, labels=labels)
        for values, tally in rows:
            histogram = read(tally)
            metric.add_metric(values, histogram.buckets(), histogram.sum)
            if created is not None:
                sample_labels = dict(zip(labels, values, strict=True))
                metric.samples.append(Sample(f"{name}_created", sample_labels, created))
        yield metric


def _with_label(labels: Sequence[str], label: str | None) -> list[str]:
    return [*labels, label] if label is not None else list(labels)


def _series(
    family: Family, rows: Iterable[tuple[list[str], EngineTally]]
) -> Iterator[tuple[list[str], float]]:
    for values, tally in rows:
        for key, read in family.readers.items():
            yield _with_label(values, key if family.label is not None else None), read(tally)
