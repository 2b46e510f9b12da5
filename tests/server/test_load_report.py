"""How busy the engines are, in a header of the answers to whoever asks for it (ORCA)."""

from types import SimpleNamespace

import pytest

from umbel_engine import SchedulerStats
from umbel_server.load_report import load_report

ASKING = "endpoint-load-metrics-format"
REPORT = "endpoint-load-metrics"
JSON = 'JSON {"named_metrics": {"num_requests_waiting": 3.0, "kv_cache_usage_perc": 0.25}}'
TEXT = "TEXT named_metrics.num_requests_waiting=3.0, named_metrics.kv_cache_usage_perc=0.25"


@pytest.fixture
async def busy(serve, say):
    """A server whose engine has told how busy it is."""
    served = await serve(lambda request: say("hi"))
    served.engine.send_stats(
        SchedulerStats(num_waiting_reqs=2, num_skipped_waiting_reqs=1, kv_cache_usage=0.25)
    )
    # What an engine sends arrives in order.
    assert (await served.complete()).status == 200
    return served


@pytest.mark.parametrize(
    ("asked", "report"), [("JSON", JSON), ("json", JSON), ("TEXT", TEXT), ("Text", TEXT)]
)
async def test_a_whole_answer_carries_the_report_that_was_asked_for(busy, asked, report):
    for ask in (busy.ask, busy.complete):
        assert (await ask({ASKING: asked})).headers.getall(REPORT) == [report]


async def test_nothing_else_carries_a_report(busy):
    answers = [
        await busy.ask(),
        await busy.ask({ASKING: "YAML"}),
        await busy.ask({ASKING: ""}),
        await busy.ask({ASKING: "JSON"}, stream=True),
        await busy.complete({ASKING: "JSON"}, n=0),
        await busy.get("/v1/models", headers={ASKING: "JSON"}),
    ]
    assert [answer.status for answer in answers] == [200, 200, 200, 200, 400, 200]
    assert [answer for answer in answers if REPORT in answer.headers] == []


def llm_of(engines, log_stats=True):
    return SimpleNamespace(
        client=SimpleNamespace(
            engines=[SimpleNamespace(waiting=w, kv_cache_usage=u) for w, u in engines]
        ),
        metrics=SimpleNamespace(log_stats=log_stats),
    )


def test_of_several_engines_the_queues_are_added_up_and_the_caches_averaged():
    http = SimpleNamespace(headers={ASKING: "TEXT"})
    assert load_report(http, llm_of([(3, 0.5), (1, 0.25)])) == {
        REPORT: "TEXT named_metrics.num_requests_waiting=4.0, "
        "named_metrics.kv_cache_usage_perc=0.375"
    }


def test_without_statistics_the_report_is_empty():
    llm = llm_of([(3, 0.5)], log_stats=False)
    for asked, report in (("TEXT", "TEXT "), ("JSON", 'JSON {"named_metrics": {}}')):
        assert load_report(SimpleNamespace(headers={ASKING: asked}), llm) == {REPORT: report}
