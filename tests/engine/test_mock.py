import asyncio

import msgspec
import numpy as np
import pytest
import zmq

from umbel_engine import Finish, PrefillStats, SchedulerStats
from umbel_engine.messages import Logprobs
from umbel_engine.mock import (
    DEFAULT_READY,
    MockEngine,
    MockStep,
    child_index,
    made_up_logprobs,
    per_child,
    sampled,
    tokens,
)
from umbel_engine.reader import Reader
from umbel_engine.wire import (
    ABORT,
    ADD,
    UTILITY,
    Addresses,
    EngineCoreOutputs,
    EngineCoreRequest,
    EngineEvent,
    Init,
    ReadyResponse,
    SamplingParams,
)

encode, decode = msgspec.msgpack.encode, msgspec.msgpack.decode


class Frontend:
    """The frontend's side, made of plain sockets, with as many clients as wanted."""

    def __init__(self, open_socket, clients):
        self.handshake = open_socket(zmq.ROUTER)
        self.handshake.bind("tcp://127.0.0.1:0")
        self.inputs = [open_socket(zmq.ROUTER) for _ in range(clients)]
        self.outputs = [open_socket(zmq.PULL) for _ in range(clients)]
        for socket in (*self.inputs, *self.outputs):
            socket.bind("tcp://127.0.0.1:0")
        self.address = self.handshake.get_string(zmq.LAST_ENDPOINT)

    def init(self, **fields):
        endpoints = [
            [socket.get_string(zmq.LAST_ENDPOINT) for socket in sockets]
            for sockets in (self.inputs, self.outputs)
        ]
        return encode(Init(Addresses(*endpoints, **fields)))

    async def receive(self, socket):
        message = asyncio.get_running_loop().create_future()
        reader = Reader(socket, lambda frames: message.done() or message.set_result(frames))
        try:
            return await asyncio.wait_for(message, 10)
        finally:
            reader.close()

    async def output(self, client_index):
        (payload,) = await self.receive(self.outputs[client_index])
        return decode(payload, type=EngineCoreOutputs)

    def send(self, client_index, kind, payload):
        identity = (0).to_bytes(2, "little")
        self.inputs[client_index].send_multipart([identity, kind, encode(payload)])


@pytest.fixture
async def two_clients(open_socket):
    """A frontend with two clients, and the engine that both talk to."""
    frontend = Frontend(open_socket, 2)
    engine = MockEngine(lambda request: tokens(*request.prompt_token_ids), report_finished=True)
    starting = asyncio.create_task(engine.start(frontend.address))
    identity, hello = await frontend.receive(frontend.handshake)
    assert decode(hello) == {"status": "HELLO", "local": False, "headless": True}
    frontend.handshake.send_multipart([identity, frontend.init()])
    await starting
    for socket in frontend.inputs:
        registered, ready = await frontend.receive(socket)
        assert registered == identity == b"\x00\x00"
        assert decode(ready, type=ReadyResponse) == DEFAULT_READY
    assert decode((await frontend.receive(frontend.handshake))[1])["status"] == "READY"
    yield frontend, engine
    await engine.close()


def ask(request_id, client_index=0, prompt=(1,), **params):
    return EngineCoreRequest(
        request_id,
        list(prompt),
        None,
        SamplingParams(**params),
        None,
        1.0,
        client_index=client_index,
    )


async def test_outputs_go_to_the_client_that_asked(two_clients):
    frontend, engine = two_clients
    engine.pause()
    frontend.send(0, ADD, ask("a", 0, [5]))
    frontend.send(1, ADD, ask("b", 1, [6]))
    await engine.wait_adds(2)
    await engine.step()
    for client_index, (name, token_id) in enumerate((("a", 5), ("b", 6))):
        message = await frontend.output(client_index)
        (output,) = message.outputs
        assert (output.request_id, output.new_token_ids) == (name, [token_id])
        assert message.finished_requests == [name]


async def test_answers_to_utility_calls_go_to_the_client_that_asked(two_clients):
    frontend, _ = two_clients
    frontend.send(1, UTILITY, (1, 2**64 - 1, "get_supported_tasks", []))
    answer = (await frontend.output(1)).utility_output
    assert (answer.call_id, answer.result.value) == (2**64 - 1, ["generate"])


