import asyncio
import itertools
import logging
from contextlib import suppress

import msgspec
import numpy as np
import pytest
import zmq

from umbel_engine import (
    ABORTED,
    EngineClient,
    EngineDeadError,
    EngineOptions,
    Finish,
    InvalidRankError,
    Logprobs,
    SchedulerStats,
    TokenStage,
    UtilityError,
    merge,
)
from umbel_engine.mock import DEFAULT_READY, MockEngine, MockStep, made_up_logprobs
from umbel_engine.wire import EngineCoreOutput, EngineCoreOutputs

encode = msgspec.msgpack.encode


async def finishes_of(samples):
    finishes = [None] * len(samples)
    async with asyncio.timeout(20):
        async for index, delta in samples:
            finishes[index] = delta.finish
    return finishes


def never():
    return asyncio.get_running_loop().create_future()


# Requests.


async def test_children_differ_in_id_and_seed_and_share_the_rest(connected, open_samples):
    client, engine = connected
    async with open_samples(client, 4, name="r", seed=7, temperature=0.5, prompt=(5, 6)) as samples:
        await finishes_of(samples)
    adds = await engine.wait_adds(4)
    assert [request.request_id for request in adds] == [f"{index}_r-abcd" for index in range(4)]
    assert [request.sampling_params.seed for request in adds] == [7, 8, 9, 10]
    alike = [
        msgspec.structs.replace(
            request,
            request_id="",
            sampling_params=msgspec.structs.replace(request.sampling_params, seed=None),
        )
        for request in adds
    ]
    assert alike == alike[:1] * 4
    assert alike[0].prompt_token_ids == [5, 6]
    assert alike[0].external_req_id == "r"
    assert alike[0].sampling_params.temperature == 0.5


async def test_on_open_comes_before_the_first_child_and_on_close_after_the_last(
    connected, open_samples
):
    client, _ = connected
    calls = []
    samples = open_samples(
        client,
        3,
        on_open=lambda fanout, is_first: calls.append(("open", client.in_flight)),
        on_close=lambda: calls.append(("close", client.in_flight)),
        max_tokens=10_000,
    )
    assert calls == []
    async with samples:
        assert calls == [("open", 0)]
        assert client.in_flight == 3
    assert calls == [("open", 0), ("close", 0)]
    samples.close()
    assert len(calls) == 2


async def test_on_open_may_refuse_all_children(connected, open_samples):
    client, engine = connected
    calls = []

    def refuse(fanout, is_first):
        raise ValueError("too many")

    merged = merge(
        open_samples(client, 3, name="a", on_close=lambda: calls.append("a")),
        open_samples(client, 3, name="b", on_open=refuse, on_close=lambda: calls.append("b")),
        open_samples(client, 3, name="c", on_close=lambda: calls.append("c")),
    )
    with pytest.raises(ValueError, match="too many"):
        await merged.__aenter__()
    assert calls == ["a"]
    assert (client.in_flight, engine.adds, engine.aborts) == (0, [], [])


async def test_children_are_made_when_they_are_sent(connected, open_samples):
    client, _ = connected
    made = []

    def stage():
        made.append(client.in_flight)
        return TokenStage()

    async with open_samples(client, 3, stage=stage, max_tokens=10_000):
        assert made == [0, 1, 2]


async def test_many_requests_at_once_all_end(connected, open_samples):
    client, engine = connected

    async def ask(number):
        async with open_samples(client, 3, name=str(number), max_tokens=20) as samples:
            return await finishes_of(samples)

    answers = await asyncio.gather(*(ask(number) for number in range(100)))
    assert answers == [[Finish("length")] * 3] * 100
    assert client.in_flight == 0
    assert engine.aborts == []


# Ranks.


async def test_children_are_spread_over_the_engines_and_come_back(connect, address, open_samples):
    client, engines = await connect(address=address, engines=3)
    async with open_samples(client, 6) as samples:
        assert await finishes_of(samples) == [Finish("length")] * 6
    assert [len(engine.adds) for engine in engines] == [2, 2, 2]
    assert [engine.inflight for engine in client.engines] == [0, 0, 0]


async def test_a_rank_is_the_engine_that_gets_the_request(connect, open_samples):
    client, engines = await connect(engines=2)
    async with open_samples(client, 3, rank=1) as samples:
        await finishes_of(samples)
    assert [len(engine.adds) for engine in engines] == [0, 3]
    assert {request.data_parallel_rank for request in engines[1].adds} == {1}


async def test_a_rank_that_no_engine_has_is_refused_and_leaves_nothing(connect, open_samples):
    client, _ = await connect(engines=2)
    client.check_rank(1)
    client.check_rank(None)
    with pytest.raises(InvalidRankError, match=r"data_parallel_rank 2 is out of range \[0, 2\)"):
        client.check_rank(2)
    with pytest.raises(InvalidRankError):
        await open_samples(client, 2, rank=2).__aenter__()
    assert client.in_flight == 0


