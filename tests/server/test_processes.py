"""Several server processes behind one port, in front of the same engine."""

import asyncio
import json
import os
import re
import signal

import aiohttp
import pytest
from prometheus_client import Metric
from prometheus_client.samples import Sample

from umbel_engine.mock import tokens
from umbel_engine.wire import PrefixCacheStats, SchedulerStats
from umbel_server.sums import added_up

from .commands import CHAT, COMPLETIONS, TIMEOUT, finishes, rest_of

COUNT = 2

GENERATE = "/inference/v1/generate"


@pytest.fixture
async def fleet(umbel):
    """Start so many server processes behind one port; gives what answers there."""

    async def fleet(script, *flags, **options):
        return await umbel(script, "--api-server-count", COUNT, *flags, **options)

    return fleet


async def ask_each(served, ask):
    """Ask over new connections until every process has answered; gives the answers.

    Which process a connection goes to is up to the system.
    """
    answers = []
    seen = set()
    async with asyncio.timeout(TIMEOUT):
        while len(seen) < COUNT:
            before = len(served.engine.adds)
            async with aiohttp.ClientSession() as session:
                answers.append(await ask(session))
            seen |= {add.client_index for add in served.engine.adds[before:]}
    return answers


async def complete(served, session, **body):
    body = {"prompt": "Hello", "max_tokens": 2, **body}
    async with session.post(f"{served.url}{COMPLETIONS}", json=body) as answer:
        return await answer.json()


async def load(served):
    return json.loads(await get_anew(served, "/load"))["server_load"]


async def until(look, is_so):
    """Look until something is so."""
    async with asyncio.timeout(TIMEOUT):
        while not is_so(await look()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def get_anew(served, path):
    """Get something over a connection of its own, so from any process."""
    async with aiohttp.ClientSession() as session, session.get(served.url + path) as answer:
        return await answer.text()


def value(text, name, **labels):
    """Give the value of a metric with these labels among others."""
    for line in text.splitlines():
        if line.startswith(name + "{") and all(f'{k}="{v}"' in line for k, v in labels.items()):
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"no {name} with {labels}")


async def test_processes_share_the_port_and_the_engine(fleet):
    served = await fleet(lambda request: tokens(300, 301))

    async def ask(session):
        return await complete(served, session, n=3)

    answers = await ask_each(served, ask)
    for answer in answers:
        assert [choice["text"] for choice in answer["choices"]] == ["hiyo"] * 3
        assert answer["usage"]["completion_tokens"] == 6
    assert {add.client_index for add in served.engine.adds} == set(range(COUNT))


async def test_metrics_of_any_process_are_the_sum(fleet):
    served = await fleet(lambda request: tokens(300, 301))
    answers = await ask_each(served, lambda session: complete(served, session, n=2))
    for _ in range(4):
        text = await get_anew(served, "/metrics")
        count = len(answers)
        assert value(text, "vllm:generation_tokens_total") == 4 * count
        assert value(text, "vllm:request_success_total", finished_reason="length") == 2 * count
        assert value(text, "vllm:request_params_n_count") == count
        assert value(text, "vllm:request_params_n_sum") == 2 * count
        assert value(text, "http_requests_total", handler=COMPLETIONS) == count


async def test_the_state_of_a_scheduler_is_known_to_all_and_its_work_counted_once(fleet):
    served = await fleet(lambda request: tokens(300))
    stats = SchedulerStats(
        num_running_reqs=3, num_waiting_reqs=2, prefix_cache_stats=PrefixCacheStats(queries=7)
    )
    served.engine.send_stats(stats, client_index=1)

    async def texts():
        return [await get_anew(served, "/metrics") for _ in range(6)]

    async def running():
        return [value(text, "vllm:num_requests_running") for text in await texts()]

    await until(running, lambda found: set(found) == {3})
    for text in await texts():
        assert value(text, "vllm:num_requests_waiting") == 2
        assert value(text, "vllm:prefix_cache_queries_total") == 7


async def test_an_abort_reaches_the_process_that_has_the_request(fleet):
    served = await fleet(lambda request: tokens(300, finish=None), "--enable-scale-out")

    async def ask(session, number):
        body = {"token_ids": [300], "sampling_params": {"n": 2}, "request_id": f"x{number}"}
        return await session.post(f"{served.url}{GENERATE}", json=body)

    asked, sessions = [], []
    async with asyncio.timeout(TIMEOUT):
        while len({add.client_index for add in served.engine.adds}) < COUNT:
            sessions.append(aiohttp.ClientSession())
            asked.append(asyncio.ensure_future(ask(sessions[-1], len(asked))))
            await served.engine.wait_adds(2 * len(asked))
    await until(lambda: load(served), lambda found: found == len(asked))
    ids = [f"generate-tokens-x{number}" for number in range(len(asked))]
    url = f"{served.url}/inference/v1/abort_requests"
    async with served.session.post(url, json={"request_ids": ids}) as answer:
        assert answer.status == 200
    async with asyncio.timeout(TIMEOUT):
        for response in await asyncio.gather(*asked):
            choices = (await response.json())["choices"]
            assert [choice["finish_reason"] for choice in choices] == ["abort", "abort"]
    assert await load(served) == 0
    for session in sessions:
        await session.close()


