"""Clients that read slowly, or not at all: they cost what they are owed, and after a while end."""

import asyncio
import re
import resource

import pytest

from umbel_engine.mock import MockStep
from umbel_server import slow_clients as module
from umbel_server.open_files import allow_many_files
from umbel_server.server import SERVER

from .commands import CHAT, COMPLETIONS, MESSAGES

BUFFER = 4096
"""Bytes that the systems of client and server keep for a connection, as far as they let us say."""


@pytest.fixture
def long_answer(token, say):
    """Answer the bystander with a word, and everybody else with more than any buffer holds."""

    def script(request):
        if request.external_req_id == "chatcmpl-bystander":
            return say("yo", "yo", "yo", "yo")
        return [MockStep(token_ids=[token(" London")] * 1500) for _ in range(12)]

    return script


async def stuck(served, path=CHAT, **body):
    """Ask for a stream and never read it."""
    prompt = {"prompt": "Hello"} if path == COMPLETIONS else {"messages": MESSAGES}
    return await served.raw(path, receive_buffer=BUFFER, stream=True, **prompt, **body)


def slow_clients(served):
    return served.app[SERVER].slow_clients


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
async def test_a_client_that_never_reads_is_cut_off_and_its_samples_aborted(
    serve, long_answer, path
):
    served = await serve(long_answer, send_buffer=BUFFER, client_write_timeout=0.2)
    await stuck(served, path, n=3)
    await served.engine.wait_aborts()
    assert served.engine.aborts == [[add.request_id for add in served.engine.adds]]
    metrics = await served.metrics()
    assert metrics["umbel:client_write_timeouts_total"] == 1
    assert metrics["umbel:client_disconnects_total"] == 1
    assert metrics["umbel:aborted_samples_total"] == 3


async def test_a_client_that_reads_a_byte_now_and_then_is_cut_off_too(serve, long_answer):
    served = await serve(long_answer, send_buffer=BUFFER, client_write_timeout=0.5)
    client = await stuck(served)

    async def dribble():
        loop = asyncio.get_running_loop()
        while await loop.sock_recv(client.socket, 1):  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    reading = asyncio.ensure_future(dribble())
    await served.engine.wait_aborts()
    reading.cancel()
    await asyncio.wait((reading,))


async def test_a_client_that_goes_on_reading_is_left_alone_however_slow(serve, token):
    words = [token(" London")] * 1500
    served = await serve(
        lambda request: [
            *(MockStep(token_ids=words) for _ in range(12)),
            MockStep(token_ids=words, finish="length"),
        ],
        send_buffer=BUFFER,
        client_write_timeout=0.2,
    )
    client = await stuck(served, n=2)
    loop = asyncio.get_running_loop()
    received = b""
    # The whole takes many times as long as nothing may be read.
    while not received.endswith(b"0\r\n\r\n"):
        data = await asyncio.wait_for(loop.sock_recv(client.socket, BUFFER), 10)
        assert data, "it was cut off"
        received += data
        await asyncio.sleep(0.02)
    assert received.count(b'"finish_reason":"length"') == 2
    assert served.engine.aborts == []


async def test_a_client_that_reads_a_little_at_a_time_is_left_alone(serve, token):
    words = [token(" London")] * 1500
    served = await serve(
        lambda request: [MockStep(token_ids=words) for _ in range(600)],
        client_write_timeout=0.5,
        max_model_len=10**6,
    )
    # The buffers of the systems are as large as they like to be; nothing leaves ours meanwhile.
    client = await served.raw(CHAT, messages=MESSAGES, stream=True, max_tokens=10**6)
    loop = asyncio.get_running_loop()
    for _ in range(30):
        assert await asyncio.wait_for(loop.sock_recv(client.socket, 65536), 10)
        await asyncio.sleep(0.05)
    assert served.engine.aborts == []


async def test_a_client_that_reads_nothing_is_noticed_while_its_stream_goes_on(serve, token):
    words = [token(" London")] * 10
    served = await serve(
        lambda request: [MockStep(token_ids=words) for _ in range(100_000)],
        send_buffer=BUFFER,
        client_write_timeout=0.3,
        max_model_len=10**7,
        engine_options={"paused": True},
    )
    client = await stuck(served, max_tokens=10**6)
    await served.engine.wait_adds(1)
    aborted = asyncio.ensure_future(served.engine.wait_aborts())
    await served.step()
    while not len(slow_clients(served)):  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    (outgoing,) = slow_clients(served)._connections.values()
    # Every step writes something; the transport's buffer is never so full that writing stops.
    while not aborted.done():
        await served.engine.step()
        await asyncio.sleep(0.01)
    assert outgoing.written < 64 * 1024
    client.close()


