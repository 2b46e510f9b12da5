import asyncio
import gc

import msgspec
import pytest

from umbel_engine import (
    ABORTED,
    EngineError,
    EngineRequestError,
    Extras,
    Finish,
    PrefillStats,
    TokenStage,
    merge,
)
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_engine.wire import EngineCoreOutput, EngineCoreOutputs, RequestFault


def message(*outputs, **fields):
    return [msgspec.msgpack.encode(EngineCoreOutputs(outputs=list(outputs), **fields))]


async def collect(samples):
    """Read every sample to its end; gives the token ids and the finish of each."""
    token_ids = [[] for _ in samples]
    finishes = [None] * len(samples)
    async with asyncio.timeout(20):
        async for index, delta in samples:
            token_ids[index] += delta.token_ids
            finishes[index] = delta.finish
    return token_ids, finishes


# Reading.


async def test_siblings_are_told_apart_and_come_in_index_order(connected, open_samples):
    client, engine = connected
    engine.script = per_child(tokens(1, 2), tokens(3), tokens(4, 5, 6, finish="stop"))
    async with open_samples(client, 3) as samples:
        assert len(samples) == 3
        assert [sample.request_id for sample in samples] == ["0_x-abcd", "1_x-abcd", "2_x-abcd"]
        token_ids, finishes = await collect(samples)
    assert token_ids == [[1, 2], [3], [4, 5, 6]]
    assert finishes == [Finish("length"), Finish("length"), Finish("stop")]
    assert client.in_flight == 0
    assert engine.aborts == []


async def test_what_arrives_while_the_reader_is_busy_is_not_missed(connect, open_samples, step):
    client, (engine,) = await connect(per_child(tokens(1, 2, 3), tokens(4, 5, 6)), paused=True)
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        await step(client, engine)
        seen = []
        async with asyncio.timeout(20):
            async for index, delta in samples:
                seen.append((index, delta.token_ids))
                if engine.running:
                    await step(client, engine)
        assert [token_id for index, ids in seen if index == 0 for token_id in ids] == [1, 2, 3]
        assert [token_id for index, ids in seen if index == 1 for token_id in ids] == [4, 5, 6]


async def test_groups_of_two_clients_cannot_be_merged(connect, open_samples):
    (one, _), (other, _) = await connect(), await connect()
    with pytest.raises(ValueError, match="one client"):
        merge(open_samples(one), open_samples(other))
    with pytest.raises(ValueError, match="at least one"):
        merge()


async def test_one_sample_can_be_read_alone(connected, open_samples):
    client, engine = connected
    engine.script = per_child(tokens(1, 2), tokens(3))
    async with open_samples(client, 2) as samples:
        deltas = [delta async for delta in samples[1]]
        assert [token_id for delta in deltas for token_id in delta.token_ids] == [3]
        assert deltas[-1].finish == Finish("length")
        assert samples[1].take() is None


async def test_a_second_reader_is_an_error(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2) as samples:
        first = asyncio.create_task(anext(samples[0]))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="this sample is already being read"):
            await asyncio.wait_for(anext(samples[0]), 10)
        group = asyncio.create_task(anext(aiter(samples)))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="these samples are already being read"):
            await asyncio.wait_for(anext(aiter(samples)), 10)
        engine.resume()
        await asyncio.wait_for(asyncio.gather(first, group, return_exceptions=True), 10)


