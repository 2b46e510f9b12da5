"""Requests that do not run to their end: exactly their unfinished samples are aborted, at once.

Every test runs beside another request, which must notice nothing.  What must not be left behind
(table entries, tasks, requests of the engine) is checked at the end of each by the fixture `serve`.
"""

import asyncio
import gc
import json
from contextlib import asynccontextmanager, suppress

import pytest

from umbel_chat import ContentDelta, PlainTextProcessor
from umbel_engine.mock import MockStep, child_index
from umbel_engine.wire import RequestFault

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


@pytest.fixture
async def beside(say):
    """Start a server and an unrelated stream, and read that to its end when the test is done."""

    @asynccontextmanager
    async def beside(serve, script, **options):
        def with_bystander(request):
            if request.external_req_id == "chatcmpl-bystander":
                return say("yo", "yo", "yo", "yo")
            return script(request)

        served = await serve(with_bystander, engine_options={"paused": True}, **options)
        body = {"messages": MESSAGES, "request_id": "bystander", "max_tokens": 20}
        async with served.stream(CHAT, **body) as stream:
            await served.engine.wait_adds(1)
            yield served
            served.engine.resume()
            *events, done = await stream.rest()
        assert done == "[DONE]"
        content = "".join(event["choices"][0]["delta"]["content"] for event in events)
        assert content == "yoyoyoyo"
        assert events[-1]["choices"][0]["finish_reason"] == "length"

    return beside


@pytest.fixture
def endless(say):
    """Say "hi" and say no more; the third sample ends with a second one."""

    def script(request):
        return say("hi", "hi") if child_index(request) == 2 else say("hi", finish=None)

    return script


def requests(engine):
    """Give the engine's ids of the request that the test is about, in order."""
    return [add.request_id for add in engine.adds if "bystander" not in add.request_id]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
async def test_a_disconnect_in_mid_stream_aborts_what_is_unfinished(
    serve, beside, endless, handler_cancellation, path
):
    async with beside(serve, endless, handler_cancellation=handler_cancellation) as served:
        engine = served.engine
        prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
        client = await served.raw(path, n=4, stream=True, **prompt)
        await engine.wait_adds(5)
        await served.step()
        await served.step()
        await client.until(b'"finish_reason":"length"')
        assert served.load == 2
        client.close()
        await engine.wait_aborts()
        first, second, _, fourth = requests(engine)
        assert engine.aborts == [[first, second, fourth]]
    assert len(engine.aborts) == 1


async def test_a_disconnect_before_the_first_event_aborts_every_sample(
    serve, beside, endless, handler_cancellation
):
    async with beside(serve, endless, handler_cancellation=handler_cancellation) as served:
        client = await served.raw(CHAT, messages=MESSAGES, n=4, stream=True)
        await served.engine.wait_adds(5)
        client.close()
        await served.engine.wait_aborts()
        assert served.engine.aborts == [requests(served.engine)]
    assert len(served.engine.aborts) == 1


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
async def test_a_disconnect_aborts_a_request_that_does_not_stream(
    serve, beside, endless, handler_cancellation, path
):
    async with beside(serve, endless, handler_cancellation=handler_cancellation) as served:
        engine = served.engine
        prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
        client = await served.raw(path, n=4, **prompt)
        await engine.wait_adds(5)
        await served.step()
        await served.step()
        client.close()
        await engine.wait_aborts()
        first, second, _, fourth = requests(engine)
        assert engine.aborts == [[first, second, fourth]]
    assert len(engine.aborts) == 1


async def test_a_disconnect_aborts_the_samples_of_every_prompt_in_one_message(
    serve, beside, endless
):
    async with beside(serve, endless) as served:
        client = await served.raw(COMPLETIONS, prompt=["Hello", "hi"], n=2, stream=True)
        await served.engine.wait_adds(5)
        await served.step()
        await client.until(b'"text":"hi"', 4)
        client.close()
        await served.engine.wait_aborts()
        assert served.engine.aborts == [requests(served.engine)]
    assert len(served.engine.aborts) == 1


