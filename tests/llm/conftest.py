"""An Llm on mock engines, whose tables must be empty when a test is over."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from hypothesis import settings
from prometheus_client import CollectorRegistry

from umbel_engine import EngineClient, EngineOptions, SamplingParams
from umbel_engine.mock import MockEngine, Script
from umbel_llm import GenerateRequest, Llm, LlmMetrics

# Shared machines stall now and then; nothing here is about time.
settings.register_profile("umbel", deadline=None, database=None)
settings.load_profile("umbel")

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


class Scrape:
    """What a scrape of the metrics of one engine gives."""

    def __init__(self, metrics: LlmMetrics) -> None:
        self._registry = CollectorRegistry()
        self._registry.register(metrics)

    def value(self, name: str, **labels: str) -> float | None:
        labels = {"model_name": "m", "engine": "0", **labels}
        return self._registry.get_sample_value(f"vllm:{name}", labels)

    def histogram(self, name: str) -> tuple[float | None, float | None]:
        """Count and sum."""
        return self.value(f"{name}_count"), self.value(f"{name}_sum")

    def finished(self) -> dict[str, float]:
        """How many samples ended for each reason, where any did."""
        reasons = ("stop", "length", "abort", "error", "repetition")
        counts = {
            reason: self.value("request_success_total", finished_reason=reason)
            for reason in reasons
        }
        return {reason: count for reason, count in counts.items() if count}


@pytest.fixture
def scrape() -> type[Scrape]:
    return Scrape
