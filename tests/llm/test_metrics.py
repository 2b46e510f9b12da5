import random
import re

import msgspec
import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import DuplicateTimeseries

from umbel_engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    PrefillStats,
    SchedulerStats,
    Step,
)
from umbel_engine.wire import (
    EVENT_PREEMPTED,
    EVENT_QUEUED,
    EVENT_SCHEDULED,
    EngineEvent,
    PerfStats,
    PrefixCacheHitsBySource,
    PrefixCacheStats,
    ReadyResponse,
    RequestFault,
)
from umbel_llm.histogram import Histogram
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats, RequestTiming

MAX_MODEL_LEN = 2000
ARRIVAL = 1_000.0

LATENCY = ".3 .5 .8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680"
FIRST = ".001 .005 .01 .02 .04 .06 .08 .1 .25 .5 .75 1 2.5 5 7.5 10 20 40 80 160 640 2560"
LATER = ".01 .025 .05 .075 .1 .15 .2 .3 .4 .5 .75 1 2.5 5 7.5 10 20 40 80"
TOKENS = "1 2 5 10 20 50 100 200 500 1000 2000"
STEP_TOKENS = "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384"

# What vLLM's Python server always exposes of its engines: type, labels, and label values or bounds.
ALWAYS = """
num_requests_running | gauge | model_name engine |
num_requests_waiting | gauge | model_name engine |
num_requests_waiting_by_reason | gauge | model_name engine reason | capacity deferred
engine_sleep_state | gauge | model_name engine sleep_state | awake weights_offloaded discard_all
kv_cache_usage_perc | gauge | model_name engine |
prefix_cache_queries | counter | model_name engine |
prefix_cache_hits | counter | model_name engine |
external_prefix_cache_queries | counter | model_name engine |
external_prefix_cache_hits | counter | model_name engine |
mm_cache_queries | counter | model_name engine |
mm_cache_hits | counter | model_name engine |
num_preemptions | counter | model_name engine |
prompt_tokens | counter | model_name engine |
prompt_tokens_by_source | counter | model_name engine source | local_compute local_cache_hit external_kv_transfer
prompt_tokens_cached | counter | model_name engine |
prompt_tokens_cached_by_source | counter | model_name engine source | device host p2p disk external_unspecified
generation_tokens | counter | model_name engine |
request_success | counter | model_name engine finished_reason | stop length abort error repetition
admission_rejections | counter | model_name reason | max_num_queued_reqs max_num_queued_tokens
estimated_flops_per_gpu | counter | model_name engine |
estimated_read_bytes_per_gpu | counter | model_name engine |
estimated_write_bytes_per_gpu | counter | model_name engine |
request_prompt_tokens | histogram | model_name engine | TOKENS
request_generation_tokens | histogram | model_name engine | TOKENS
iteration_tokens_total | histogram | model_name engine | STEP_TOKENS
request_max_num_generation_tokens | histogram | model_name engine | TOKENS
request_params_n | histogram | model_name engine | 1 2 5 10 20
request_params_max_tokens | histogram | model_name engine | TOKENS
time_to_first_token_seconds | histogram | model_name engine | FIRST
inter_token_latency_seconds | histogram | model_name engine | LATER
request_time_per_output_token_seconds | histogram | model_name engine | LATER
e2e_request_latency_seconds | histogram | model_name engine | LATENCY
request_queue_time_seconds | histogram | model_name engine | LATENCY
request_inference_time_seconds | histogram | model_name engine | LATENCY
request_prefill_time_seconds | histogram | model_name engine | LATENCY
request_decode_time_seconds | histogram | model_name engine | LATENCY
request_num_preemptions | histogram | model_name engine | 1 2 3 4 5 10 20
request_prefill_kv_computed_tokens | histogram | model_name engine | TOKENS
"""
BOUNDS = {
    "LATENCY": LATENCY,
    "FIRST": FIRST,
    "LATER": LATER,
    "TOKENS": TOKENS,
    "STEP_TOKENS": STEP_TOKENS,
}
CACHE_CONFIG_LABELS = """
_block_size_resolved block_size cache_dtype cache_hit_alignment_tokens
effective_attention_block_size enable_mamba_shared_prefix_checkpoint enable_prefix_caching engine
gpu_memory_utilization hash_block_size is_attention_free kv_cache_dtype_skip_layers kv_cache_layout
kv_cache_max_concurrency kv_cache_memory_bytes kv_cache_size_tokens kv_offloading_backend
kv_offloading_size kv_sharing_fast_prefill mamba_block_size mamba_cache_dtype mamba_cache_mode
mamba_page_size_padded mamba_ssm_cache_dtype num_cpu_blocks num_gpu_blocks num_gpu_blocks_override
prefix_cache_retention_interval prefix_caching_hash_algo prefix_match_unit replayssm_buffer_len
simple_cpu_offload_num_blocks skip_page_size_padded sliding_window swa_bounded_replay
use_kda_recoverssm use_replayssm user_specified_block_size
"""