async def test_every_client_is_told_of_the_death(two_clients):
    frontend, engine = two_clients
    engine.send_dead()
    for socket in frontend.outputs:
        assert await frontend.receive(socket) == [b"ENGINE_CORE_DEAD"]


async def test_an_abort_is_not_answered(two_clients):
    frontend, engine = two_clients
    engine.pause()
    frontend.send(0, ADD, ask("a"))
    frontend.send(0, ADD, ask("b", prompt=[7]))
    frontend.send(0, ABORT, ["a", "stranger"])
    assert await engine.wait_aborts() == [["a", "stranger"]]
    assert engine.running == ["b"]
    await engine.step()
    message = await frontend.output(0)
    assert [output.request_id for output in message.outputs] == ["b"]
    assert message.finished_requests == ["a", "b"]


async def test_a_message_it_cannot_read_fails_every_wait(open_socket, two_clients):
    frontend, engine = two_clients
    frontend.send(0, ADD, ["no", "request"])
    with pytest.raises(RuntimeError, match="the mock engine failed: ValidationError"):
        await engine.wait_adds()
    with pytest.raises(RuntimeError, match="the mock engine failed"):
        await engine.wait_aborts()
    # As the fixture's end would raise it, too.
    with pytest.raises(RuntimeError):
        await engine.close()
    engine._failure = None


@pytest.mark.parametrize(
    ("init", "reason"),
    [
        (encode(Init(Addresses([], []))), "0 input and 0 output addresses"),
        (encode(Init(Addresses(["tcp://127.0.0.1:1"], []))), "1 input and 0 output addresses"),
        (
            encode(Init(Addresses(["inproc://a"], ["inproc://b"], coordinator_input="inproc://c"))),
            "a coordinator has",
        ),
    ],
)
async def test_a_wrong_answer_to_hello_is_refused(open_socket, init, reason):
    frontend = Frontend(open_socket, 1)
    engine = MockEngine()
    starting = asyncio.create_task(engine.start(frontend.address))
    identity, _ = await frontend.receive(frontend.handshake)
    frontend.handshake.send_multipart([identity, init])
    with pytest.raises(ValueError, match=reason):
        await starting
    await engine.close()


# Stepping, seen through the client.


def watch(client):
    """Collect the outputs of every message."""
    seen = []
    client.step_listener = lambda outputs, step: seen.append(outputs)
    return seen


async def test_all_running_requests_step_together(connected, open_samples):
    client, engine = connected
    engine.script = lambda request: tokens(1, 2, 3)
    engine.pause()
    async with open_samples(client, 3), open_samples(client, 1, name="y"):
        await engine.wait_adds(4)
        messages = watch(client)
        for _ in range(3):
            await engine.step()
        await client.call("is_sleeping")
    assert [len(message.outputs) for message in messages] == [4, 4, 4, 0]
    assert engine.running == []
    await engine.wait_idle()


async def test_a_pause_holds_one_request_back_and_not_the_others(connected, open_samples):
    client, engine = connected
    gate = asyncio.Event()
    engine.script = per_child(tokens(1, 2, wait=gate), tokens(3, 4))
    async with open_samples(client, 2) as samples:
        assert [item.token_ids async for item in samples[1]] != []
        assert samples[0].finish is None
        assert engine.running == ["0_x-abcd"]
        gate.set()
        deltas = [item async for item in samples[0]]
    assert [token_id for delta in deltas for token_id in delta.token_ids] == [1, 2]


async def test_a_script_may_be_asynchronous(connected, open_samples):
    client, engine = connected
    gate = asyncio.Event()

    async def script(request):
        yield MockStep(token_ids=[1])
        await gate.wait()
        yield MockStep(token_ids=[2], finish="stop")

    engine.script = script
    async with open_samples(client, 2) as samples:
        assert (await anext(samples[0])).token_ids == [1]
        gate.set()
        delta = await anext(samples[0])
        assert (delta.token_ids, delta.finish) == ([2], Finish("stop"))


