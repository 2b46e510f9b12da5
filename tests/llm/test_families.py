"""Which metrics are exposed, and how they read."""

import random
import re

import msgspec
import prometheus_client
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import DuplicateTimeseries

from umbel_engine.wire import ReadyResponse
from umbel_llm.histogram import Histogram
from umbel_llm.metrics import LlmMetrics

from .exposition import Exposition
from .feeding import make_child, run

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
admission_rejections | counter | model_name reason | max_num_queued_reqs max_num_queued_tokens max_concurrent_sequences
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
    assert rest == {"umbel:aborted_samples"}


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


def test_a_registry_knows_the_names(metrics: LlmMetrics, exposed: Exposition) -> None:
    with pytest.raises(DuplicateTimeseries):
        exposed.registry.register(LlmMetrics("other", [], 100))
    restricted = exposed.registry.restricted_registry(["vllm:num_requests_running"])
    assert set(families(generate_latest(restricted).decode())) == {"vllm:num_requests_running"}
