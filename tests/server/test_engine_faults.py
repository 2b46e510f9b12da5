"""Faults of engines, as clients and operators see them."""

import asyncio
import json
import os
import re
import signal
import sys
import tempfile
from contextlib import AsyncExitStack

import aiohttp
import numpy as np
import pytest

from umbel_engine import SchedulerStats
from umbel_engine.mock import MockEngine, tokens
from umbel_engine.tensors import inline_array
from umbel_engine.wire import FINISH_REASONS, EngineCoreOutput, LogprobsArrays
from umbel_server.flags import make_parser

from .commands import (
    CHAT,
    COMPLETIONS,
    MESSAGES,
    TIMEOUT,
    command,
    finishes,
    open_stream,
    rest_of,
)

GENERATE = "/inference/v1/generate"

BODIES = {
    CHAT: {"messages": MESSAGES, "n": 2},
    COMPLETIONS: {"prompt": "Hello", "n": 2},
    GENERATE: {"token_ids": [300], "sampling_params": {"n": 2}},
}

INTERNAL = {
    "message": "Internal server error",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}
ENGINE_DEAD = {**INTERNAL, "message": "The server had an error while processing your request."}

PAUSED = {"engine_options": {"paused": True}, "enable_scale_out": True}


@pytest.fixture
def faulty_logprobs():
    """Log-probabilities for one of two tokens."""
    values = (np.array([[1]]), np.array([[-1.0]]), np.array([1]))
    return LogprobsArrays(*map(inline_array, values))


# One output is faulty: its request fails, and no other.


@pytest.mark.parametrize("path", BODIES)
async def test_a_faulty_output_in_mid_stream_is_one_error_in_its_own_answer(
    serve, say, path, faulty_logprobs
):
    served = await serve(lambda request: say("hi", "yo", " is"), **PAUSED)
    engine = served.engine
    async with served.stream(path, **BODIES[path]) as stream:
        faulty, _ = await engine.wait_adds(2)
        await served.step()
        other = asyncio.ensure_future(served.post(path, **BODIES[path]))
        await engine.wait_adds(4)
        await stream.next()
        engine.send_outputs(
            EngineCoreOutput(faulty.request_id, [300, 301], new_logprobs=faulty_logprobs)
        )
        *_, error, done = await stream.rest()
        assert (error, done) == ({"error": INTERNAL}, "[DONE]")
    await engine.wait_aborts(2)
    assert engine.aborted == [add.request_id for add in engine.adds[:2]]
    engine.resume()
    assert (await other).status == 200
    assert (await served.get("/health")).status == 200


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
async def test_a_faulty_output_before_the_first_byte_is_an_error_500(
    serve, path, stream, faulty_logprobs
):
    served = await serve(None, **PAUSED)
    asked = asyncio.ensure_future(served.post(path, **BODIES[path], stream=stream))
    _, faulty = await served.engine.wait_adds(2)
    served.engine.send_outputs(
        EngineCoreOutput(faulty.request_id, [300, 301], new_logprobs=faulty_logprobs)
    )
    answer = await asked
    assert (answer.status, answer.error) == (500, INTERNAL)
    await served.engine.wait_idle()
    assert sorted(served.engine.aborted) == sorted(add.request_id for add in served.engine.adds)


@pytest.mark.parametrize("token_id", [-1, 49152, 2**32, 2**64 - 1])
@pytest.mark.parametrize("stream", [False, True])
async def test_an_id_outside_the_vocabulary_has_no_text(serve, token, token_id, stream, texts_of):
    ids = [token("hi"), token_id, token("yo")]
    served = await serve(lambda request: tokens(*ids))
    answer = await served.complete(n=2, stream=stream, return_token_ids=True)
    assert answer.status == 200
    if stream:
        assert texts_of(answer.events) == {0: "hiyo", 1: "hiyo"}
    else:
        for choice in answer.json()["choices"]:
            assert (choice["text"], choice["token_ids"]) == ("hiyo", ids)


async def test_an_id_outside_the_vocabulary_within_a_character_has_no_text(serve, tokenizer):
    first, second = tokenizer.encode("\u00e4", add_special_tokens=False).ids
    served = await serve(lambda request: tokens(2**32, second))
    answer = await served.complete(prompt=[first])
    assert answer.json()["choices"][0]["text"] == "\u00e4"


