"""Engines that are there and do nothing."""

import asyncio

import pytest

from umbel_engine import EngineClient, EngineDeadError, EngineOptions
from umbel_engine.mock import DEFAULT_READY, MockEngine, tokens
from umbel_engine.routing import Engine
from umbel_engine.stall import TICKS, StallWatch

from .reading import collect

TIMEOUT = 0.2
"""Seconds of silence that clients bear where an engine is stuck."""

PATIENCE = 1.0
"""And where it is not, on a machine that may be busy."""


@pytest.fixture
async def watched():
    """Connect a client that watches mock engines; engines in `stuck` answer no utility call."""
    clients, engines = [], []

    async def watched(count=1, stuck=(), timeout=TIMEOUT, **options):
        clients.append(
            EngineClient(EngineOptions(engine_count=count, ready_timeout=20, stall_timeout=timeout))
        )
        for index in range(count):
            utilities = {"is_sleeping": asyncio.Event().wait} if index in stuck else None
            engines.append(MockEngine(index=index, utilities=utilities, **options))
        starts = [engine.start(clients[0].handshake_address) for engine in engines]
        await asyncio.gather(clients[0].wait_ready(), *starts)
        return clients[0], engines

    yield watched
    for client in clients:
        client.close()
    for engine in engines:
        await engine.close()


async def test_an_engine_that_answers_no_ping_ends_everything(watched, open_samples):
    client, (engine,) = await watched(stuck=[0], paused=True)
    async with open_samples(client, 3) as samples:
        _, finishes = await collect(samples)
    said = (
        f"engine 0 is stuck: it has sent nothing for {TIMEOUT:g} s, not even the answer to a ping"
    )
    assert [(finish.reason, str(finish.error)) for finish in finishes] == [("error", said)] * 3
    assert [call.method for call in engine.utilities] == ["is_sleeping"]
    with pytest.raises(EngineDeadError, match="engine 0 is stuck"):
        client.check_alive()


async def test_one_stuck_engine_of_two_is_named(watched):
    client, _ = await watched(2, stuck=[1])
    error = await asyncio.wait_for(client.died(), 20)
    assert str(error).startswith("engine 1 is stuck")


async def test_an_engine_that_answers_its_pings_lives(watched, open_samples):
    client, (engine,) = await watched(timeout=PATIENCE)
    # The second ping comes only after the answer to the first.
    calls = await engine.wait_utilities(3)
    assert client.error is None
    assert {call.method for call in calls} == {"is_sleeping"}
    async with open_samples(client, 1) as samples:
        _, (finish,) = await collect(samples)
    assert finish.reason == "length"


async def test_an_engine_whose_outputs_come_lives_though_it_answers_no_ping(watched, open_samples):
    client, (engine,) = await watched(1, [0], PATIENCE, step_seconds=0.3)
    engine.script = lambda request: tokens(*range(6))
    async with open_samples(client, 1) as samples:
        token_ids, (finish,) = await collect(samples)
    assert (token_ids, finish.reason) == ([[*range(6)]], "length")


async def test_a_dead_client_is_watched_no_more(watched):
    client, (engine,) = await watched(timeout=60.0)
    engine.send_dead()
    await asyncio.wait_for(client.died(), 20)
    assert client._stall_watch._timer.cancelled()


# The watch by itself, with looks of the test's own.


class Watch:
    """A watch over two engines, which looks when it is told to."""

    def __init__(self):
        engines = [Engine(bytes([index, 0]), index, DEFAULT_READY) for index in range(2)]
        self.pinged, self.stalled = [], []
        self.watch = StallWatch(engines, 1e6, self.pinged.append, self.stalled.append)

    def look(self, *heard):
        for index in heard:
            self.watch.heard(index)
        self.watch._timer.cancel()
        self.watch._look()

    @property
    def pings(self):
        return [engine.index for engine in self.pinged]


@pytest.fixture
async def watch():
    watch = Watch()
    yield watch
    watch.watch.cancel()


async def test_only_a_silent_engine_is_pinged_and_only_once(watch):
    for _ in range(TICKS):
        watch.look(0)
    assert watch.pings == [1]
    watch.look(0, 1)
    watch.look(0)
    assert watch.pings == [1, 1]


async def test_an_engine_is_given_up_a_whole_timeout_after_its_ping(watch):
    watch.look(0)
    for _ in range(TICKS - 1):
        watch.look(0)
        assert watch.stalled == []
    watch.look(0)
    assert [engine.index for engine in watch.stalled] == [1]


async def test_a_sign_of_life_begins_the_timeout_anew(watch):
    for _ in range(TICKS):
        watch.look(0)
    watch.look(0, 1)
    for _ in range(TICKS):
        watch.look(0)
    assert watch.stalled == []
    # What it is told of engines that do not exist is nothing to it.
    watch.look(0, 7)
    assert len(watch.stalled) == 1
