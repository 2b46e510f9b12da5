"""What a server does with its memory once everything is loaded."""

import asyncio
import gc
from types import SimpleNamespace

import pytest
from aiohttp import web

from umbel_engine import Samples
from umbel_engine.mock import MockStep
from umbel_engine.wire import RequestFault
from umbel_server import memory


@pytest.fixture
def collector():
    """The garbage collector, as it was before afterwards."""
    thresholds = gc.get_threshold()
    yield gc
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def given_back(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "give_back", lambda: calls.append(True))
    return calls


class Tokenizer:
    def __init__(self, has_fastokens):
        self.has_fastokens = has_fastokens
        self.asked = 0

    def use_fastokens(self):
        self.asked += 1
        return self.has_fastokens


def settle(tokenizer):
    async def run():
        memory.settle(SimpleNamespace(tokenizer=tokenizer))

    # At its end it waits for what runs aside.
    asyncio.run(run())


def test_what_is_loaded_is_kept_from_the_collector(collector):
    before = collector.get_freeze_count()
    settle(Tokenizer(has_fastokens=False))
    assert collector.get_freeze_count() > before + 10_000
    assert collector.get_threshold()[0] == memory.COLLECT_EVERY


@pytest.mark.parametrize(("has_fastokens", "times"), [(False, 1), (True, 2)])
def test_the_tokenizer_gets_faster_aside_and_what_loading_took_is_given_back(
    collector, given_back, has_fastokens, times
):
    tokenizer = Tokenizer(has_fastokens)
    settle(tokenizer)
    assert tokenizer.asked == 1
    assert len(given_back) == times


def test_free_memory_is_given_back_as_far_as_the_c_library_can(monkeypatch):
    kept = []
    monkeypatch.setattr(
        memory.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=kept.append)
    )
    memory.give_back()
    assert kept == [0]
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    memory.give_back()
    assert kept == [0]


KINDS_OF_REQUESTS = {
    "chat": ("/v1/chat/completions", {"n": 3}, 200),
    "chat-stream": ("/v1/chat/completions", {"n": 3, "stream": True}, 200),
    "completions": ("/v1/completions", {"prompt": ["Hello", "hi"], "n": 2}, 200),
    "completions-stream": ("/v1/completions", {"prompt": ["Hello", "hi"], "stream": True}, 200),
    "refused": ("/v1/completions", {"n": 0}, 400),
    "unknown-path": ("/v1/nothing", {}, 404),
    "failed": ("/v1/completions", {"request_id": "fault", "n": 2}, 500),
    "failed-stream": ("/v1/chat/completions", {"request_id": "fault", "n": 2, "stream": True}, 500),
}


@pytest.fixture
def no_collector():
    """Nothing is freed but what nobody holds."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def kept_requests():
    """Those that came last on their connections are still there, and harmless."""
    kept = [thing for thing in gc.get_objects() if isinstance(thing, (web.Request, Samples))]
    return [thing for thing in kept if isinstance(thing, Samples) or thing.path != "/health"]


@pytest.fixture
def failing(say):
    """Fail what is named so, and leave what is named "endless" running."""

    def script(request):
        if "fault" in request.external_req_id:
            return [MockStep(finish="error", error=RequestFault("out of memory"))]
        return say("hi", "yo", finish=None if "endless" in request.external_req_id else "length")

    return script


@pytest.mark.parametrize("kind", KINDS_OF_REQUESTS)
async def test_nothing_of_a_request_waits_for_the_garbage_collector(
    serve, failing, no_collector, kind
):
    served = await serve(failing)
    path, body, status = KINDS_OF_REQUESTS[kind]
    ask = served.complete if path == "/v1/completions" else served.ask
    answer = await (served.post(path) if "nothing" in path else ask(**body))
    assert answer.status == status
    # A connection lets go of a request when it takes another.
    await served.get("/health")
    await until_freed()


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/completions"])
@pytest.mark.parametrize("stream", [False, True])
async def test_nothing_of_a_client_that_left_waits_for_the_garbage_collector(
    serve, failing, no_collector, path, stream
):
    served = await serve(failing)
    prompt = {"messages": [{"role": "user", "content": "Hello"}], "prompt": "Hello"}
    client = await served.raw(path, n=2, stream=stream, request_id="endless", **prompt)
    await served.engine.wait_adds(2)
    if stream:
        await client.until(b"yo", 2)
    client.close()
    await served.engine.wait_aborts()
    await until_freed()


async def until_freed():
    async with asyncio.timeout(10):
        while kept_requests():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