async def test_an_abort_by_id_ends_the_samples_of_a_stream_with_the_reason_abort(
    serve, beside, endless
):
    async with beside(serve, endless) as served:
        engine = served.engine
        async with served.stream(CHAT, messages=MESSAGES, n=4, request_id="x") as stream:
            await engine.wait_adds(5)
            await served.step()
            await served.step()
            for _ in range(4 + 4 + 1):
                event = await stream.next()
            assert event["choices"][0]["finish_reason"] == "length"
            assert served.llm.abort(["chatcmpl-x", "chatcmpl-unknown"]) == 3
            rest = await stream.rest()
        assert rest.pop() == "[DONE]"
        finishes = {
            choice["index"]: choice["finish_reason"]
            for event in rest
            for choice in event["choices"]
            if choice["finish_reason"] is not None
        }
        assert finishes == {0: "abort", 1: "abort", 3: "abort"}
        first, second, _, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, second, fourth]]
    assert len(engine.aborts) == 1


async def test_an_abort_by_id_reaches_the_samples_of_every_prompt(serve, beside, endless):
    async with beside(serve, endless) as served:
        body = {"prompt": ["Hello", "hi"], "n": 2, "request_id": "x"}
        answer = asyncio.ensure_future(served.complete(**body))
        await served.engine.wait_adds(5)
        assert served.llm.abort(["cmpl-x"]) == 4
        choices = (await answer).json()["choices"]
        assert [choice["finish_reason"] for choice in choices] == ["abort"] * 4
        await served.engine.wait_aborts()
        assert served.engine.aborts == [requests(served.engine)]


async def test_an_engine_that_aborts_one_sample_leaves_its_siblings_alone(serve, say):
    def script(request):
        return say("hi", "hi", finish="abort" if child_index(request) == 1 else "length")

    served = await serve(script)
    choices = (await served.ask(n=3)).json()["choices"]
    assert [choice["finish_reason"] for choice in choices] == ["length", "abort", "length"]
    assert served.engine.aborts == []


async def test_a_fan_out_that_is_cancelled_half_way_aborts_what_was_sent(serve, beside, endless):
    n = 1000
    async with beside(serve, endless) as served:
        client = await served.raw()
        sent = 0
        send = served.client.send

        def hang_up_in_the_middle(receiver, payload, rank):
            nonlocal sent
            sent += 1
            send(receiver, payload, rank)
            if sent == 100:
                client.close()

        served.client.send = hang_up_in_the_middle
        await client.post(CHAT, messages=MESSAGES, n=n)
        await served.engine.wait_aborts()
        served.client.send = send
        assert 100 <= sent < n
        assert served.engine.aborts == [requests(served.engine)]
        assert len(requests(served.engine)) == sent
        # Before the bystander goes on: nothing is registered but it alone.
        assert served.client.in_flight == 1
        assert served.llm.in_flight.response_ids == ["chatcmpl-bystander"]
    assert len(served.engine.aborts) == 1


class FailingProcessor(PlainTextProcessor):
    """An output processor that cannot bear to see a text twice."""

    def __init__(self):
        self._seen = set()

    def feed(self, text, token_ids):
        if text == "hi" and text in self._seen:
            raise LookupError("a fault in the parser")
        self._seen.add(text)
        return [ContentDelta(text)] if text else []

    def finish(self):
        return []


async def test_a_sink_that_raises_in_mid_stream_ends_the_stream_with_an_error(
    serve, beside, endless, caplog
):
    async with beside(serve, endless, new_processor=FailingProcessor) as served:
        engine = served.engine
        client = await served.raw(CHAT, messages=MESSAGES, n=4, stream=True)
        await engine.wait_adds(5)
        await served.step()
        await client.until(b'"content":"hi"', 4)
        await served.step()
        received = await client.until(b"data: [DONE]\n\n\r\n0\r\n\r\n")
        events = [line for line in received.split(b"\n") if line.startswith(b"data: ")]
        error = json.loads(events[-2].removeprefix(b"data: "))["error"]
        assert error == {
            "message": "Internal server error",
            "type": "InternalServerError",
            "param": None,
            "code": 500,
        }
        first, second, _, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, second, fourth]]
    assert len(engine.aborts) == 1
    assert "a fault in the parser" in caplog.text


class BrokenProcessor(PlainTextProcessor):
    """An output processor that cannot bear to see a text at all."""

    def feed(self, text, token_ids):
        if "hi" in text:
            raise LookupError("a fault in the parser")
        return [ContentDelta(text)]

    def finish(self):
        return []


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_sink_that_raises_before_the_first_byte_fails_the_request(
    serve, beside, endless, stream, caplog
):
    async with beside(serve, endless, new_processor=BrokenProcessor) as served:
        engine = served.engine
        asked = asyncio.ensure_future(served.ask(n=4, stream=stream))
        await engine.wait_adds(5)
        await served.step()
        if not stream:
            await served.step()
        answer = await asked
        assert answer.status == 500
        assert answer.error["message"] == "Internal server error"
        first, second, third, fourth = requests(engine)
        unfinished = [first, second, third, fourth] if stream else [first, second, fourth]
        assert await engine.wait_aborts() == [unfinished]
    assert len(engine.aborts) == 1
    assert "a fault in the parser" in caplog.text


