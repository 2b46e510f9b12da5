import pytest

from umbel_engine import InvalidRankError, SchedulerStats
from umbel_engine.routing import Engine, Routing
from umbel_engine.wire import ReadyResponse


def routing(count):
    # The order of registration is not that of the ranks.
    return Routing(
        [
            Engine(index.to_bytes(2, "little"), index, ReadyResponse(2048))
            for index in reversed(range(count))
        ]
    )


def test_engines_are_in_rank_order():
    assert [engine.index for engine in routing(3).engines] == [0, 1, 2]


def test_idle_engines_take_turns():
    engines = routing(3)
    assert [engines.pick(None).index for _ in range(6)] == [0, 1, 2, 0, 1, 2]


def test_the_least_loaded_engine_is_picked():
    engines = routing(3)
    for rank in (0, 0, 1, 2, 2):
        engines.pick(rank)
    assert engines.pick(None).index == 1


def test_a_request_that_ended_counts_no_more():
    engines = routing(2)
    engines.pick(0)
    engines.pick(1)
    engines.pick(1)
    engines.release(engines.engines[0].identity)
    assert engines.pick(None).index == 0


def test_ties_are_broken_in_rotation_from_where_the_last_pick_began():
    engines = routing(2)
    first = engines.pick(None)
    engines.release(first.identity)
    second = engines.pick(None)
    assert (first.index, second.index) == (0, 1)


def test_what_the_scheduler_tells_counts_when_it_is_more_than_what_was_sent_from_here():
    engines = routing(2)
    engines.update(0, SchedulerStats(num_running_reqs=5, num_waiting_reqs=1))
    engines.pick(1)
    engines.pick(1)
    assert engines.pick(None).index == 1


def test_waiting_requests_weigh_more_on_a_full_cache():
    engines = routing(2)
    engines.update(0, SchedulerStats(num_waiting_reqs=4, kv_cache_usage=0.9))
    engines.update(1, SchedulerStats(num_running_reqs=10))
    assert engines.pick(None).index == 1
    engines.update(0, SchedulerStats(num_waiting_reqs=4, kv_cache_usage=0.2))
    assert engines.pick(None).index == 0


def test_a_rank_is_kept_however_loaded_its_engine_is():
    engines = routing(2)
    assert [engines.pick(1).index for _ in range(3)] == [1, 1, 1]


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_that_no_engine_has_is_refused(rank):
    engines = routing(2)
    with pytest.raises(InvalidRankError) as caught:
        engines.pick(rank)
    assert str(caught.value) == f"data_parallel_rank {rank} is out of range [0, 2)."
    assert [engine.inflight for engine in engines.engines] == [0, 0]


def test_statistics_of_an_unknown_engine_are_ignored():
    engines = routing(1)
    engines.update(7, SchedulerStats(num_running_reqs=5))
    assert engines.engines[0].running == 0