async def test_an_idle_connection_is_no_slow_client(serve, say):
    served = await serve(lambda request: say("hi"), client_write_timeout=0.1)
    client = await served.raw(CHAT, messages=MESSAGES)
    await client.until(b'"finish_reason":"length"')
    # What is watched is looked at several times meanwhile.
    await asyncio.sleep(0.3)
    await client.post(CHAT, messages=MESSAGES)
    await client.until(b'"finish_reason":"length"', 2)


async def test_with_0_nobody_is_cut_off(serve, long_answer, monkeypatch):
    monkeypatch.setattr(module, "LOOK_AT_LEAST_EVERY", 0.01)
    served = await serve(
        long_answer, send_buffer=BUFFER, client_write_timeout=0, engine_options={"paused": True}
    )
    await stuck(served)
    await served.engine.wait_adds(1)
    for _ in range(12):
        await served.engine.step()
    # So long that the client is looked at many times.
    await asyncio.sleep(0.2)
    assert (await served.get("/health")).status == 200
    assert served.engine.aborts == []


async def test_a_whole_answer_that_nobody_reads_is_cut_off_too(serve, token):
    big = [MockStep(token_ids=[token("hi")] * 200_000, finish="stop")]
    served = await serve(
        lambda request: big, send_buffer=BUFFER, client_write_timeout=0.2, max_model_len=10**6
    )
    client = await served.raw(
        CHAT, receive_buffer=BUFFER, messages=MESSAGES, n=4, max_tokens=200_000
    )
    await served.engine.wait_adds(4)
    while (await served.metrics())["umbel:client_write_timeouts_total"] == 0:  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    length = int(re.search(r"Content-Length: (\d+)", (await client.rest()).decode())[1])
    assert len(client.received) < length


async def test_a_stop_string_ends_a_sample_whose_client_does_not_read(serve, token, say):
    words = [token("hi")] * 5000

    def script(request):
        return [
            *(MockStep(token_ids=words) for _ in range(20)),
            *say(" Paris", finish=None),
            *(MockStep(token_ids=words) for _ in range(1000)),
        ]

    served = await serve(script, send_buffer=BUFFER)
    client = await stuck(served, stop=["Paris"])
    (add,) = await served.engine.wait_adds(1)
    assert await served.engine.wait_aborts() == [[add.request_id]]
    # The samples have ended while the answer is not read.
    assert served.client.in_flight == 0
    assert served.load == 1
    client.close()


async def test_a_stuck_client_holds_what_it_is_owed_and_no_more(serve, token):
    words = [token("hi")] * 1000
    served = await serve(
        lambda request: [MockStep(token_ids=words) for _ in range(300)],
        send_buffer=BUFFER,
        max_model_len=10**6,
        engine_options={"paused": True},
    )
    client = await stuck(served, max_tokens=10**6)
    await served.engine.wait_adds(1)
    for _ in range(300):
        await served.step()
    transports = list(slow_clients(served)._connections)
    # The transport's buffer stopped at its mark; the rest is one item, merged.
    assert max(transport.get_write_buffer_size() for transport in transports) < 512 * 1024
    (sample,) = served.client._receivers.values()
    assert len(sample.take().token_ids) > 200_000
    client.close()


@pytest.fixture
def many_files():
    """Let this process have both ends of many connections open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allow_many_files()
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_five_hundred_stuck_clients_disturb_nobody(serve, long_answer, many_files):
    served = await serve(
        long_answer,
        send_buffer=BUFFER,
        client_write_timeout=1.0,
        engine_options={"paused": True},
        max_model_len=10**6,
    )
    for _ in range(500):
        await stuck(served, max_tokens=10**6)
    async with served.stream(CHAT, messages=MESSAGES, request_id="bystander") as stream:
        await served.engine.wait_adds(501)
        await served.engine.step()
        served.engine.resume()
        *events, done = await stream.rest()
    assert done == "[DONE]"
    text = "".join(event["choices"][0]["delta"].get("content", "") for event in events)
    assert text == "yoyoyoyo"
    async with asyncio.timeout(60):
        while sum(map(len, served.engine.aborts)) < 500:
            await served.engine.wait_aborts(len(served.engine.aborts) + 1)
    assert served.client.in_flight == 0
