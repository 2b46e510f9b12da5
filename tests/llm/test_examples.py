"""The trainer of the examples needs this layer and nothing above it."""

import asyncio
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path

import pytest

from umbel_engine.mock import MockEngine

TRAINER = Path(__file__).resolve().parents[2] / "examples" / "trainer_samples.py"

TIMEOUT = 60

Start = Callable[..., AbstractAsyncContextManager[asyncio.subprocess.Process]]


@pytest.fixture
def trainer() -> Start:
    """Start the trainer; it is gone at the end of the block."""

    @asynccontextmanager
    async def trainer(*arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", TRAINER, *arguments, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                yield process
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.communicate()

    return trainer


async def test_the_trainer_keeps_the_siblings_of_a_failed_sample(trainer: Start):
    async with trainer("--seed", "7", "--steps", "1") as process:
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert output.decode().splitlines() == [
        "weights version 0",
        "prompt 1, sample 1: Internal server error",
        "prompt 0: 4 samples, 64 tokens, mean logprob -0.397",
        "prompt 1: 3 samples, 48 tokens, mean logprob -0.398",
        "prompt 2: 4 samples, 64 tokens, mean logprob -0.373",
        "paused to exchange the weights",
    ]


async def test_the_trainer_works_with_an_engine_that_joins_it(trainer: Start):
    engine = MockEngine(
        utilities={"pause_scheduler": lambda *_: None, "resume_scheduler": lambda: None}
    )
    options = ("--handshake-address", "tcp://127.0.0.1:0", "--steps", "2", "--samples", "3")
    async with trainer("--seed", "5", *options) as process:
        line = (await process.stderr.readline()).decode()
        address = re.fullmatch(r"waiting for an engine at (\S+)\n", line)[1]
        async with engine.connect(address):
            output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert output.decode().count("samples, ") == 6
    ids = [re.sub("-[0-9a-f]{8}$", "", add.request_id) for add in engine.adds]
    assert ids[:4] == ["0_rollout-0-0", "1_rollout-0-0", "2_rollout-0-0", "0_rollout-0-1"]
    assert [add.sampling_params.seed for add in engine.adds] == [5, 6, 7] * 6
    calls = [(call.method, call.arguments) for call in engine.utilities]
    assert calls == [("pause_scheduler", ["wait", True]), ("resume_scheduler", [])] * 2


async def test_the_trainer_says_how_it_is_used(trainer: Start):
    async with trainer("--help") as process:
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert "--handshake-address" in output.decode()