async def test_aborts_are_one_message_per_engine(connect, address, open_samples):
    client, engines = await connect(address=address, engines=2, paused=True)
    async with open_samples(client, 6):
        pass
    for engine in engines:
        own = [request.request_id for request in await engine.wait_adds(3)]
        assert await engine.wait_aborts() == [own]
    assert [engine.inflight for engine in client.engines] == [0, 0]


async def test_requests_avoid_an_engine_that_tells_of_a_queue(connect, open_samples):
    client, engines = await connect(engines=2, paused=True)
    engines[0].send_stats(SchedulerStats(num_waiting_reqs=10))
    # Its answer to a call comes after what it told before.
    await client.call("is_sleeping")
    assert client.engines[0].waiting == 10
    async with open_samples(client, 4):
        await engines[1].wait_adds(4)
    assert engines[0].adds == []


# Outputs.


@pytest.mark.parametrize("count", [3, 500], ids=["inline", "in frames of their own"])
async def test_log_probabilities_arrive(connected, open_samples, count):
    client, engine = connected
    expected = made_up_logprobs([7, 8, 9], count)
    prompt = made_up_logprobs(range(2000), 1)
    empty = Logprobs(
        np.empty((0, 0), np.int32), np.empty((0, 0), np.float32), np.empty(0, np.int32)
    )
    engine.script = lambda request: [
        MockStep(token_ids=[7], logprobs=made_up_logprobs([7], count), prompt_logprobs=prompt),
        MockStep(token_ids=[8, 9], logprobs=made_up_logprobs([8, 9], count)),
        MockStep(logprobs=empty, finish="length"),
    ]
    async with open_samples(client, 3, interval=None) as samples:
        deltas = [item async for _, item in samples]
    assert len(deltas) == 3
    for delta in deltas:
        for found, wanted in ((delta.logprobs, expected), (delta.prompt_logprobs, prompt)):
            np.testing.assert_array_equal(found.token_ids, wanted.token_ids)
            np.testing.assert_array_equal(found.logprobs, wanted.logprobs)
            np.testing.assert_array_equal(found.ranks, wanted.ranks)


async def test_0_32_s_outputs_are_understood(connect, address, open_samples):
    ready = msgspec.structs.replace(DEFAULT_READY, vllm_version="0.32.0")
    client, (engine,) = await connect(address=address, ready=ready)
    engine.script = lambda request: [MockStep(token_ids=[1]), MockStep(finish="error")]
    async with open_samples(client, 1) as samples:
        (finish,) = await finishes_of(samples)
    assert str(finish.error) == "Internal server error"


