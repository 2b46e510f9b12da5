"""When and how often samples are handed over."""

import asyncio

import pytest

from umbel_engine import ABORTED
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_engine.wire import EngineCoreOutput

from .reading import collect, message


@pytest.mark.parametrize(
    ("interval", "expected"),
    [
        (1, [1] * 12),
        (5, [1, 5, 5, 1]),
        (100, [1, 11]),
        (None, [12]),
    ],
)
async def test_hand_overs_keep_to_the_stream_interval(
    connected, open_samples, step, interval, expected
):
    client, engine = connected
    engine.script = lambda request: tokens(*range(12))
    engine.pause()
    sizes = []
    async with open_samples(client, 1, interval=interval) as samples:
        samples.sink = lambda ready: sizes.extend(len(sample.take().token_ids) for sample in ready)
        for _ in range(12):
            await step(client, engine)
        await samples.finished()
    assert sizes == expected


async def test_iteration_keeps_to_the_stream_interval_of_each_sample(connected, open_samples, step):
    client, engine = connected
    engine.script = per_child(tokens(*range(12)), tokens(*range(3)))
    engine.pause()
    sizes = [[], []]
    async with open_samples(client, 2, interval=5) as samples:
        await engine.wait_adds(2)

        async def collect_sizes():
            async for index, delta in samples:
                sizes[index].append(len(delta.token_ids))

        reading = asyncio.create_task(collect_sizes())
        for _ in range(12):
            await step(client, engine)
        await asyncio.wait_for(reading, 10)
    assert sizes == [[1, 5, 5, 1], [1, 2]]


async def test_several_tokens_at_once_count_towards_the_interval(connected, open_samples, step):
    client, engine = connected
    sizes = (3, 2, 2, 4, 1)
    engine.script = lambda request: [
        MockStep(token_ids=range(size), finish="length" if size == 1 else None) for size in sizes
    ]
    engine.pause()
    handed_over = []
    async with open_samples(client, 1, interval=4) as samples:
        samples.sink = lambda ready: handed_over.extend(
            len(sample.take().token_ids) for sample in ready
        )
        for _ in sizes:
            await step(client, engine)
    assert handed_over == [3, 4, 4, 1]


async def test_a_sink_is_called_once_per_drain(connected, open_samples, deliver):
    client, engine = connected
    engine.script = lambda request: []
    calls = []
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        samples.sink = lambda ready: calls.append(
            [(sample.request_id[0], sample.take().token_ids) for sample in ready]
        )
        deliver(
            client,
            message(EngineCoreOutput("0_x-abcd", [1]), EngineCoreOutput("1_x-abcd", [2])),
            message(EngineCoreOutput("0_x-abcd", [3])),
            message(EngineCoreOutput("1_x-abcd", [4])),
        )
        assert calls == [[("0", [1, 3]), ("1", [2, 4])]]
        deliver(client, message(EngineCoreOutput("1_x-abcd", [5])))
        assert calls[1:] == [[("1", [5])]]


async def test_a_drain_that_brings_nothing_worth_it_calls_no_sink(connected, open_samples, deliver):
    client, engine = connected
    engine.script = lambda request: []
    calls = []
    async with open_samples(client, 1, interval=None) as samples:
        await engine.wait_adds(1)
        samples.sink = calls.append
        deliver(client, message(EngineCoreOutput("0_x-abcd", [1])))
        deliver(client, message(EngineCoreOutput("0_x-abcd", [])))
        assert calls == []


async def test_a_sample_that_was_not_taken_is_not_announced_again(connected, open_samples, deliver):
    client, engine = connected
    engine.script = lambda request: []
    calls = []
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        samples.sink = calls.append
        for token_id in range(3):
            deliver(client, message(EngineCoreOutput("0_x-abcd", [token_id])))
        assert len(calls) == 1
        assert samples[0].take().token_ids == [0, 1, 2]
        deliver(client, message(EngineCoreOutput("0_x-abcd", [3])))
        assert len(calls) == 2
        deliver(client, message(EngineCoreOutput("0_x-abcd", [4], finish_reason=0)))
        assert len(calls) == 3


async def test_a_sink_that_raises_fails_its_own_group_alone(connected, open_samples, step, caplog):
    client, engine = connected
    engine.script = lambda request: tokens(1, 2, 3)
    engine.pause()
    failing = open_samples(client, 3, name="bad")
    healthy = open_samples(client, 2, name="good")

    def fail(ready):
        raise ZeroDivisionError("the writer is broken")

    async with failing, healthy:
        failing.sink = fail
        await engine.wait_adds(5)
        await step(client, engine)
        with pytest.raises(ZeroDivisionError, match="the writer is broken"):
            await asyncio.wait_for(failing.finished(), 10)
        assert isinstance(failing.error, ZeroDivisionError)
        assert [sample.finish for sample in failing] == [ABORTED] * 3
        assert await engine.wait_aborts() == [[f"{index}_bad-abcd" for index in range(3)]]
        assert client.in_flight == 2
        engine.resume()
        token_ids, _ = await collect(healthy)
    assert token_ids == [[1, 2, 3], [1, 2, 3]]
    assert len(engine.aborts) == 1
    assert client.error is None
    assert "a sink failed" in caplog.text


async def test_finished_waits_for_the_last_hand_over(connected, open_samples):
    client, engine = connected
    engine.pause()
    handed_over = []
    async with open_samples(client, 2) as samples:
        samples.sink = handed_over.extend
        waiting = asyncio.create_task(samples.finished())
        await asyncio.sleep(0)
        assert not waiting.done()
        engine.resume()
        await asyncio.wait_for(waiting, 10)
        assert {sample.request_id for sample in handed_over} == {"0_x-abcd", "1_x-abcd"}
        await samples.finished()


async def test_a_group_that_was_left_calls_its_sink_no_more(connected, open_samples):
    client, engine = connected
    engine.pause()
    calls = []
    async with open_samples(client, 2) as samples:
        samples.sink = calls.append
        await engine.wait_adds(2)
    await engine.wait_aborts()
    await samples.finished()
    assert calls == []