FAULT = RequestFault("a fault in the engine")


@pytest.fixture
def faulty(say, token):
    """Fail the second of the samples at this step; the others say "hi" and say no more."""

    def faulty(step, fault=FAULT):
        def script(request):
            if child_index(request) != 1:
                return say("hi", "hi", finish=None)
            good = [MockStep(token_ids=[token("hi")])] * step
            return [*good, MockStep(error=fault, finish="error")]

        return script

    return faulty


@pytest.mark.parametrize(
    ("fault", "status", "message", "kind"),
    [
        (FAULT, 500, "a fault in the engine", "InternalServerError"),
        (None, 500, "Internal server error", "InternalServerError"),
        (
            RequestFault("Generation is paused.", retryable=True),
            503,
            "Generation is paused.",
            "ServiceUnavailableError",
        ),
    ],
    ids=["fault", "no-fault-object", "retryable"],
)
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
async def test_an_engine_error_as_first_output_aborts_the_siblings_and_has_its_status(
    serve, beside, faulty, path, stream, fault, status, message, kind
):
    async with beside(serve, faulty(0, fault)) as served:
        engine = served.engine
        prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
        asked = asyncio.ensure_future(served.post(path, n=4, stream=stream, **prompt))
        await engine.wait_adds(5)
        await served.step()
        answer = await asked
        assert answer.status == status
        assert answer.error == {"message": message, "type": kind, "param": None, "code": status}
        first, _, third, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, third, fourth]]
    assert len(engine.aborts) == 1


async def test_an_engine_error_in_mid_stream_aborts_the_siblings(serve, beside, faulty):
    async with beside(serve, faulty(1)) as served:
        engine = served.engine
        async with served.stream(CHAT, messages=MESSAGES, n=4) as stream:
            await engine.wait_adds(5)
            await served.step()
            for _ in range(4 + 4):
                await stream.next()
            await served.step()
            *_, error, done = await stream.rest()
        assert (error["error"]["message"], done) == ("a fault in the engine", "[DONE]")
        first, _, third, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, third, fourth]]
    assert len(engine.aborts) == 1


async def test_an_engine_error_fails_a_request_that_does_not_stream(serve, beside, faulty):
    async with beside(serve, faulty(1)) as served:
        engine = served.engine
        asked = asyncio.ensure_future(served.complete(n=4))
        await engine.wait_adds(5)
        await served.step()
        await served.step()
        answer = await asked
        assert (answer.status, answer.error["message"]) == (500, "a fault in the engine")
        first, _, third, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, third, fourth]]
    assert len(engine.aborts) == 1


async def test_a_disconnect_together_with_an_engine_error_is_no_fault_of_ours(
    serve, beside, faulty, handler_cancellation
):
    async with beside(serve, faulty(0), handler_cancellation=handler_cancellation) as served:
        engine = served.engine
        client = await served.raw(CHAT, messages=MESSAGES, n=4)
        await engine.wait_adds(5)
        listener = served.client.step_listener

        def hang_up(outputs, step):
            client.close()
            listener(outputs, step)

        served.client.step_listener = hang_up
        await served.step()
        served.client.step_listener = listener
        first, _, third, fourth = requests(engine)
        assert await engine.wait_aborts() == [[first, third, fourth]]
    # An exception that nobody looked at would be reported now, and fail the test.
    gc.collect()


async def test_a_client_that_goes_is_noticed_though_nothing_is_read_from_it_any_more(
    serve, endless
):
    served = await serve(endless, engine_options={"paused": True})
    client = await served.raw(CHAT, messages=MESSAGES)
    await served.engine.wait_adds(1)
    # So much of a next request that the rest has to wait until the first is answered.
    head = b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: 9999999\r\n\r\n" % CHAT.encode()
    client.socket.setblocking(True)
    client.socket.settimeout(0.3)
    with suppress(TimeoutError):
        await asyncio.to_thread(client.socket.sendall, head + b"x" * 600_000)
    client.close()
    assert await served.engine.wait_aborts() == [[add.request_id for add in served.engine.adds]]