async def test_fields_that_a_later_version_adds_are_ignored(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        output = EngineCoreOutput("0_x-abcd", [5], finish_reason=1)
        fields = (*msgspec.structs.astuple(output), "new", [1])
        engine.send([encode((0, [fields], None, 1.0, None, None, None, None, None, "new"))])
        assert (await anext(samples[0])).token_ids == [5]


async def test_unknown_ids_and_second_finishes_are_ignored(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        engine.send_outputs(EngineCoreOutput("stranger", [1], finish_reason=0))
        engine.send_outputs(EngineCoreOutput("0_x-abcd", [1], finish_reason=0))
        engine.send_outputs(EngineCoreOutput("0_x-abcd", [2], finish_reason=1))
        assert await finishes_of(samples) == [Finish("stop")]
        await client.call("get_supported_tasks")
        assert samples[0].finish == Finish("stop")
        assert samples[0].take() is None
    assert [engine.inflight for engine in client.engines] == [0]


async def test_a_request_that_the_engine_only_lists_as_finished_ends(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2) as samples:
        message = EngineCoreOutputs(
            outputs=[EngineCoreOutput("0_x-abcd", [1], finish_reason=0)],
            finished_requests=["0_x-abcd", "1_x-abcd", "stranger"],
        )
        engine.send([encode(message)])
        assert await finishes_of(samples) == [Finish("stop"), ABORTED]
    await client.call("get_supported_tasks")
    assert engine.aborts == []


async def test_the_step_listener_sees_every_message_before_its_outputs(connected, open_samples):
    client, engine = connected
    seen = []
    engine.pause()
    async with open_samples(client, 1) as samples:
        client.step_listener = lambda outputs, step: seen.append(
            (len(outputs.outputs), step.engine_index, step.timestamp > 0, samples[0].finish)
        )
        engine.send_outputs(EngineCoreOutput("0_x-abcd", [1], finish_reason=0))
        await finishes_of(samples)
        engine.send_stats(SchedulerStats(num_running_reqs=1))
        await client.call("get_supported_tasks")
    assert seen == [
        (1, 0, True, None),
        (0, 0, True, samples[0].finish),
        (0, 0, True, samples[0].finish),
    ]


async def test_a_step_listener_that_fails_stops_nothing(connected, open_samples, caplog):
    client, _ = connected
    client.step_listener = lambda outputs, step: 1 / 0
    async with open_samples(client, 1) as samples:
        assert await finishes_of(samples) == [Finish("length")]
    assert "the step listener failed" in caplog.text


async def test_an_engine_message_that_a_send_hides_is_read(connected, open_samples, caplog):
    client, engine = connected
    engine.pause()
    caplog.set_level(logging.WARNING, "umbel_engine")
    engine._link.register(DEFAULT_READY)
    # Looking at the socket, like sending on it, uses up the edge that would tell of the message.
    while not client._input_socket.getsockopt(zmq.EVENTS) & zmq.POLLIN:
        pass
    async with open_samples(client, 1):
        await engine.wait_adds(1)
    assert "engine 0 registered again" in caplog.text
    assert client.error is None


# Utility calls.


async def test_a_call_gives_the_results_in_rank_order(connect, address):
    client, engines = await connect(address=address, engines=3)
    for engine in engines:
        engine._utilities["echo"] = lambda *arguments, rank=engine.index: [rank, *arguments]
    assert await client.call("echo", 1, "two", None) == [
        [rank, 1, "two", None] for rank in range(3)
    ]
    call = engines[0].utilities[0]
    assert (call.client_index, call.method, call.arguments) == (0, "echo", [1, "two", None])


async def test_a_call_that_fails_on_one_engine_fails_after_all_have_answered(connect):
    client, engines = await connect(engines=2)
    answer = never()
    engines[0]._utilities["check"] = lambda: 1 / 0
    engines[1]._utilities["check"] = lambda: answer
    calling = asyncio.create_task(client.call("check"))
    await engines[0].wait_utilities()
    await engines[1].wait_utilities()
    done, _ = await asyncio.wait([calling], timeout=0.02)
    assert not done
    answer.set_result(None)
    with pytest.raises(UtilityError, match="Call to check method failed: division by zero"):
        await calling


async def test_an_unknown_method_is_the_engine_s_failure(connected):
    client, _ = connected
    with pytest.raises(UtilityError, match="has no attribute 'fly'"):
        await client.call("fly")


async def test_calls_at_the_same_time_get_their_own_answers(connected):
    client, engine = connected
    answers = {"a": never(), "b": never()}
    engine._utilities["later"] = lambda name: answers[name]
    first = asyncio.create_task(client.call("later", "a"))
    second = asyncio.create_task(client.call("later", "b"))
    await engine.wait_utilities(2)
    answers["b"].set_result("B")
    assert await second == ["B"]
    answers["a"].set_result("A")
    assert await first == ["A"]


async def test_a_cancelled_call_leaves_nothing_and_its_answer_is_ignored(connected):
    client, engine = connected
    answer = never()
    engine._utilities["later"] = lambda: answer
    calling = asyncio.create_task(client.call("later"))
    await engine.wait_utilities()
    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling
    assert client._calls == {}
    answer.set_result(1)
    assert await client.call("is_sleeping") == [False]


# Death.


async def open_everything(client, engine, open_samples):
    """Start whatever can be waiting for an engine; gives the samples and the waiting tasks."""
    engine.pause()
    engine._utilities["later"] = never
    groups = [open_samples(client, 2, name=name) for name in "abc"]
    calls = []
    groups[1].sink = lambda ready: calls.append(len(ready))
    for group in groups:
        await group.__aenter__()
    waiting = [
        asyncio.create_task(finishes_of(groups[0])),
        asyncio.create_task(groups[1].finished()),
        asyncio.create_task(client.call("later")),
        asyncio.create_task(client.died()),
    ]
    await engine.wait_adds(6)
    await engine.wait_utilities()
    return groups, waiting, calls


async def check_all_ended(client, groups, waiting, calls, reason):
    finishes, finished, call, death = await asyncio.wait_for(
        asyncio.gather(*waiting, return_exceptions=True), 10
    )
    assert reason in str(client.error)
    assert death is client.error
    assert finished is None
    assert calls == [2]
    assert isinstance(call, EngineDeadError)
    samples = [sample for group in groups for sample in group]
    assert [sample.finish for sample in samples] == [Finish("error", error=client.error)] * 6
    assert finishes == [sample.finish for sample in groups[0]]
    assert client.in_flight == 0
    with pytest.raises(EngineDeadError, match=r".+"):
        client.check_alive()
    with pytest.raises(EngineDeadError):
        await client.call("is_sleeping")
    for group in groups:
        group.close()


@pytest.mark.parametrize(
    ("frames", "reason"),
    [
        ([b"ENGINE_CORE_DEAD"], "the engine core has died"),
        ([b"\xc1"], "cannot be decoded"),
        ([b""], "cannot be decoded"),
        ([encode(EngineCoreOutputs(outputs=[EngineCoreOutput("a", [1])]))[:-9]], "decoded"),
        ([encode((0, [["id", "no list"]]))], "cannot be decoded"),
        ([encode({"a": 1})], "cannot be decoded"),
        ([b"\x91" * 100_000], "cannot be decoded"),
        ([b"\x92\x00\x91\x92\xa2\xff\xfe\x90"], "cannot be decoded"),
    ],
    ids=["dead", "garbage", "empty", "truncated", "wrong type", "map", "nested", "no UTF-8"],
)
async def test_a_bad_end_of_the_engine_ends_everything(connected, open_samples, frames, reason):
    client, engine = connected
    started = await open_everything(client, engine, open_samples)
    engine.send(frames)
    # What comes after it is not looked at.
    engine.send_outputs(EngineCoreOutput("0_a-abcd", [1], finish_reason=0))
    await check_all_ended(client, *started, reason)
    with pytest.raises(EngineDeadError):
        await open_samples(client, 1, name="late").__aenter__()


async def test_an_engine_that_is_gone_ends_everything(connected, open_samples):
    client, engine = connected
    started = await open_everything(client, engine, open_samples)
    engine.kill()
    await check_all_ended(client, *started, "an engine has closed its connection")


async def test_one_engine_of_several_that_is_gone_ends_everything(connect, open_samples):
    client, engines = await connect(engines=2, paused=True)
    async with open_samples(client, 4) as samples:
        engines[1].kill()
        finishes = await finishes_of(samples)
    assert [finish.reason for finish in finishes] == ["error"] * 4
    await asyncio.sleep(0)
    assert engines[0].aborts == []


async def test_a_send_to_an_engine_that_is_gone_does_not_vanish(connected, open_samples):
    client, engine = connected
    # Without the monitor, a send is what notices.
    client._monitor_reader.close()
    engine.kill()

    async def send_on():
        for number in itertools.count():
            async with open_samples(client, 1, name=str(number)):
                await asyncio.sleep(0)

    with pytest.raises(EngineDeadError, match="an engine cannot be reached"):
        await asyncio.wait_for(send_on(), 10)
    assert "an engine cannot be reached" in str(client.error)
    assert client.in_flight == 0


async def test_strangers_at_the_door_are_no_death(connect, open_samples):
    client, _ = await connect()
    address = client._input_socket.get_string(zmq.LAST_ENDPOINT).removeprefix("tcp://")
    host, _, port = address.rpartition(":")
    greetings = (
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),  # TLS
        bytes(100),
        b"\x01\x00",  # the protocol's first version
    )
    for greeting in greetings:
        reader, writer = await asyncio.open_connection(host, int(port))
        # Some are hung up on at once.
        with suppress(OSError):
            writer.write(greeting)
            writer.write_eof()
            await asyncio.wait_for(reader.read(), 10)
        with suppress(OSError):
            writer.close()
            await writer.wait_closed()
    async with open_samples(client, 1) as samples:
        assert await finishes_of(samples) == [Finish("length")]
    assert client.error is None


async def test_the_first_error_is_the_one_that_counts(connected):
    client, engine = connected
    engine.send_dead()
    error = await asyncio.wait_for(client.died(), 10)
    client.die(EngineDeadError("something else"))
    engine.kill()
    assert client.error is error
    assert await client.died() is error


# Closing.


async def test_closing_ends_everything_and_aborts_what_runs(connected, open_samples):
    client, engine = connected
    groups, waiting, calls = await open_everything(client, engine, open_samples)
    client.close()
    client.close()
    finishes, _, call, _ = await asyncio.wait_for(
        asyncio.gather(*waiting, return_exceptions=True), 10
    )
    assert finishes == [ABORTED, ABORTED]
    assert calls == [2]
    assert isinstance(call, EngineDeadError)
    ids = [f"{index}_{name}-abcd" for name in "abc" for index in range(2)]
    assert await engine.wait_aborts() == [ids]
    for group in groups:
        group.close()


async def test_closing_leaves_no_task_and_no_reader(fan):
    before = asyncio.all_tasks()
    async with EngineClient(EngineOptions()) as client, MockEngine().serve(client):
        pass
    assert asyncio.all_tasks() == before


async def test_a_client_that_was_closed_takes_no_request(connected, open_samples):
    client, _ = connected
    client.close()
    with pytest.raises(EngineDeadError, match="the engine client was closed"):
        await open_samples(client, 1).__aenter__()