class Exposition:
    """What a scrape of these metrics gives."""

    def __init__(self, metrics: LlmMetrics) -> None:
        self.registry = CollectorRegistry()
        self.registry.register(metrics)

    @property
    def text(self) -> str:
        return generate_latest(self.registry).decode()

    def value(self, name: str, engine: int | None = 0, **labels: str) -> float | None:
        labels["model_name"] = "m"
        if engine is not None:
            labels["engine"] = str(engine)
        return self.registry.get_sample_value(f"vllm:{name}", labels)

    def histogram(self, name: str, engine: int = 0) -> tuple[float | None, float | None]:
        """Count and sum."""
        total = self.value(f"{name}_sum", engine)
        return (
            self.value(f"{name}_count", engine),
            None if total is None else round(total, 6),
        )


@pytest.fixture
def metrics() -> LlmMetrics:
    ready = ReadyResponse(MAX_MODEL_LEN, num_gpu_blocks=100)
    return LlmMetrics("m", [(0, ready), (1, ready)], MAX_MODEL_LEN)


@pytest.fixture
def exposed(metrics: LlmMetrics) -> Exposition:
    return Exposition(metrics)


def make_child(
    metrics: LlmMetrics,
    parent: ParentStats | None = None,
    prompt: int = 5,
    max_tokens: int | None = 10,
) -> ChildStats:
    parent = parent or ParentStats(metrics, 1)
    return ChildStats(metrics, parent, ARRIVAL, prompt, max_tokens)


def step_at(timestamp: float, received: float = ARRIVAL, engine: int = 0) -> Step:
    return Step(engine, timestamp, received, [])


def output(
    tokens: int = 1,
    events: list[tuple[int, float]] | None = None,
    prefill: PrefillStats | None = None,
    error: RequestFault | None = None,
) -> EngineCoreOutput:
    return EngineCoreOutput(
        "request",
        [7] * tokens,
        events=[EngineEvent(*event) for event in events] if events else None,
        prefill_stats=prefill,
        error=error,
    )


def run(child: ChildStats, tokens: int, reason: FinishReason = "length", engine: int = 0) -> None:
    """Let a child generate tokens, one per step, and finish."""
    for _ in range(tokens):
        child.feed(output(), step_at(1.0, engine=engine))
    child.finish(reason, step_at(1.0, engine=engine))


def families(text: str) -> dict[str, tuple[str, set[str], list[str]]]:
    """Type, label names, and values of the last label (or bounds) of every family."""
    found = {}
    for family in text_string_to_metric_families(text):
        samples = [
            sample
            for sample in family.samples
            if sample.labels.get("engine", "0") == "0"
            and (family.type != "histogram" or sample.name.endswith("_bucket"))
        ]
        special = set().union(*(sample.labels for sample in samples)) - {"model_name", "engine"}
        values = [sample.labels[name] for sample in samples for name in special]
        found[family.name] = (family.type, set(samples[0].labels), values)
    return found