async def test_an_asynchronous_script_may_be_aborted_in_a_pause(connected, open_samples):
    client, engine = connected
    ended = asyncio.Event()

    async def script(request):
        try:
            await asyncio.Event().wait()
            yield MockStep()
        finally:
            ended.set()

    engine.script = script
    async with open_samples(client, 1):
        await engine.wait_adds()
    await asyncio.wait_for(ended.wait(), 10)


async def test_a_script_that_ends_without_a_finish_leaves_the_request_running(
    connected, open_samples
):
    client, engine = connected
    engine.script = lambda request: tokens(1, finish=None)
    async with open_samples(client, 1) as samples:
        assert (await anext(samples[0])).token_ids == [1]
        assert engine.running == ["0_x-abcd"]
    await engine.wait_aborts()
    assert engine.running == []


async def test_a_script_that_raises_fails_the_engine(connected, open_samples):
    client, engine = connected
    engine.script = lambda request: 1 / 0
    async with open_samples(client, 1):
        with pytest.raises(RuntimeError, match="ZeroDivisionError"):
            await engine.wait_aborts()
    engine._failure = None


async def test_first_outputs_carry_prefill_statistics_and_events(connected, open_samples):
    client, engine = connected
    engine._clock = iter(range(100, 200)).__next__
    cached = PrefillStats(3, 1, 2)
    preempted = EngineEvent(3, 7.0)
    engine.script = per_child(
        tokens(1, 2), [MockStep(token_ids=[1], prefill=cached, finish="stop", events=[preempted])]
    )
    messages = watch(client)
    async with open_samples(client, 2) as samples:
        await asyncio.wait_for(asyncio.gather(*map(read, samples)), 10)
    outputs = [output for message in messages for output in message.outputs]
    first, second = (
        [output for output in outputs if output.request_id.startswith(child)] for child in "01"
    )
    assert [output.prefill_stats for output in first] == [PrefillStats(3, 3), None]
    assert [event.type for event in first[0].events] == [1, 2]
    assert first[0].events[0].timestamp < first[0].events[1].timestamp
    assert first[1].events is None
    assert second[0].prefill_stats == cached
    assert [event.type for event in second[0].events] == [1, 2, 3]


async def read(sample):
    return [item async for item in sample]


async def test_without_statistics_there_are_no_events(connect, open_samples):
    client, _ = await connect(log_stats=False)
    messages = watch(client)
    async with open_samples(client, 1) as samples:
        await read(samples[0])
    assert [output.events for message in messages for output in message.outputs] == [None] * 4


async def test_statistics_of_the_scheduler_go_out_on_demand(connected):
    client, engine = connected
    messages = watch(client)
    engine.send_stats(SchedulerStats(num_running_reqs=3, kv_cache_usage=0.5))
    await client.call("is_sleeping")
    assert messages[0].scheduler_stats == SchedulerStats(num_running_reqs=3, kv_cache_usage=0.5)
    assert client.engines[0].running == 3


async def test_a_wait_that_is_not_met_says_what_was_reached():
    engine = MockEngine(timeout=0.01)
    with pytest.raises(TimeoutError, match=r"0 ADDs after 0.01 s, expected 4"):
        await engine.wait_adds(4)
    await engine.close()


async def test_next_add_gives_each_request_once(connected, open_samples):
    client, engine = connected
    async with open_samples(client, 2):
        first, second = await engine.next_add(), await engine.next_add()
        assert [first.request_id, second.request_id] == ["0_x-abcd", "1_x-abcd"]
        waiting = asyncio.create_task(engine.next_add())
        async with open_samples(client, 1, name="y"):
            assert (await waiting).request_id == "0_y-abcd"


# Scripts.


def play(script, request):
    steps = list(script(request))
    return [token_id for step in steps for token_id in step.token_ids], steps[-1]


def test_tokens_come_one_per_step_and_the_last_one_finishes():
    assert tokens(1, 2, finish="stop", stop_reason=2) == [
        MockStep(token_ids=(1,)),
        MockStep(token_ids=(2,), finish="stop", stop_reason=2),
    ]
    assert tokens(finish="abort") == [MockStep(finish="abort")]


