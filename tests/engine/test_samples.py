"""What a reader of samples gets."""

import asyncio

import pytest

from umbel_engine import Extras, Finish, PrefillStats, merge
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_engine.wire import EngineCoreOutput

from .reading import collect, message


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


# Groups on one sink.


async def test_merged_groups_are_one_group_in_the_order_given(connected, open_samples, deliver):
    client, engine = connected
    engine.script = lambda request: []
    opened = []
    groups = [
        open_samples(
            client,
            2,
            name=name,
            prompt=prompt,
            on_open=lambda fanout, is_first, name=name: opened.append((name, is_first)),
        )
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
    assert opened == [("a", True), ("b", False)]


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