def test_every_metric_that_vllm_always_has_is_exposed_with_its_type_labels_and_buckets(
    exposed: Exposition,
) -> None:
    found = families(exposed.text)
    for line in ALWAYS.strip().splitlines():
        name, kind, labels, values = (part.strip() for part in line.split("|"))
        expected = values.split()
        names = set(labels.split())
        if kind == "histogram":
            expected = [str(float(bound)) for bound in BOUNDS.get(values, values).split()]
            expected.append("+Inf")
            names.add("le")
        assert found.pop(f"vllm:{name}") == (kind, names, expected), name
    assert found.pop("vllm:cache_config_info")[:2] == ("gauge", set(CACHE_CONFIG_LABELS.split()))
    rest = {name for name in found if not name.endswith("_created")}
    assert rest == set()


def test_every_counter_and_histogram_says_when_it_was_created(exposed: Exposition) -> None:
    found = families(exposed.text)
    created = {name.removesuffix("_created") for name in found if name.endswith("_created")}
    assert created == {
        name for name, (kind, _, _) in found.items() if kind in ("counter", "histogram")
    }


def test_created_series_are_left_out_where_prometheus_client_is_told_so() -> None:
    prometheus_client.disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        text = Exposition(LlmMetrics("m", [(0, ReadyResponse(100))], 100)).text
    finally:
        prometheus_client.enable_created_metrics()  # type: ignore[no-untyped-call]
    assert "_created" not in text


def test_engines_have_series_before_anything_happens(exposed: Exposition) -> None:
    assert exposed.value("request_success_total", 1, finished_reason="repetition") == 0
    assert exposed.value("request_params_n_count", 1) == 0
    assert exposed.value("engine_sleep_state", sleep_state="awake") == 1
    assert exposed.value("engine_sleep_state", sleep_state="discard_all") == 0


