"""How samples end, and what an engine is told of it."""

import asyncio
import gc

import pytest

from umbel_engine import ABORTED, EngineError, EngineRequestError, Finish, TokenStage
from umbel_engine.mock import MockStep, per_child, tokens
from umbel_engine.wire import EngineCoreOutput, RequestFault

from .reading import collect


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
    assert client.in_flight == 64
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
