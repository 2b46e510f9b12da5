"""Comments in streams that are silent: in the queue, in the prefill, between tokens."""

import asyncio

import pytest

from umbel_engine.mock import MockStep
from umbel_engine.wire import RequestFault

from .commands import CHAT, COMPLETIONS, MESSAGES
from .conftest import parse_events

COMMENT = b": keep-alive\n\n"


@pytest.fixture
def patient(serve, say):
    """Start a server that breaks silences soon, in front of an engine that steps when told to."""

    async def patient(script=None, interval=0.05, **options):
        return await serve(
            script or (lambda request: say("hi", "yo")),
            engine_options={"paused": True},
            sse_keep_alive_interval=interval,
            **options,
        )

    return patient


@pytest.mark.parametrize(
    ("path", "prompt"), [(CHAT, {"messages": MESSAGES}), (COMPLETIONS, {"prompt": "Hello"})]
)
async def test_a_stream_that_waits_for_its_first_token_gets_comments(
    patient, texts_of, path, prompt
):
    served = await patient()
    client = await served.raw(path, stream=True, n=2, **prompt)
    await client.until(COMMENT, 3)
    assert client.head.startswith("HTTP/1.1 200 OK")
    assert b"data:" not in client.received
    served.engine.resume()
    await client.until(b"data: [DONE]\n\n")
    *events, done = parse_events(client.text.replace(COMMENT.decode(), ""))
    assert done == "[DONE]"
    assert texts_of(events) == {0: "hiyo", 1: "hiyo"}


async def test_a_stream_that_is_silent_between_tokens_gets_comments(patient):
    served = await patient()
    client = await served.raw(CHAT, stream=True, messages=MESSAGES)
    await served.engine.wait_adds(1)
    await served.step()
    await client.until(b'"content":"hi"')
    await client.until(COMMENT, 2)
    await served.step()
    await client.until(b"[DONE]")
    assert client.chunks.count(COMMENT) >= 2


async def test_a_stream_that_says_something_gets_none(patient, say):
    served = await patient(lambda request: say(*["hi"] * 50), interval=30)
    client = await served.raw(CHAT, stream=True, messages=MESSAGES)
    await served.engine.wait_adds(1)
    served.engine.resume()
    await client.until(b"[DONE]")
    assert COMMENT not in client.received


async def test_no_interval_is_no_comments(patient):
    served = await patient(interval=0)
    client = await served.raw(CHAT, stream=True, messages=MESSAGES)
    await served.engine.wait_adds(1)
    await asyncio.sleep(0.2)
    served.engine.resume()
    await client.until(b"[DONE]")
    assert COMMENT not in client.received


async def test_whole_answers_get_none(patient):
    served = await patient()
    client = await served.raw(CHAT, messages=MESSAGES)
    await served.engine.wait_adds(1)
    await asyncio.sleep(0.2)
    served.engine.resume()
    await client.until(b'"finish_reason":"length"')
    assert COMMENT not in client.received


async def test_an_error_after_a_comment_is_an_event_and_the_end(patient):
    fault = RequestFault("it does not fit", "validation_error")
    served = await patient(lambda request: [MockStep(finish="error", error=fault)])
    client = await served.raw(CHAT, stream=True, messages=MESSAGES, n=2)
    await client.until(COMMENT)
    served.engine.resume()
    await client.until(b"data: [DONE]\n\n")
    assert client.received.count(b'"error":{"message":"it does not fit"') == 1


async def test_a_client_that_goes_after_a_comment_aborts_its_samples(patient):
    served = await patient()
    client = await served.raw(CHAT, stream=True, messages=MESSAGES, n=2)
    await client.until(COMMENT)
    client.close()
    assert await served.engine.wait_aborts() == [[add.request_id for add in served.engine.adds]]


async def test_a_client_that_does_not_read_gets_no_comments(patient, token):
    words = [token("hi")] * 5000
    served = await patient(
        lambda request: [MockStep(token_ids=words) for _ in range(40)],
        send_buffer=4096,
        client_write_timeout=0.4,
    )
    await served.raw(CHAT, receive_buffer=4096, stream=True, messages=MESSAGES)
    await served.engine.wait_adds(1)
    served.engine.resume()
    # Comments would be something that is written, and count as nothing that is read.
    await served.engine.wait_aborts()