async def test_nonsense_of_a_scheduler_reaches_no_header_and_stops_nothing(serve, say):
    served = await serve(lambda request: say("hi"))
    heard = asyncio.Event()
    on_step = served.client.step_listener

    def listen(outputs, step):
        on_step(outputs, step)
        heard.set()

    served.client.step_listener = listen
    served.engine.send_stats(SchedulerStats(-1, -2, -3, kv_cache_usage=float("nan")))
    await asyncio.wait_for(heard.wait(), TIMEOUT)
    served.client.step_listener = on_step
    answer = await served.ask({"endpoint-load-metrics-format": "JSON"})
    assert answer.status == 200
    assert answer.headers["endpoint-load-metrics"] == (
        'JSON {"named_metrics": {"num_requests_waiting": 0.0, "kv_cache_usage_perc": 0.0}}'
    )
    assert (await served.metrics())["vllm:generation_tokens_total"] == 1


# The engine goes.


async def test_an_engine_that_is_told_to_stop_ends_its_answers_itself(umbel, say):
    served = await umbel(lambda request: say("hi", "yo"), paused=True)
    response = await open_stream(served)
    whole = asyncio.ensure_future(served.ask(n=2))
    ended = [add.request_id for add in await served.engine.wait_adds(4)]
    abort = FINISH_REASONS.index("abort")
    served.engine.send_outputs(*[EngineCoreOutput(i, [], finish_reason=abort) for i in ended])
    served.engine.kill()
    assert finishes(await rest_of(response)) == ["abort", "abort"]
    status, text = await whole
    assert status == 200
    assert [choice["finish_reason"] for choice in json.loads(text)["choices"]] == ["abort"] * 2
    check_one_line(served, await served.exit(), GONE)


GONE = "ERROR an engine (?:has closed its connection|cannot be reached)"
"""Whichever is noticed first: the closed connection, or a request that cannot be sent."""


def check_one_line(process, status, reason, times=1):
    """Check that the command said once why it ends, and ended with an error."""
    assert status == 1
    said = "".join(process.lines)
    assert len(re.findall(reason, said)) == times, said
    assert "Traceback" not in said


@pytest.fixture
async def killable(run, model_folder):
    """Start `umbel serve` in front of mock engine processes; gives it, its address, a session.

    `engines` is how many engines to start, each a process of its own only where that is one.
    """
    async with AsyncExitStack() as stack:

        async def killable(*flags, transport="tcp", engines=1):
            if transport == "ipc":
                # A path of pytest's own is too long for a socket.
                folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="umbel-test-"))
                flags += ("--data-parallel-address", f"ipc://{folder}/handshake")
            served = await run(
                *("umbel", "serve", model_folder, "--port", "0", "--served-model-name", "smollm2"),
                *("--data-parallel-size-local", "0", "--data-parallel-size", engines, *flags),
            )
            address = (await served.line(r"waiting for engines at (\S+)"))[1]
            engine = await run(
                *("umbel-mock-engine", "--handshake-address", address, "--vocab-size", "300"),
                *("--step-ms", "5", "--engine-count", engines, "--exit-after", "0"),
            )
            url = (await served.line(r"is served at (http://\S+)"))[1]
            session = await stack.enter_async_context(aiohttp.ClientSession(url))
            return served, engine, session

        yield killable


LONG = {"messages": MESSAGES, "n": 3, "max_tokens": 2_000, "ignore_eos": True}


async def begin_streams(session, count=1, **headers):
    """Begin streams, each over a connection of its own if there are several."""
    body = {**LONG, "stream": True}
    async with asyncio.timeout(TIMEOUT):
        begun = [await session.post(CHAT, json=body, headers=headers) for _ in range(count)]
    assert [response.status for response in begun] == [200] * count
    return begun


async def check_killed(served, session, responses):
    """Check that all answers end with one error each, and that nobody is kept waiting."""
    whole = asyncio.ensure_future(session.post(CHAT, json=LONG))
    for response in responses:
        events = await rest_of(response)
        errors = [event for event in events if "error" in event]
        assert errors == [{"error": ENGINE_DEAD}]
        assert events[-1] == errors[0]
    try:
        answer = await asyncio.wait_for(whole, TIMEOUT)
        assert answer.status == 500
    except aiohttp.ClientConnectionError:
        pass  # the command had already ended


@pytest.mark.parametrize("transport", ["tcp", "ipc"])
async def test_a_killed_engine_ends_streams_with_one_error_and_the_command_with_1(
    killable, transport
):
    served, engine, session = await killable(transport=transport)
    responses = await begin_streams(session, 2)
    engine.tell(signal.SIGKILL)
    await check_killed(served, session, responses)
    check_one_line(served, await served.exit(), GONE)


