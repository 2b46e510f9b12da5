"""How long the phases of a sample took."""

from umbel_engine import EngineCoreOutputs, SchedulerStats
from umbel_engine.wire import EVENT_PREEMPTED, EVENT_QUEUED, EVENT_SCHEDULED, ReadyResponse
from umbel_llm.metrics import ChildStats, LlmMetrics, RequestTiming

from .exposition import Exposition
from .feeding import ARRIVAL, make_child, output, run, step_at


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