async def test_samples_with_a_sink_cannot_be_iterated(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        samples.sink = lambda ready: None
        with pytest.raises(RuntimeError, match="these samples have a sink"):
            await anext(samples[0])
        with pytest.raises(RuntimeError, match="these samples have a sink"):
            await anext(aiter(samples))


async def test_a_reader_that_is_cancelled_leaves_its_place_to_another(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        reading = asyncio.create_task(anext(samples[0]))
        await asyncio.sleep(0)
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        engine.resume()
        assert await anext(samples[0]) is not None


async def test_what_was_not_taken_is_merged(connected, open_samples, step):
    client, engine = connected
    prefill = PrefillStats(3, 1, 2)
    engine.script = lambda request: [
        MockStep(token_ids=[1], prefill=prefill),
        MockStep(token_ids=[2, 3]),
        MockStep(token_ids=[4], finish="stop", stop_reason=4, kv_transfer_params={"a": 1}),
    ]
    engine.pause()
    async with open_samples(client, 1) as samples:
        for _ in range(3):
            await step(client, engine)
        delta = samples[0].take()
    assert (delta.token_ids, delta.prefill) == ([1, 2, 3, 4], prefill)
    assert delta.finish == Finish("stop", 4)
    assert delta.extras == Extras(kv_transfer_params={"a": 1})
    assert samples[0].take() is None


# Hand-over.


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
    async with open_samples(client, 1, interval) as samples:
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
    async with open_samples(client, 2, 5) as samples:
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
    async with open_samples(client, 1, 4) as samples:
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
    async with open_samples(client, 1, None) as samples:
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


# Ending.


async def test_leaving_aborts_what_still_runs_in_one_message(connected, open_samples, step):
    client, engine = connected
    engine.script = per_child(tokens(1, 2, finish=None), tokens(3), tokens(4, finish=None))
    engine.pause()
    async with open_samples(client, 3):
        await engine.wait_adds(3)
        await step(client, engine)
        assert client.in_flight == 2
    assert client.in_flight == 0
    assert await engine.wait_aborts() == [["0_x-abcd", "2_x-abcd"]]


@pytest.mark.parametrize("error", [ValueError("x"), asyncio.CancelledError()])
async def test_leaving_by_an_error_aborts_too(connected, open_samples, error):
    client, engine = connected
    engine.pause()
    with pytest.raises(type(error)):
        async with open_samples(client, 2):
            raise error
    assert await engine.wait_aborts() == [["0_x-abcd", "1_x-abcd"]]
    assert client.in_flight == 0


async def test_groups_that_end_together_are_aborted_in_one_message(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2, name="a"), open_samples(client, 2, name="b"):
        pass
    (ids,) = await engine.wait_aborts()
    assert sorted(ids) == ["0_a-abcd", "0_b-abcd", "1_a-abcd", "1_b-abcd"]


async def test_abort_ends_the_readers_with_that_finish(connected, open_samples, step):
    client, engine = connected
    engine.script = lambda request: tokens(1, 2, 3)
    engine.pause()
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        await step(client, engine)
        samples.abort()
        samples.abort()
        token_ids, finishes = await collect(samples)
    assert token_ids == [[1], [1]]
    assert finishes == [ABORTED, ABORTED]
    assert await engine.wait_aborts() == [["0_x-abcd", "1_x-abcd"]]


async def test_what_arrives_after_an_abort_is_ignored(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        samples.abort()
        engine.send_outputs(EngineCoreOutput("0_x-abcd", [9], finish_reason=0))
        await client.call("get_supported_tasks")
        assert samples[0].take().token_ids == []
        assert samples[0].finish is ABORTED


async def test_a_group_that_is_dropped_unclosed_warns_and_aborts(connected, open_samples):
    client, engine = connected
    engine.pause()
    opened = [open_samples(client, 2)]
    await opened[0].__aenter__()

    def drop():
        opened.clear()
        gc.collect()

    with pytest.warns(ResourceWarning, match="samples were dropped without being closed"):
        drop()
    assert client.in_flight == 0
    assert await engine.wait_aborts() == [["0_x-abcd", "1_x-abcd"]]


async def test_a_group_that_was_never_entered_sends_nothing(connected, open_samples):
    client, engine = connected
    samples = open_samples(client, 2)
    samples.close()
    del samples
    gc.collect()
    await client.call("get_supported_tasks")
    assert engine.adds == []
    assert engine.aborts == []


async def test_samples_are_entered_once(connected, open_samples):
    client, _ = connected
    samples = open_samples(client, 1)
    async with samples:
        pass
    with pytest.raises(RuntimeError, match="samples can be entered once"):
        await samples.__aenter__()


async def test_a_fan_out_cancelled_half_way_aborts_what_was_sent(connected, open_samples):
    client, engine = connected
    engine.pause()
    entering = asyncio.create_task(open_samples(client, 150).__aenter__())
    # The fan-out gives the loop a turn after 64 children; here it is cancelled.
    await asyncio.sleep(0)
    assert client.in_flight == 150
    entering.cancel()
    with pytest.raises(asyncio.CancelledError):
        await entering
    assert client.in_flight == 0
    sent = [f"{index}_x-abcd" for index in range(64)]
    assert await engine.wait_aborts() == [sent]
    await client.call("get_supported_tasks")
    assert [request.request_id for request in engine.adds] == sent
    assert [e.inflight for e in client.engines] == [0]


async def test_a_fan_out_that_fails_half_way_aborts_what_was_sent(
    connected, open_samples, monkeypatch
):
    client, engine = connected
    engine.pause()
    send, sent = client.send, []

    def fail_at_the_third(receiver, payload, rank):
        if len(sent) == 2:
            raise ZeroDivisionError
        sent.append(receiver.request_id)
        send(receiver, payload, rank)

    monkeypatch.setattr(client, "send", fail_at_the_third)
    with pytest.raises(ZeroDivisionError):
        await open_samples(client, 4).__aenter__()
    assert client.in_flight == 0
    assert await engine.wait_aborts() == [["0_x-abcd", "1_x-abcd"]]


async def test_other_work_gets_its_turn_during_a_long_fan_out(connected, open_samples):
    client, engine = connected
    engine.pause()
    turns = []
    loop = asyncio.get_running_loop()

    def other_work():
        turns.append(None)
        loop.call_soon(other_work)

    loop.call_soon(other_work)
    async with open_samples(client, 256):
        assert len(turns) >= 3
        other_work = lambda: None  # noqa: E731


async def test_an_id_in_use_is_refused_and_its_owner_goes_on(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2) as first:
        await engine.wait_adds(2)
        with pytest.raises(ValueError, match="request id '0_x-abcd' is already in use"):
            await open_samples(client, 2).__aenter__()
        assert client.in_flight == 2
        engine.resume()
        _, finishes = await collect(first)
    assert finishes == [Finish("length")] * 2
    assert engine.aborts == []
    assert [e.inflight for e in client.engines] == [0]


# Errors are values.


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (None, ("Internal server error", None, False)),
        (RequestFault("too long", "validation_error"), ("too long", "validation_error", False)),
        (RequestFault("paused", "engine_paused", True), ("paused", "engine_paused", True)),
    ],
)
async def test_an_engine_error_ends_its_own_sample(connected, open_samples, fault, expected):
    client, engine = connected
    engine.script = per_child([MockStep(finish="error", error=fault)], tokens(1, 2))
    async with open_samples(client, 2) as samples:
        token_ids, finishes = await collect(samples)
    error = finishes[0].error
    assert isinstance(error, EngineRequestError)
    assert (str(error), error.code, error.retryable) == expected
    assert (token_ids[1], finishes[1]) == ([1, 2], Finish("length"))
    assert client.error is None


@pytest.mark.parametrize("reason", ["abort", "repetition", "stop", "length"])
async def test_finish_reasons_are_handed_on(connected, open_samples, reason):
    client, engine = connected
    engine.script = lambda request: tokens(1, finish=reason, stop_reason="why")
    async with open_samples(client, 1) as samples:
        _, finishes = await collect(samples)
    assert finishes == [Finish(reason, "why")]


class Failing(TokenStage):
    def feed(self, output, step):
        raise ZeroDivisionError("no such token")


async def test_a_stage_that_fails_ends_its_sample_and_aborts_it(connected, open_samples):
    client, engine = connected
    async with open_samples(client, 1, stage=Failing) as samples:
        _, (finish,) = await collect(samples)
    assert finish.reason == "error"
    assert type(finish.error) is EngineError
    assert "no such token" in str(finish.error)
    assert await engine.wait_aborts() == [["0_x-abcd"]]
    assert client.error is None


class StopsAt2(TokenStage):
    def feed(self, output, step):
        finish = super().feed(output, step)
        if 2 in output.new_token_ids:
            finish = Finish("stop", "two")
            self.end(finish)
        return finish


async def test_a_stage_that_ends_before_the_engine_aborts_there(connected, open_samples):
    client, engine = connected
    engine.script = lambda request: tokens(1, 2, 3, 4, finish=None)
    async with open_samples(client, 1, stage=StopsAt2) as samples:
        token_ids, finishes = await collect(samples)
    assert token_ids == [[1, 2]]
    assert finishes == [Finish("stop", "two")]
    assert await engine.wait_aborts() == [["0_x-abcd"]]


async def test_a_stage_that_ends_with_the_engine_aborts_nothing(connected, open_samples):
    client, engine = connected
    engine.script = lambda request: tokens(1, 2)
    async with open_samples(client, 1, stage=StopsAt2) as samples:
        await collect(samples)
    await client.call("get_supported_tasks")
    assert engine.aborts == []


# Groups on one sink.


async def test_merged_groups_are_one_group_in_the_order_given(connected, open_samples, deliver):
    client, engine = connected
    engine.script = lambda request: []
    opened = []
    groups = [
        open_samples(client, 2, name=name, prompt=prompt, on_open=opened.append)
        for name, prompt in (("a", (1, 2)), ("b", (3,)))
    ]
    merged = merge(*groups)
    calls = []
    async with merged:
        adds = await engine.wait_adds(4)
        merged.sink = lambda ready: calls.append([sample.request_id for sample in ready])
        deliver(
            client,
            message(EngineCoreOutput("1_b-abcd", [1])),
            message(EngineCoreOutput("0_a-abcd", [1])),
        )
    ids = ["0_a-abcd", "1_a-abcd", "0_b-abcd", "1_b-abcd"]
    assert [sample.request_id for sample in merged] == ids
    assert [request.request_id for request in adds] == ids
    assert [request.prompt_token_ids for request in adds] == [[1, 2], [1, 2], [3], [3]]
    assert calls == [["1_b-abcd", "0_a-abcd"]]
    assert await engine.wait_aborts() == [ids]
    assert [[sample.request_id[2] for sample in samples] for samples in opened] == [
        ["a", "a"],
        ["b", "b"],
    ]


async def test_merged_groups_are_read_under_their_place_in_the_whole(connected, open_samples):
    client, engine = connected
    engine.script = lambda request: tokens(*request.prompt_token_ids)
    merged = merge(
        open_samples(client, 1, name="a", prompt=(1, 2)), open_samples(client, 1, name="b")
    )
    async with merged:
        token_ids, _ = await collect(merged)
    assert token_ids == [[1, 2], [1, 2, 3]]


async def test_what_was_merged_or_entered_cannot_be_merged_or_entered(connected, open_samples):
    client, _ = connected
    parts = [open_samples(client, 1, name=name) for name in "ab"]
    merged = merge(*parts)
    with pytest.raises(RuntimeError, match="samples can be entered once"):
        await parts[0].__aenter__()
    async with merged:
        with pytest.raises(RuntimeError, match="only samples that were not entered yet"):
            merge(merged)
