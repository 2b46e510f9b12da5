"""An engine client connected to mock engines, over tcp and over ipc."""

import asyncio
import tempfile
from contextlib import AsyncExitStack

import pytest
import uvloop
import zmq

from umbel_engine import (
    Child,
    EngineClient,
    EngineCoreRequest,
    EngineOptions,
    Fanout,
    SamplingParams,
    TokenStage,
)
from umbel_engine.mock import MockEngine

ON_BOTH_LOOPS = {
    "test_reader.py",
    "test_client.py",
    "test_samples.py",
    "test_hand_overs.py",
    "test_endings.py",
    "test_mock.py",
    "test_process.py",
}


def pytest_asyncio_loop_factories(config, item):
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_BOTH_LOOPS:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


@pytest.fixture
def ipc_directory():
    # A path of pytest's own is too long for a socket.
    with tempfile.TemporaryDirectory(prefix="umbel-test-") as directory:
        yield directory


@pytest.fixture(params=["tcp", "ipc"])
def transport(request):
    return request.param


@pytest.fixture
def address(transport, ipc_directory):
    return "tcp://127.0.0.1:0" if transport == "tcp" else f"ipc://{ipc_directory}/handshake"


@pytest.fixture
async def connect():
    """Connect a client to mock engines; gives the client, and the engines in rank order."""
    async with AsyncExitStack() as stack:

        async def connect(script=None, *, address="tcp://127.0.0.1:0", engines=1, **options):
            mocks = [MockEngine(script, index=index, **options) for index in range(engines)]
            for mock in mocks:
                stack.push_async_callback(mock.close)
            client_options = EngineOptions(address, engines, ready_timeout=20)
            client = await stack.enter_async_context(EngineClient(client_options))
            starts = [mock.start(client.handshake_address) for mock in mocks]
            await asyncio.gather(client.wait_ready(), *starts)
            return client, mocks

        yield connect


@pytest.fixture
async def connected(connect, address):
    """A client and its one engine, which answers everything with made-up tokens."""
    client, (engine,) = await connect(address=address)
    return client, engine


@pytest.fixture
def fan():
    """Describe a request with n children, as the layer above does."""

    def fan(
        n=1,
        name="x",
        seed=None,
        rank=None,
        prompt=(1, 2, 3),
        stage=TokenStage,
        interval=1,
        on_open=lambda fanout, is_first: None,
        on_close=lambda: None,
        **params,
    ):
        params.setdefault("max_tokens", 4)
        request = EngineCoreRequest(
            name,
            list(prompt),
            None,
            SamplingParams(seed=seed, **params),
            None,
            1.0,
            data_parallel_rank=rank,
            external_req_id=name,
        )
        children = [
            Child(f"{index}_{name}-abcd", None if seed is None else seed + index)
            for index in range(n)
        ]
        return Fanout(request, children, lambda child: stage(), interval, on_open, on_close)

    return fan


@pytest.fixture
def open_samples(fan):
    """Prepare the samples of a request with n children; the rest goes to `fan`."""

    def open_samples(client, n=1, **request):
        return client.fan_out(fan(n, **request))

    return open_samples


@pytest.fixture
def step():
    """Let an engine make one step, and wait until the client has handed it over."""

    async def step(client, engine):
        arrived = asyncio.Event()
        before = client.step_listener
        client.step_listener = lambda outputs, step: arrived.set()
        await engine.step()
        await asyncio.wait_for(arrived.wait(), 10)
        client.step_listener = before

    return step


@pytest.fixture
def deliver():
    """Let a client find these messages in one drain of its socket."""

    def deliver(client, *messages):
        for frames in messages:
            client._on_output(frames)
        client._on_drained()

    return deliver


@pytest.fixture
def open_socket():
    """Open plain sockets, which live as long as the test."""
    context, sockets = zmq.Context(), []

    def open_socket(kind, identity=None):
        sockets.append(context.socket(kind))
        sockets[-1].rcvhwm = sockets[-1].sndhwm = 0
        if identity is not None:
            sockets[-1].setsockopt(zmq.IDENTITY, identity)
        return sockets[-1]

    yield open_socket
    for socket in sockets:
        socket.close(linger=0)
    context.term()