async def test_with_one_engine_of_two_all_answers_end(umbel, run, model_folder):
    served = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--data-parallel-size-local", "0"),
        *("--data-parallel-size", "2", "--served-model-name", "smollm2"),
    )
    address = (await served.line(r"waiting for engines at (\S+)"))[1]
    async with AsyncExitStack() as stack:
        engines = [MockEngine(endless, index=index, step_seconds=0.005) for index in range(2)]
        connections = [engine.connect(address) for engine in engines]
        await asyncio.gather(*map(stack.enter_async_context, connections))
        url = (await served.line(r"is served at (http://\S+)"))[1]
        session = await stack.enter_async_context(aiohttp.ClientSession(url))
        responses = []
        for rank in range(2):
            responses += await begin_streams(session, **{"X-data-parallel-rank": str(rank)})
        assert [len(engine.adds) for engine in engines] == [3, 3]
        engines[1].kill()
        await check_killed(served, session, responses)
        check_one_line(served, await served.exit(), GONE)


def endless(request):
    return tokens(*[300] * 2_000)


async def test_a_killed_engine_ends_the_streams_of_all_processes(killable):
    served, engine, session = await killable("--api-server-count", "2")
    responses = await begin_streams(session, 6)
    engine.tell(signal.SIGKILL)
    await check_killed(served, session, responses)
    check_one_line(served, await served.exit(), GONE, 2)


PYTHON = """\
#!{python}
import os, sys
host, port = (sys.argv[sys.argv.index(f"--data-parallel-{{name}}") + 1]
              for name in ("address", "rpc-port"))
print("pid", os.getpid(), flush=True)
os.execv({command!r}, [{command!r}, "--handshake-address", f"tcp://{{host}}:{{port}}",
                       "--vocab-size", "300", "--step-ms", "5"])
"""


async def test_of_a_managed_engine_that_is_killed_the_log_is_shown(run, model_folder, tmp_path):
    python = tmp_path / "python"
    python.write_text(PYTHON.format(python=sys.executable, command=command("umbel-mock-engine")))
    python.chmod(0o755)
    served = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--served-model-name", "smollm2"),
        *("--python", python),
    )
    pid = int((await served.line(r"\[engine\] pid (\d+)"))[1])
    url = (await served.line(r"is served at (http://\S+)"))[1]
    async with aiohttp.ClientSession(url) as session:
        responses = await begin_streams(session, 2)
        os.kill(pid, signal.SIGKILL)
        await check_killed(served, session, responses)
    check_one_line(served, await served.exit(), "ERROR the engine was ended by SIGKILL; its last")


# The engine is there and does nothing.


@pytest.mark.parametrize("flags", [(), ("--api-server-count", "2")], ids=["one", "two"])
async def test_a_stopped_engine_is_given_up_where_a_time_is_set(killable, flags):
    served, engine, session = await killable("--engine-stall-timeout", "1", *flags)
    responses = await begin_streams(session, 2)
    engine.tell(signal.SIGSTOP)
    await check_killed(served, session, responses)
    reason = "engine 0 is stuck: it has sent nothing for 1 s"
    check_one_line(served, await served.exit(), reason, 2 if flags else 1)


@pytest.mark.parametrize("seconds", ["-1", "nan", "inf", "soon"])
def test_what_is_no_time_is_refused(seconds, capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["serve", "--engine-stall-timeout", seconds])
    assert "must be a number of seconds from 0 up, got" in capsys.readouterr().err


# The engine never gets ready.


@pytest.mark.parametrize("processes", ["1", "2"])
async def test_an_engine_that_never_gets_ready_ends_the_command_with_the_stage(
    run, model_folder, processes
):
    served = await run(
        *("umbel", "serve", model_folder, "--port", "0", "--data-parallel-size-local", "0"),
        *("--engine-ready-timeout-secs", "1.5", "--api-server-count", processes),
    )
    address = (await served.line(r"waiting for engines at (\S+)"))[1]
    engine = MockEngine()
    await engine.say_hello(address)
    status = await served.exit()
    await engine.close()
    assert status == 1
    said = [line for line in served.lines if " INFO " not in line]
    assert said[1:] == [
        "umbel: engines were not ready after 1.5 s: all 1 engines have connected, "
        "0 of them have loaded their model (READY)\n"
    ]
