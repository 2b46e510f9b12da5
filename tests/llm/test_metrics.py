"""What is counted of requests, of their children, and of the messages of engines."""

import pytest

from umbel_engine import (
    EngineCoreOutput,
    EngineCoreOutputs,
    FinishReason,
    PrefillStats,
    SchedulerStats,
)
from umbel_engine.wire import (
    PerfStats,
    PrefixCacheHitsBySource,
    PrefixCacheStats,
    RequestFault,
)
from umbel_llm.metrics import ChildStats, LlmMetrics, ParentStats

from .exposition import Exposition
from .feeding import make_child, output, run, step_at


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
