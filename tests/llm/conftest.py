"""An Llm on mock engines, whose tables must be empty when a test is over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import settings

from umbel_engine import EngineClient, EngineOptions, SamplingParams
from umbel_engine.mock import MockEngine, Script
from umbel_engine.wire import ReadyResponse
from umbel_llm import GenerateRequest, Llm, LlmMetrics

from .exposition import Exposition

# Shared machines stall now and then; nothing here is about time.
settings.register_profile("umbel", deadline=None, database=None)
settings.load_profile("umbel")

MAX_MODEL_LEN = 2000

Connect = Callable[..., Awaitable[tuple[Llm, list[MockEngine]]]]


def check_tables_are_empty(llm: Llm) -> None:
    assert llm.client.in_flight == 0
    assert llm.in_flight.response_ids == []
    # Engines that have died are not routed to any more, whatever was counted.
    if llm.client.error is None:
        assert [engine.inflight for engine in llm.client.engines] == [0] * len(llm.client.engines)


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    """Connect an Llm to mock engines; gives it, and the engines in rank order."""
    llms = []
    async with AsyncExitStack() as stack:

        async def connect(
            script: Script | None = None, engines: int = 1, **options: object
        ) -> tuple[Llm, list[MockEngine]]:
            mocks = [MockEngine(script, index=index, **options) for index in range(engines)]
            for mock in mocks:
                stack.push_async_callback(mock.close)
            client = await stack.enter_async_context(
                EngineClient(EngineOptions(engine_count=engines, ready_timeout=20))
            )
            starts = [mock.start(client.handshake_address) for mock in mocks]
            await asyncio.gather(client.wait_ready(), *starts)
            registrations = [(engine.index, engine.ready) for engine in client.engines]
            llms.append(Llm(client, LlmMetrics("m", registrations, client.max_model_len)))
            return llms[-1], mocks

        yield connect
        for llm in llms:
            check_tables_are_empty(llm)


@pytest.fixture
def request_of() -> Callable[..., GenerateRequest]:
    """Make a request; what is not a field of it is a sampling parameter."""

    def request_of(request_id: str = "x", **fields: object) -> GenerateRequest:
        own = {
            name: fields.pop(name) for name in set(GenerateRequest.__struct_fields__) & set(fields)
        }
        own = {"prompt_token_ids": [1, 2, 3], "arrival_time": 1000.0, **own}
        params = SamplingParams(**{"max_tokens": 4, **fields})
        return GenerateRequest(request_id=request_id, sampling_params=params, **own)

    return request_of


@pytest.fixture
def step() -> Callable[[Llm, MockEngine], Awaitable[None]]:
    """Let an engine make one step, and wait until it has been handed over."""

    async def step(llm: Llm, engine: MockEngine) -> None:
        arrived = asyncio.Event()
        counted = llm.client.step_listener
        assert counted is not None

        def listen(outputs, step):
            counted(outputs, step)
            arrived.set()

        llm.client.step_listener = listen
        await engine.step()
        await asyncio.wait_for(arrived.wait(), 10)
        llm.client.step_listener = counted

    return step


@pytest.fixture
def scrape() -> type[Exposition]:
    return Exposition


@pytest.fixture
def metrics() -> LlmMetrics:
    """Metrics of two engines, of which nothing was counted yet."""
    ready = ReadyResponse(MAX_MODEL_LEN, num_gpu_blocks=100)
    return LlmMetrics("m", [(0, ready), (1, ready)], MAX_MODEL_LEN)


@pytest.fixture
def exposed(metrics: LlmMetrics) -> Exposition:
    return Exposition(metrics)