async def open_streams(served, sessions):
    """Begin a stream in every process; gives the responses."""
    responses = []
    async with asyncio.timeout(TIMEOUT):
        while len({add.client_index for add in served.engine.adds}) < COUNT:
            sessions.append(aiohttp.ClientSession())
            body = {"messages": [{"role": "user", "content": "Hi"}], "stream": True}
            asked = asyncio.ensure_future(sessions[-1].post(f"{served.url}{CHAT}", json=body))
            await served.engine.wait_adds(len(responses) + 1)
            await served.engine.step()
            responses.append(await asked)
    return responses


async def test_sigterm_lets_the_streams_of_all_end(fleet):
    served = await fleet(lambda request: tokens(*[300] * 99), paused=True)
    sessions = []
    responses = await open_streams(served, sessions)
    served.tell()
    for _ in range(COUNT):
        await served.line("requests get 10 s to finish")
    served.engine.resume()
    for response in responses:
        assert "length" in finishes(await rest_of(response))
    assert await served.exit() == 0
    for session in sessions:
        await session.close()


async def test_the_death_of_the_engine_ends_all_with_an_error(fleet):
    served = await fleet(lambda request: tokens(*[300] * 99), paused=True)
    sessions = []
    responses = await open_streams(served, sessions)
    served.engine.send_dead()
    for response in responses:
        assert "error" in (await rest_of(response))[-1]
    assert await served.exit() == 1
    for session in sessions:
        await session.close()


def workers_of(served):
    path = f"/proc/{served.process.pid}/task/{served.process.pid}/children"
    with open(path) as file:
        return [int(word) for word in file.read().split()]


async def test_the_death_of_a_process_ends_all_with_an_error(fleet):
    served = await fleet(lambda request: tokens(300))
    os.kill(workers_of(served)[0], signal.SIGKILL)
    assert await served.exit() == 1


async def test_none_outlives_the_one_that_started_them(fleet):
    served = await fleet(lambda request: tokens(300))
    workers = workers_of(served)
    assert len(workers) == COUNT
    served.tell(signal.SIGKILL)
    # They hold its standard error, which ends with the last of them.
    await served.exit()


async def test_a_model_that_cannot_be_loaded_is_told_before_an_engine_is_waited_for(run, tmp_path):
    process = await run(
        "umbel",
        "serve",
        tmp_path,
        "--port",
        "0",
        "--api-server-count",
        "2",
        "--data-parallel-size-local",
        "0",
        "--data-parallel-rpc-port",
        "0",
    )
    assert await process.exit() == 1
    assert re.search("^umbel: .*tokenizer", "".join(process.lines), re.MULTILINE)
    assert "waiting for engines" not in "".join(process.lines)


# Sums.


def family(name, kind, *samples):
    made = Metric(name, "", kind)
    made.samples = [Sample(*sample) for sample in samples]
    return made


def test_counters_and_histograms_are_added_up_and_gauges_are_not():
    one = [
        family("a", "counter", ("a_total", {"x": "1"}, 2.0), ("a_created", {"x": "1"}, 50.0)),
        family("g", "gauge", ("g", {}, 3.0)),
        family("h", "histogram", ("h_bucket", {"le": "1"}, 1.0), ("h_sum", {}, 0.5)),
    ]
    two = [
        family(
            "a",
            "counter",
            ("a_total", {"x": "1"}, 3.0),
            ("a_created", {"x": "1"}, 40.0),
            ("a_total", {"x": "2"}, 9.0),
        ),
        family("g", "gauge", ("g", {}, 8.0)),
        family("h", "histogram", ("h_bucket", {"le": "1"}, 2.0), ("h_sum", {}, 1.5)),
        family("b", "counter", ("b_total", {}, 1.0)),
    ]
    added = {
        (sample.name, *sample.labels.values()): sample.value
        for item in added_up(one, [two])
        for sample in item.samples
    }
    assert added == {
        ("a_total", "1"): 5.0,
        ("a_created", "1"): 40.0,
        ("a_total", "2"): 9.0,
        ("g",): 3.0,
        ("h_bucket", "1"): 3.0,
        ("h_sum",): 2.0,
        ("b_total",): 1.0,
    }
