"""Clients in several processes that share engines: one greets for all, each has its own sockets."""

import asyncio
from contextlib import asynccontextmanager, closing

from umbel_engine import (
    Addresses,
    EngineClient,
    EngineGreeter,
    EngineOptions,
)
from umbel_engine.mock import MockEngine, tokens
from umbel_engine.wire import SchedulerStats


@asynccontextmanager
async def sharing(engines, count=2, address="tcp://127.0.0.1:0"):
    """Give so many clients that share these engines."""
    options = [
        EngineOptions(
            address, len(engines), ready_timeout=20, client_index=index, client_count=count
        )
        for index in range(count)
    ]
    clients = [EngineClient(option) for option in options]
    try:
        with closing(EngineGreeter(address, len(engines))) as greeter:
            addresses = Addresses(
                [address for client in clients for address in client.addresses.inputs],
                [address for client in clients for address in client.addresses.outputs],
            )
            await asyncio.gather(
                greeter.greet(addresses, 20),
                *(engine.start(greeter.handshake_address) for engine in engines),
                *(client.wait_ready() for client in clients),
            )
            yield clients
    finally:
        for client in clients:
            client.close()
        for engine in engines:
            await engine.close()


async def read(client, fanout):
    found = {}
    async with client.fan_out(fanout) as samples:
        async for index, delta in samples:
            found.setdefault(index, []).extend(delta.token_ids)
    return found


async def test_each_client_gets_its_own_answers(fan):
    engine = MockEngine(lambda request: tokens(request.client_index, 7))
    async with sharing([engine]) as clients:
        answers = await asyncio.gather(
            *(read(client, fan(n=3, name=f"x{client.index}")) for client in clients)
        )
    assert answers == [{index: [0, 7] for index in range(3)}, {index: [1, 7] for index in range(3)}]
    assert sorted(request.client_index for request in engine.adds) == [0, 0, 0, 1, 1, 1]


async def test_utility_calls_are_answered_to_who_made_them():
    engine = MockEngine(utilities={"is_sleeping": lambda: True})
    async with sharing([engine]) as clients:
        results = await asyncio.gather(*(client.call("is_sleeping") for client in clients))
    assert results == [[True], [True]]
    assert sorted(call.client_index for call in engine.utilities) == [0, 1]


async def test_every_client_notices_that_the_engine_has_died():
    engine = MockEngine()
    async with sharing([engine], count=3) as clients, asyncio.timeout(20):
        engine.send_dead()
        await asyncio.gather(*(client.died() for client in clients))


async def test_the_first_requests_of_each_go_to_different_engines(fan):
    engines = [MockEngine(lambda request: tokens(1), index=index) for index in range(2)]
    async with sharing(engines) as clients:
        for client in clients:
            await read(client, fan(name=f"x{client.index}"))
    assert [[add.client_index for add in engine.adds] for engine in engines] == [[0], [1]]


async def test_what_one_client_is_told_of_a_scheduler_can_be_passed_on():
    engine = MockEngine()
    stats = SchedulerStats(num_running_reqs=3, num_waiting_reqs=2)
    async with sharing([engine]) as (one, other), asyncio.timeout(20):
        told = asyncio.get_running_loop().create_future()
        one.step_listener = lambda outputs, step: told.set_result(outputs.scheduler_stats)
        engine.send_stats(stats)
        other.update_stats(0, await told)
        assert (other.engines[0].running, other.engines[0].waiting) == (3, 2)


async def test_clients_may_share_engines_over_ipc(fan, ipc_directory):
    engine = MockEngine(lambda request: tokens(5))
    async with sharing([engine], address=f"ipc://{ipc_directory}/handshake") as clients:
        answers = [await read(client, fan(name=f"x{client.index}")) for client in clients]
    assert answers == [{0: [5]}, {0: [5]}]
