"""Connections: errors in mid-stream, use after a stream, and clients that are slow."""

import asyncio
import itertools
import json

import pytest

from umbel_engine.mock import MockStep, sampled
from umbel_engine.wire import RequestFault

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

MESSAGES = [{"role": "user", "content": "x" * 12}]
"""A conversation of 31 tokens."""

PAUSED = {"engine_options": {"paused": True}}


# Errors.


@pytest.mark.parametrize(
    ("fault", "chat", "completion"),
    [
        (
            RequestFault("Generation is paused.", retryable=True),
            '{"error":{"message":"Generation is paused.","type":"InternalServerError",'
            '"param":null,"code":503}}',
            '{"error": {"message": "Generation is paused.", "type": "ServiceUnavailableError", '
            '"param": null, "code": 503}}',
        ),
        (
            RequestFault("a fault in the engine"),
            '{"error":{"message":"a fault in the engine","type":"InternalServerError",'
            '"param":null,"code":500}}',
            '{"error": {"message": "a fault in the engine", "type": "InternalServerError", '
            '"param": null, "code": 500}}',
        ),
        (
            None,
            '{"error":{"message":"Internal server error","type":"InternalServerError",'
            '"param":null,"code":500}}',
            '{"error": {"message": "Internal server error", "type": "InternalServerError", '
            '"param": null, "code": 500}}',
        ),
    ],
    ids=["retryable", "fault", "no-fault-object"],
)
async def test_an_engine_error_in_mid_stream_becomes_the_last_event(
    serve, unhurried, token, fault, chat, completion
):
    def script(request):
        return [MockStep(token_ids=[token("hi")]), MockStep(finish="error", error=fault)]

    served = await serve(script, **PAUSED)
    client = await unhurried(served, CHAT, [2, 2], messages=MESSAGES)
    assert client.text.endswith(f"}}\n\ndata: {chat}\n\ndata: [DONE]\n\n")
    client = await unhurried(served, COMPLETIONS, [1, 2], adds=2, prompt="Hello")
    assert client.text.endswith(f"}}\n\ndata: {completion}\n\ndata: [DONE]\n\n")


async def test_an_error_as_first_output_gives_the_connection_back(serve, token):
    served = await serve(lambda request: [MockStep(error=RequestFault("no"))])
    client = await served.raw(CHAT, messages=MESSAGES, stream=True)
    received = await client.until(b'"code":500}}')
    assert received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    await client.post(CHAT, messages=MESSAGES, n=0)
    await client.until(b'"code":400}}')


# Connections.


async def test_a_client_of_http_1_0_gets_a_body_without_chunks(serve, say):
    served = await serve(lambda request: say("hi", "yo"))
    client = await served.raw()
    await client.post(COMPLETIONS, version="1.0", prompt="Hello", stream=True)
    received = await client.rest()
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b'data: {"id":"cmpl-')
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_stream_to_a_client_of_http_1_0_ends_though_it_would_keep_the_connection(
    serve, say
):
    served = await serve(lambda request: say("hi", "yo"))
    client = await served.raw()
    body = json.dumps({"prompt": "Hello", "stream": True})
    request = (
        f"POST {COMPLETIONS} HTTP/1.0\r\nHost: x\r\nConnection: keep-alive\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    )
    await asyncio.get_running_loop().sock_sendall(client.socket, request.encode())
    assert (await client.rest()).endswith(b"data: [DONE]\n\n")


async def test_a_connection_is_used_again_after_a_stream(serve, say):
    served = await serve(lambda request: say("hi", "yo"))
    client = await served.raw(CHAT, messages=MESSAGES, stream=True, n=2)
    await client.until(b"\r\n0\r\n\r\n")
    for _ in range(2):
        client.received = b""
        await client.post(COMPLETIONS, prompt="Hello", stream=True)
        await client.until(b"\r\n0\r\n\r\n")
        assert client.text.endswith("data: [DONE]\n\n")


async def test_4096_samples_are_streamed(serve, say, texts_of):
    n = 4096
    served = await serve(lambda request: say("hi", "yo"))
    answer = await served.ask(n=n, stream=True, stream_options={"include_usage": True})
    *events, usage = answer.events
    roles = [event["choices"][0]["delta"].get("role") for event in events]
    assert roles[:n] == ["assistant"] * n
    assert [event["choices"][0]["index"] for event in events[:n]] == list(range(n))
    assert texts_of(events) == dict.fromkeys(range(n), "hiyo")
    assert usage["usage"]["completion_tokens"] == 2 * n


SMALL_BUFFERS = 4096

MUCH = {"messages": MESSAGES, "max_tokens": 200, "logprobs": True, "top_logprobs": 20}
"""A request whose answer is several times what server and client buffer, however it is cut."""


async def test_a_slow_reader_gets_everything_later_and_holds_nobody_up(
    serve, texts_of, handler_cancellation
):
    served = await serve(
        sampled(range(20, 120)),
        send_buffer=SMALL_BUFFERS,
        handler_cancellation=handler_cancellation,
        **PAUSED,
    )
    slow = await served.raw(CHAT, SMALL_BUFFERS, **MUCH, stream=True, n=2)
    await served.engine.wait_adds(2)
    asked = asyncio.ensure_future(served.ask(**MUCH, stream=True, n=2))
    await served.engine.wait_adds(4)
    for _ in range(MUCH["max_tokens"]):
        await served.step()
    other = await asked
    # By now all has arrived for the slow one too, and waits as one item per sample.
    assert served.client.in_flight == 0
    assert served.load == 1
    await slow.until(b"\r\n0\r\n\r\n")
    events = parse_chunks(slow)
    assert texts_of(events) == texts_of(other.events)
    assert logprobs_of(events) == logprobs_of(other.events)
    assert [e["choices"][0]["finish_reason"] for e in events[-2:]] == ["length", "length"]
    # Much less than an event for each of the 400 tokens.
    assert len(events) < MUCH["max_tokens"] < len(other.events)


def parse_chunks(client):
    *events, done, end = client.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def logprobs_of(events):
    """Put the logprobs of every choice together."""
    found = {}
    for choice in (choice for event in events for choice in event["choices"]):
        if choice["logprobs"] is not None:
            found.setdefault(choice["index"], []).extend(choice["logprobs"]["content"])
    return found


async def test_a_slow_reader_that_goes_away_is_noticed(serve, handler_cancellation):
    script = sampled(range(20, 120))

    def endless(request):
        steps = script(request)
        return steps if "bystander" in request.request_id else itertools.islice(steps, 199)

    served = await serve(
        endless, send_buffer=SMALL_BUFFERS, handler_cancellation=handler_cancellation, **PAUSED
    )
    slow = await served.raw(CHAT, SMALL_BUFFERS, **MUCH, stream=True, n=2)
    adds = await served.engine.wait_adds(2)
    await served.in_steps(3, served.ask(**MUCH, request_id="bystander"))
    assert served.client.in_flight == 2
    slow.close()
    assert await served.engine.wait_aborts() == [[add.request_id for add in adds]]