@pytest.mark.parametrize(
    ("request_id", "external", "expected"),
    [
        ("3_r-abcd1234", "r", 3),
        ("12_r-abcd1234", None, 12),
        ("r-abcd1234", "r", 0),
        ("3_r-abcd1234", "3_r", 0),
        ("0_3_r-abcd1234", "3_r", 0),
        ("2_3_r-abcd1234", "3_r", 2),
    ],
)
def test_the_index_of_a_child_is_read_from_its_id(request_id, external, expected):
    request = msgspec.structs.replace(ask(request_id), external_req_id=external)
    assert child_index(request) == expected


def test_sampled_tokens_are_the_same_every_time():
    script, request = sampled(), ask("0_r-a", max_tokens=9)
    assert play(script, request) == play(script, request)
    assert len(play(script, request)[0]) == 9


def test_sampled_tokens_depend_on_the_seed_and_without_one_on_the_child():
    def answer(request_id, **params):
        return tuple(play(sampled(), ask(request_id, max_tokens=8, **params))[0])

    assert answer("0_r-a", seed=8) == answer("5_r-b", seed=8)
    assert len({answer("0_r-a", seed=seed) for seed in range(20)}) == 20
    assert len({answer(f"{index}_r-a") for index in range(20)}) == 20
    assert answer("0_r-a", temperature=0.0, seed=1) == answer("1_r-b", temperature=0.0)


def test_max_tokens_ends_with_length():
    ids, last = play(sampled(), ask("r", max_tokens=5))
    assert (len(ids), last.finish, last.stop_reason) == (5, "length", None)
    ids, last = play(sampled(default_tokens=3), ask("r"))
    assert (len(ids), last.finish) == (3, "length")


def test_the_end_of_sequence_token_stops_without_a_reason():
    script = sampled(eos_after=2)
    ids, last = play(script, ask("r", max_tokens=9, eos_token_id=2, all_stop_token_ids=[2]))
    assert (len(ids), ids[-1], last.finish, last.stop_reason) == (3, 2, "stop", None)
    assert len(play(script, ask("r", max_tokens=9))[0]) == 9


def test_a_stop_token_is_the_reason():
    params = {"allowed_token_ids": [4, 5], "stop_token_ids": [5], "max_tokens": 200}
    ids, last = play(sampled(), ask("r", **params))
    assert (ids[-1], last.finish, last.stop_reason) == (5, "stop", 5)
    assert set(ids[:-1]) <= {4}


def test_nothing_ends_before_min_tokens():
    params = {
        "allowed_token_ids": [2, 4, 5],
        "stop_token_ids": [5],
        "eos_token_id": 2,
        "all_stop_token_ids": [2, 5],
        "min_tokens": 40,
        "max_tokens": 1000,
    }
    ids, last = play(sampled(eos_after=0), ask("r", **params))
    assert ids == [4] * 40 + [2]
    assert last.finish == "stop"


def test_log_probabilities_are_made_up_when_asked_for():
    steps = list(sampled()(ask("r", prompt=(1, 2, 3), logprobs=2, prompt_logprobs=0, max_tokens=2)))
    assert [step.logprobs.token_ids.shape for step in steps] == [(1, 3), (1, 3)]
    assert [step.logprobs.token_ids[0, 0] for step in steps] == [
        step.token_ids[0] for step in steps
    ]
    assert steps[0].prompt_logprobs.token_ids.tolist() == [[2], [3]]
    assert steps[1].prompt_logprobs is None
    (step,) = sampled()(ask("r", max_tokens=1))
    assert step.logprobs is None


@pytest.mark.parametrize(("count", "columns"), [(0, 1), (1, 2), (5, 6), (-1, 901)])
def test_made_up_log_probabilities_look_like_real_ones(count, columns):
    found = made_up_logprobs([100, 7], count)
    assert isinstance(found, Logprobs)
    assert found.token_ids.shape == found.logprobs.shape == (2, columns)
    assert found.token_ids[:, 0].tolist() == [100, 7]
    assert (np.diff(found.logprobs, axis=1) <= 0).all()
    assert (found.logprobs < 0).all()
