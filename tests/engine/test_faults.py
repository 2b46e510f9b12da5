"""What engines do wrong, and how far the harm goes."""

import asyncio
import os
import signal
import sys
import textwrap
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import numpy as np
import pytest
import zmq

from umbel_engine import (
    ABORTED,
    EngineClient,
    EngineDeadError,
    EngineError,
    EngineOptions,
    EngineProcess,
    EngineProcessOptions,
    EngineStartError,
    Finish,
    SchedulerStats,
)
from umbel_engine.mock import tokens
from umbel_engine.sockets import open_socket as open_frontend_socket
from umbel_engine.tensors import WireArray, from_array, inline_array
from umbel_engine.wire import (
    FINISH_REASONS,
    EngineCoreOutput,
    LogprobsArrays,
    UtilityOutput,
    UtilityResult,
)

from .reading import collect, message

COMMAND = Path(sys.executable).parent / "umbel-mock-engine"
ABORT = FINISH_REASONS.index("abort")


def logprobs(ids=((1, 2),), values=((-0.5, -1.0),), ranks=(1,), types=("<i4", "<f4", "<i4")):
    arrays = zip((ids, values, ranks), types, strict=True)
    return LogprobsArrays(*(inline_array(np.array(array, kind)) for array, kind in arrays))


# A fault in one output ends its sample and no other.

NO_FRAME = LogprobsArrays(*(WireArray("<i4", (1, 2), 3) for _ in range(3)))
NO_ARRAY = LogprobsArrays(*(WireArray("<i4", (1 << 40, 2), msgspec.msgpack.Ext(3, b""))
                            for _ in range(3)))  # fmt: skip