def test_bucket_lines_read_as_prometheus_writes_them(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    run(make_child(metrics), tokens=1)
    line = 'vllm:request_params_n_bucket{engine="0",le="1.0",model_name="m"} 1.0'
    assert line in exposed.text.splitlines()


def test_a_histogram_counts_like_that_of_prometheus_client() -> None:
    bounds = (0.5, 1.0, 2.5, 1e6)
    registry = CollectorRegistry()
    theirs = prometheus_client.Histogram("theirs", "", buckets=bounds, registry=registry)
    ours = Histogram(bounds)
    generator = random.Random(7)
    for value in (*bounds, -1.0, 0.0, 1e9, *(generator.uniform(0, 4) for _ in range(200))):
        theirs.observe(value)
        ours.observe(value)
    for bound, count in ours.buckets():
        assert registry.get_sample_value("theirs_bucket", {"le": bound}) == count
    assert registry.get_sample_value("theirs_sum") == ours.sum


def test_n_and_the_longest_sample_are_recorded_once_when_the_last_child_ends(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 3)
    children = [make_child(metrics, parent) for _ in range(3)]
    run(children[1], tokens=9)
    run(children[0], tokens=4)
    assert exposed.histogram("request_params_n") == (0, 0)
    run(children[2], tokens=2)
    assert exposed.histogram("request_params_n") == (1, 3)
    assert exposed.histogram("request_max_num_generation_tokens") == (1, 9)


def test_n_counts_for_the_engine_of_the_child_that_ends_last(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 2)
    first, second = make_child(metrics, parent), make_child(metrics, parent)
    run(first, tokens=1, engine=0)
    run(second, tokens=1, engine=1)
    assert exposed.histogram("request_params_n", engine=0) == (0, 0)
    assert exposed.histogram("request_params_n", engine=1) == (1, 2)


def test_an_aborted_child_keeps_nobody_from_recording_n(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 2)
    aborted, finished = make_child(metrics, parent), make_child(metrics, parent)
    aborted.feed(output(tokens=8), step_at(1.0))
    aborted.drop()
    run(finished, tokens=3)
    assert exposed.histogram("request_params_n") == (1, 2)
    assert exposed.histogram("request_max_num_generation_tokens") == (1, 3)
    assert exposed.histogram("request_generation_tokens") == (1, 3)


def test_no_n_is_recorded_when_the_last_child_was_aborted(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 2)
    finished, aborted = make_child(metrics, parent), make_child(metrics, parent)
    run(finished, tokens=3)
    aborted.drop()
    assert exposed.histogram("request_params_n") == (0, 0)
    assert exposed.histogram("request_max_num_generation_tokens") == (0, 0)


def test_dropping_a_finished_child_changes_nothing(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 2)
    first, second = make_child(metrics, parent), make_child(metrics, parent)
    run(first, tokens=1)
    first.drop()
    assert exposed.histogram("request_params_n") == (0, 0)
    run(second, tokens=1)
    assert exposed.histogram("request_params_n") == (1, 2)


def test_a_child_is_recorded_once(metrics: LlmMetrics, exposed: Exposition) -> None:
    child = make_child(metrics)
    run(child, tokens=1)
    child.finish("stop", step_at(2.0))
    assert exposed.histogram("e2e_request_latency_seconds")[0] == 1
    assert exposed.value("request_success_total", finished_reason="stop") == 0


def test_everything_else_is_recorded_for_each_child(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    parent = ParentStats(metrics, 3)
    reasons: list[FinishReason] = ["stop", "length", "stop"]
    for tokens, reason in zip((2, 3, 4), reasons, strict=True):
        run(make_child(metrics, parent), tokens, reason)
    assert exposed.histogram("request_prompt_tokens") == (3, 15)
    assert exposed.histogram("request_generation_tokens") == (3, 9)
    assert exposed.histogram("request_params_max_tokens") == (3, 30)
    assert exposed.histogram("request_num_preemptions") == (3, 0)
    assert exposed.histogram("time_to_first_token_seconds")[0] == 3
    assert exposed.histogram("inter_token_latency_seconds")[0] == 6
    assert exposed.value("request_success_total", finished_reason="stop") == 2
    assert exposed.value("request_success_total", finished_reason="length") == 1
    assert exposed.value("generation_tokens_total") == 9


@pytest.mark.parametrize("max_tokens", [None, 0])
def test_no_limit_on_tokens_is_not_recorded(
    metrics: LlmMetrics, exposed: Exposition, max_tokens: int | None
) -> None:
    run(make_child(metrics, max_tokens=max_tokens), tokens=1)
    assert exposed.histogram("request_params_max_tokens") == (0, 0)


def test_an_output_with_an_error_is_not_counted(metrics: LlmMetrics, exposed: Exposition) -> None:
    child = make_child(metrics)
    child.feed(output(error=RequestFault("refused")), step_at(1.0))
    child.drop()
    assert exposed.value("generation_tokens_total") == 0
    assert exposed.histogram("time_to_first_token_seconds") == (0, 0)
    assert exposed.histogram("request_params_n") == (0, 0)


def test_an_error_without_an_error_object_is_a_finish_like_any_other(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    run(make_child(metrics), tokens=1, reason="error")
    assert exposed.value("request_success_total", finished_reason="error") == 1
    assert exposed.histogram("request_params_n") == (1, 1)


def preempted_child(metrics: LlmMetrics) -> ChildStats:
    """Queued at 10, scheduled at 11 and 12.25, first token at 12, last at 13; three tokens."""
    child = make_child(metrics)
    first = [(EVENT_QUEUED, 10.0), (EVENT_SCHEDULED, 11.0)]
    again = [(EVENT_PREEMPTED, 12.2), (EVENT_SCHEDULED, 12.25)]
    child.feed(output(events=first), step_at(12.0, ARRIVAL + 2.5))
    child.feed(output(events=again), step_at(12.75, ARRIVAL + 3.0))
    child.feed(output(), step_at(13.0, ARRIVAL + 3.5))
    return child


def test_phases_are_measured_between_the_events_of_the_engine(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    preempted_child(metrics).finish("stop", step_at(13.0, ARRIVAL + 3.5))
    assert exposed.histogram("request_queue_time_seconds") == (1, 1.0)
    assert exposed.histogram("request_prefill_time_seconds") == (1, 1.0)
    assert exposed.histogram("request_decode_time_seconds") == (1, 1.0)
    assert exposed.histogram("request_inference_time_seconds") == (1, 2.0)
    assert exposed.histogram("request_time_per_output_token_seconds") == (1, 0.5)


def test_latencies_a_caller_sees_are_measured_on_the_wall_clock(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    preempted_child(metrics).finish("stop", step_at(13.0, ARRIVAL + 3.5))
    assert exposed.histogram("time_to_first_token_seconds") == (1, 2.5)
    assert exposed.histogram("e2e_request_latency_seconds") == (1, 3.5)


def test_the_latency_between_outputs_is_that_of_the_engine(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    preempted_child(metrics)
    assert exposed.histogram("inter_token_latency_seconds") == (2, 1.0)
    assert exposed.value("inter_token_latency_seconds_bucket", le="0.3") == 1
    assert exposed.value("inter_token_latency_seconds_bucket", le="0.75") == 2


def test_preemptions_are_counted_for_the_engine_and_for_the_sample(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    child = preempted_child(metrics)
    assert exposed.value("num_preemptions_total") == 1
    child.finish("stop", step_at(13.0))
    assert exposed.histogram("request_num_preemptions") == (1, 1)


def test_one_token_takes_no_time_per_later_token(metrics: LlmMetrics, exposed: Exposition) -> None:
    run(make_child(metrics), tokens=1)
    assert exposed.histogram("request_time_per_output_token_seconds") == (1, 0)


def test_a_sample_that_was_never_scheduled_has_no_phases(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    child = make_child(metrics)
    child.feed(output(tokens=0, events=[(EVENT_QUEUED, 10.0)]), step_at(12.0))
    child.finish("abort", step_at(12.0))
    assert exposed.value("request_success_total", finished_reason="abort") == 1
    assert exposed.histogram("request_queue_time_seconds") == (0, 0)
    assert exposed.histogram("request_prefill_time_seconds") == (0, 0)
    assert exposed.histogram("request_inference_time_seconds") == (0, 0)


def test_prompt_tokens_are_counted_by_source_with_the_first_output_alone(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    child = make_child(metrics, prompt=100)
    prefill = PrefillStats(100, 52, 48, 32, 16)
    child.feed(output(prefill=prefill), step_at(1.0))
    child.feed(output(prefill=prefill), step_at(1.1))
    child.finish("stop", step_at(1.1))
    sources = {
        source: exposed.value("prompt_tokens_by_source_total", source=source)
        for source in ("local_compute", "local_cache_hit", "external_kv_transfer")
    }
    assert sources == {"local_compute": 52, "local_cache_hit": 32, "external_kv_transfer": 16}
    assert exposed.value("prompt_tokens_total") == 100
    assert exposed.value("prompt_tokens_cached_total") == 48
    assert exposed.histogram("request_prefill_kv_computed_tokens") == (1, 52)


def feed_message(
    metrics: LlmMetrics, fed: list[tuple[ChildStats, EngineCoreOutput]], unknown: int = 0
) -> None:
    """Bring a message whose last `unknown` outputs belong to nobody."""
    outputs = [output for _, output in fed] + [output(tokens=50)] * unknown
    metrics.on_step(EngineCoreOutputs(0, outputs, timestamp=1.0), step_at(1.0))
    for child, item in fed:
        child.feed(item, step_at(1.0))


def test_the_tokens_of_a_step_are_observed_once_per_message(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    first, second = make_child(metrics), make_child(metrics)
    prefill = PrefillStats(20, 15, 5, 5)
    feed_message(metrics, [(first, output(prefill=prefill)), (second, output(prefill=prefill))])
    assert exposed.histogram("iteration_tokens_total") == (1, 32)
    feed_message(metrics, [(first, output(tokens=3)), (second, output())])
    feed_message(metrics, [(first, output())])
    assert exposed.histogram("iteration_tokens_total") == (3, 37)


def test_scraping_does_not_change_the_tokens_of_a_step(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    feed_message(metrics, [(make_child(metrics), output(tokens=4))])
    assert exposed.text == exposed.text
    assert exposed.histogram("iteration_tokens_total") == (1, 4)


def test_outputs_that_nobody_waits_for_count_for_no_step(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    feed_message(metrics, [(make_child(metrics), output())], unknown=1)
    feed_message(metrics, [], unknown=1)
    assert exposed.histogram("iteration_tokens_total") == (2, 1)


def test_a_message_without_outputs_is_no_step(metrics: LlmMetrics, exposed: Exposition) -> None:
    metrics.on_step(EngineCoreOutputs(0, [], SchedulerStats()), step_at(1.0))
    assert exposed.histogram("iteration_tokens_total") == (0, 0)


def test_scheduler_state_is_that_of_the_last_message(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    for running in (9, 3):
        stats = SchedulerStats(running, 4, 2, kv_cache_usage=0.25)
        metrics.on_step(EngineCoreOutputs(1, [], stats), step_at(1.0, engine=1))
    assert exposed.value("num_requests_running", 1) == 3
    assert exposed.value("num_requests_waiting", 1) == 6
    assert exposed.value("num_requests_waiting_by_reason", 1, reason="capacity") == 4
    assert exposed.value("num_requests_waiting_by_reason", 1, reason="deferred") == 2
    assert exposed.value("kv_cache_usage_perc", 1) == 0.25
    assert exposed.value("num_requests_running", 0) == 0


def test_cache_look_ups_and_estimated_work_add_up_over_messages(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    stats = SchedulerStats(
        prefix_cache_stats=PrefixCacheStats(queries=100, hits=30),
        connector_prefix_cache_stats=PrefixCacheStats(
            queries=70, hits=16, hits_by_source=PrefixCacheHitsBySource(host=10, disk=6)
        ),
        perf_stats=PerfStats(1e12, 2e9, 3e9),
    )
    for _ in range(2):
        metrics.on_step(EngineCoreOutputs(0, [], stats), step_at(1.0))
    assert exposed.value("prefix_cache_queries_total") == 200
    assert exposed.value("prefix_cache_hits_total") == 60
    assert exposed.value("external_prefix_cache_queries_total") == 140
    assert exposed.value("external_prefix_cache_hits_total") == 32
    sources = [
        exposed.value("prompt_tokens_cached_by_source_total", source=source)
        for source in ("device", "host", "p2p", "disk", "external_unspecified")
    ]
    assert sources == [60, 20, 0, 12, 0]
    assert exposed.value("estimated_flops_per_gpu_total") == 2e12
    assert exposed.value("estimated_read_bytes_per_gpu_total") == 4e9
    assert exposed.value("estimated_write_bytes_per_gpu_total") == 6e9


def test_an_engine_that_never_registered_is_not_exposed(
    metrics: LlmMetrics, exposed: Exposition
) -> None:
    metrics.on_step(EngineCoreOutputs(9, [], SchedulerStats(1)), step_at(1.0, engine=9))
    run(make_child(metrics), tokens=1, engine=9)
    assert 'engine="9"' not in exposed.text
    assert exposed.value("generation_tokens_total") == 0


def test_rejections_are_counted_by_reason(metrics: LlmMetrics, exposed: Exposition) -> None:
    metrics.admission_rejected("max_num_queued_reqs")
    assert exposed.value("admission_rejections_total", None, reason="max_num_queued_reqs") == 1
    assert exposed.value("admission_rejections_total", None, reason="max_num_queued_tokens") == 0
    with pytest.raises(ValueError, match="weather"):
        metrics.admission_rejected("weather")


def cache_configs(engines: list[tuple[int, ReadyResponse]]) -> list[dict[str, str]]:
    text = Exposition(LlmMetrics("m", engines, 100)).text
    lines = [line for line in text.splitlines() if line.startswith("vllm:cache_config_info{")]
    assert all(line.endswith("} 1.0") for line in lines)
    return [dict(re.findall(r'(\w+)="([^"]*)"', line)) for line in lines]


def test_cache_config_has_what_engines_told_and_none_for_the_rest() -> None:
    ready = ReadyResponse(
        100,
        num_gpu_blocks=64,
        block_size=32,
        kv_cache_size_tokens=2048,
        kv_cache_max_concurrency=4.5,
        effective_attention_block_size=32,
    )
    other = msgspec.structs.replace(ready, num_gpu_blocks=16, kv_cache_size_tokens=512)
    first, second = cache_configs([(0, ready), (1, other)])
    assert {name: value for name, value in first.items() if value != "None"} == {
        "engine": "0",
        "block_size": "32",
        "num_gpu_blocks": "80",
        "kv_cache_size_tokens": "2048",
        "kv_cache_max_concurrency": "4.5",
        "effective_attention_block_size": "32",
    }
    assert (second["engine"], second["kv_cache_size_tokens"]) == ("1", "512")


def test_an_attention_block_size_that_engines_do_not_share_is_not_told() -> None:
    engines = [(0, ReadyResponse(100, effective_attention_block_size=16)), (1, ReadyResponse(100))]
    assert {config["effective_attention_block_size"] for config in cache_configs(engines)} == {
        "None"
    }


def test_timing_is_that_of_the_engine_in_milliseconds(metrics: LlmMetrics) -> None:
    timing = preempted_child(metrics).timing()
    assert timing == RequestTiming(
        time_to_first_token_ms=1000.0,
        generation_time_ms=1000.0,
        queue_time_ms=1000.0,
        mean_itl_ms=500.0,
        tokens_per_second=1.5,
    )


def test_timing_takes_the_count_of_a_caller_who_cut_tokens_off(metrics: LlmMetrics) -> None:
    timing = preempted_child(metrics).timing(num_generation_tokens=2)
    assert (timing.mean_itl_ms, timing.tokens_per_second) == (1000.0, 1.0)


def test_timing_without_events_has_what_the_outputs_tell(metrics: LlmMetrics) -> None:
    child = make_child(metrics)
    assert child.timing() == RequestTiming()
    child.feed(output(), step_at(10.0))
    assert child.timing() == RequestTiming(generation_time_ms=0.0)
    child.feed(output(), step_at(10.5))
    assert child.timing() == RequestTiming(generation_time_ms=500.0, mean_itl_ms=500.0)


def test_without_statistics_nothing_is_exposed_and_timing_is_empty() -> None:
    metrics = LlmMetrics("m", [(0, ReadyResponse(100))], 100, log_stats=False)
    metrics.on_step(EngineCoreOutputs(0, [output()], SchedulerStats(1)), step_at(1.0))
    metrics.admission_rejected("max_num_queued_reqs")
    child = preempted_child(metrics)
    child.finish("stop", step_at(13.0))
    assert Exposition(metrics).text == ""
    assert child.timing() == RequestTiming()


def test_a_registry_knows_the_names(metrics: LlmMetrics, exposed: Exposition) -> None:
    with pytest.raises(DuplicateTimeseries):
        exposed.registry.register(LlmMetrics("other", [], 100))
    restricted = exposed.registry.restricted_registry(["vllm:num_requests_running"])
    assert set(families(generate_latest(restricted).decode())) == {"vllm:num_requests_running"}