FAULTS = {
    "missing frame": {"new_logprobs": NO_FRAME},
    "size that is not that of the data": {"new_logprobs": NO_ARRAY},
    "shapes that differ": {"new_logprobs": logprobs(values=((-0.5,),))},
    "ranks without a dimension": {"new_logprobs": logprobs(ranks=1)},
    "ranks of two dimensions": {"new_logprobs": logprobs(ranks=((1, 2),))},
    "rows without columns": {"new_logprobs": logprobs(((),), ((),))},
    "fewer rows than tokens": {"new_token_ids": [1, 2], "new_logprobs": logprobs()},
    "text for numbers": {"new_logprobs": logprobs((("1", "2"),), types=("<U1", "<f4", "<i4"))},
    "prompt": {"new_prompt_logprobs_tensors": NO_FRAME},
    "scores": {"prompt_token_id_logprobs": NO_FRAME.ranks},
    "experts": {"routed_experts": NO_FRAME.ranks},
    "a finish reason too many": {"finish_reason": len(FINISH_REASONS)},
    "a negative finish reason": {"finish_reason": -1},
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_a_fault_in_one_output_ends_its_sample_alone(connected, open_samples, fault):
    client, engine = connected
    engine.pause()
    faulty = EngineCoreOutput("0_x-abcd", **{"new_token_ids": [1], **fault})
    good = EngineCoreOutput("1_x-abcd", [5], new_logprobs=logprobs(), finish_reason=0)
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        engine.send_outputs(faulty, good)
        token_ids, (failed, finish) = await collect(samples)
        if faulty.finish_reason is None:
            assert await engine.wait_aborts() == [["0_x-abcd"]]
    assert type(failed.error) is EngineError
    assert str(failed.error).startswith("output could not be processed: ")
    assert (token_ids[1], finish) == ([5], Finish("stop"))
    assert client.error is None
    assert client.in_flight == 0
    assert [e.inflight for e in client.engines] == [0]
    if faulty.finish_reason is not None:
        # The engine has ended it.
        await client.call("get_supported_tasks")
        assert engine.aborts == []


async def test_routed_experts_that_do_not_fit_together_are_a_fault(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        for layers in (2, 3):
            experts = inline_array(np.zeros((1, layers, 1), np.uint8))
            engine.send_outputs(EngineCoreOutput("0_x-abcd", [1], routed_experts=experts))
        _, (finish,) = await collect(samples)
    assert "routed experts" in str(finish.error)
    assert client.error is None


# What harms nobody.


async def test_what_nobody_waits_for_is_nothing(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        for call_id in (-1, 0, 999, 2**63):
            answer = UtilityOutput(call_id, None, UtilityResult(None, "x"))
            engine.send(message(utility_output=answer))
        engine.send(message(finished_requests=["", "nobody"], wave_complete=3, start_wave=4))
        engine.send_outputs(*[EngineCoreOutput(name, [9], finish_reason=0) for name in ("", "x")])
        engine.send_outputs()
        # A finish, and in the same message what should not come after it.
        engine.send_outputs(
            EngineCoreOutput("0_x-abcd", [1], finish_reason=0),
            EngineCoreOutput("0_x-abcd", [2]),
            EngineCoreOutput("0_x-abcd", [3], finish_reason=1),
        )
        token_ids, finishes = await collect(samples)
    assert (token_ids, finishes) == ([[1]], [Finish("stop")])
    assert await client.call("get_supported_tasks") == [["generate"]]
    assert client.error is None
    assert engine.aborts == []


async def test_frames_that_no_array_is_in_are_ignored_whatever_their_size(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        frames = []
        ids = from_array(np.full((1, 100), 7), frames)
        values = from_array(np.zeros((1, 100)), frames)
        ranks = from_array(np.ones(1, np.int64), frames)
        output = EngineCoreOutput("0_x-abcd", [7], LogprobsArrays(ids, values, ranks))
        engine.send([*message(output), *frames, b"", bytes(1 << 24), b"\xc1"])
        delta = await asyncio.wait_for(anext(samples[0]), 20)
    assert delta.logprobs.token_ids.tolist() == [[7] * 100]
    assert client.error is None


@pytest.mark.parametrize("token_id", [-1, -(2**63), 2**31, 2**32, 2**64 - 1])
async def test_ids_that_are_no_tokens_are_handed_on(connected, open_samples, token_id):
    client, engine = connected
    engine.script = lambda request: tokens(1, token_id, 2)
    async with open_samples(client, 1) as samples:
        token_ids, finishes = await collect(samples)
    assert (token_ids, finishes) == ([[1, token_id, 2]], [Finish("length")])


@pytest.mark.parametrize("index", [1, -1, 2**63])
async def test_outputs_of_an_engine_that_never_registered_are_those_of_their_samples(
    connected, open_samples, index
):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        stats = SchedulerStats(num_waiting_reqs=5)
        output = EngineCoreOutput("0_x-abcd", [1], finish_reason=0)
        engine.send(message(output, engine_index=index, scheduler_stats=stats))
        token_ids, _ = await collect(samples)
    assert token_ids == [[1]]
    assert client.engines[0].waiting == 0


NONSENSE = {
    "negative": SchedulerStats(-5, -6, -7, kv_cache_usage=-1.0),
    "no number": SchedulerStats(kv_cache_usage=float("nan")),
    "infinite": SchedulerStats(kv_cache_usage=float("inf")),
    "minus infinite": SchedulerStats(kv_cache_usage=float("-inf")),
}


@pytest.mark.parametrize("stats", NONSENSE.values(), ids=NONSENSE)
async def test_what_cannot_be_true_of_a_scheduler_does_not_move_requests(
    connect, open_samples, stats
):
    client, engines = await connect(engines=2, paused=True)
    heard = asyncio.Event()
    client.step_listener = lambda outputs, step: heard.set()
    engines[0].send_stats(stats)
    await asyncio.wait_for(heard.wait(), 20)
    async with open_samples(client, 4):
        for engine in engines:
            await engine.wait_adds(2)
    first = client.engines[0]
    assert (first.waiting, first.running) == (0, 0)
    assert 0.0 <= first.kv_cache_usage <= 1.0


async def test_a_huge_queue_sends_requests_elsewhere(connect, open_samples):
    client, engines = await connect(engines=2, paused=True)
    heard = asyncio.Event()
    client.step_listener = lambda outputs, step: heard.set()
    engines[0].send_stats(SchedulerStats(2**64 - 1, 2**64 - 1, kv_cache_usage=1e308))
    await asyncio.wait_for(heard.wait(), 20)
    async with open_samples(client, 4):
        await engines[1].wait_adds(4)
    assert engines[0].adds == []


# What cannot be decoded ends everything: whose tokens are lost, nobody knows.


async def test_a_huge_frame_of_garbage_ends_everything(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        engine.send([b"\xdd" * (1 << 24)])
        _, finishes = await collect(samples)
    assert [finish.reason for finish in finishes] == ["error"] * 2
    assert "cannot be decoded" in str(client.error)


# What an engine says before it goes.


async def test_all_that_an_engine_says_before_it_goes_is_read(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 2) as samples:
        await engine.wait_adds(2)
        # More than is read in one turn of the loop, so that the end is noticed in between.
        for number in range(1000):
            engine.send_outputs(EngineCoreOutput("0_x-abcd", [number]))
        engine.send_outputs(
            EngineCoreOutput("0_x-abcd", [], finish_reason=ABORT),
            EngineCoreOutput("1_x-abcd", [], finish_reason=ABORT),
        )
        engine.kill()
        token_ids, finishes = await collect(samples)
        assert (token_ids, finishes) == ([[*range(1000)], []], [ABORTED, ABORTED])
        assert "has closed its connection" in str(await asyncio.wait_for(client.died(), 20))


async def until_lost(client):
    """Wait until a client knows that an engine has gone."""
    async with asyncio.timeout(20):
        while client.error is None:  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_nothing_is_taken_on_while_the_last_words_of_an_engine_are_read(
    connected, open_samples
):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        engine.kill()
        await until_lost(client)
        assert samples[0].finish is None
        with pytest.raises(EngineDeadError, match="has closed its connection"):
            await open_samples(client, 1, name="late").__aenter__()
        with pytest.raises(EngineDeadError):
            await client.call("is_sleeping")
        # Of the reasons that follow each other so closely the last one says most.
        client.lose(EngineDeadError("it was killed"))
        _, (finish,) = await collect(samples)
    assert str(finish.error) == "it was killed"
    assert await client.died() is finish.error is client.error


async def test_a_client_that_is_closed_while_it_reads_last_words_ends_all(connected, open_samples):
    client, engine = connected
    engine.pause()
    async with open_samples(client, 1) as samples:
        await engine.wait_adds(1)
        engine.kill()
        await until_lost(client)
        client.close()
        assert samples[0].finish.error is client.error
        assert await client.died() is client.error
    assert client.in_flight == 0


# Processes that are killed.


@asynccontextmanager
async def mock_process(address, *flags):
    process = await asyncio.create_subprocess_exec(
        *(COMMAND, "--handshake-address", address, "--step-ms", "5", *flags)
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


@pytest.mark.parametrize(
    ("number", "reason"), [(signal.SIGKILL, "error"), (signal.SIGTERM, "abort")]
)
async def test_an_engine_process_that_is_ended_in_mid_stream_ends_its_samples(
    address, open_samples, number, reason
):
    options = EngineOptions(address, ready_timeout=60)
    async with (
        EngineClient(options) as client,
        mock_process(client.handshake_address) as process,
    ):
        await client.wait_ready()
        async with open_samples(client, 2, max_tokens=20_000) as samples:
            for sample in samples:
                await asyncio.wait_for(anext(sample), 20)
            process.send_signal(number)
            _, finishes = await collect(samples)
        error = await asyncio.wait_for(client.died(), 20)
    assert str(error) == "an engine has closed its connection"
    # One that is told to stop says so itself.
    assert finishes == [Finish(reason, error=error if reason == "error" else None)] * 2


MANAGED = """
    import os, sys
    host, port = (sys.argv[sys.argv.index(f"--data-parallel-{name}") + 1]
                  for name in ("address", "rpc-port"))
    COMMAND = "command"
    print("pid", os.getpid(), flush=True)
    os.execv(COMMAND, [COMMAND, "--handshake-address", f"tcp://{host}:{port}"])
"""


async def test_of_a_managed_engine_that_is_killed_the_signal_is_told(open_samples, tmp_path):
    program = tmp_path / "managed.py"
    program.write_text(textwrap.dedent(MANAGED).replace("command", str(COMMAND)))
    lines = asyncio.Queue()
    async with EngineClient(EngineOptions(ready_timeout=60)) as client:
        options = EngineProcessOptions(
            *(Path(sys.executable), "m", client.handshake_address),
            program=(sys.executable, str(program)),
        )
        async with EngineProcess(options, lines.put_nowait, lines.put_nowait) as process:
            await process.wait_ready(client)
            pid = int((await lines.get()).split()[1])
            async with open_samples(client, 2, max_tokens=20_000) as samples:
                await asyncio.wait_for(anext(samples[0]), 20)
                os.kill(pid, signal.SIGKILL)
                _, finishes = await collect(samples)
            client.close()
    # Its connection closes first.
    for finish in finishes:
        assert str(finish.error).startswith("the engine was ended by SIGKILL; its last lines:")


# Heartbeats.


@pytest.mark.parametrize(
    ("address", "watched"),
    [
        ("ipc:///tmp/x", False),
        ("tcp://127.0.0.1:0", False),
        ("tcp://127.8.8.8:0", False),
        ("tcp://[::1]:0", False),
        ("tcp://localhost:0", False),
        ("tcp://10.0.0.1:5", True),
        ("tcp://[fd00::1]:5", True),
        ("tcp://eth0:5", True),
    ],
)
def test_silence_is_an_end_only_where_a_machine_can_vanish(address, watched):
    with zmq.Context() as context, open_frontend_socket(context, zmq.ROUTER, address) as socket:
        assert socket.heartbeat_ivl == (10_000 if watched else 0)
        if watched:
            assert socket.heartbeat_timeout == 60_000


async def test_engines_on_this_machine_are_not_listened_to_for_their_heart():
    options = EngineOptions("tcp://127.0.0.1:0", local_engines=True)
    async with EngineClient(options) as client:
        assert client._input_socket.heartbeat_ivl == client._output_socket.heartbeat_ivl == 0


# Before they are ready.


@pytest.mark.parametrize("payload", [b"", b"\xc1", b"\x81\xa6status\xa2\xff\xfe", b"\x91" * 10_000])
async def test_a_hello_of_garbage_stops_the_start_at_once(open_socket, payload):
    async with EngineClient(EngineOptions(ready_timeout=60)) as client:
        socket = open_socket(zmq.DEALER, b"\0\0")
        socket.connect(client.handshake_address)
        socket.send(payload)
        with pytest.raises(EngineStartError, match="engine 0 sent no HELLO or READY"):
            await asyncio.wait_for(client.wait_ready(), 20)
