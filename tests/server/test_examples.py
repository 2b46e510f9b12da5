"""The examples that need every layer, run as whoever reads them would."""

import asyncio
import json
import re
import sys
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from umbel_engine.mock import MockEngine, per_child, tokens

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

TIMEOUT = 60


async def line_with(process, pattern):
    """Read standard error up to a line with this pattern; gives its group."""
    read = []
    async for raw in process.stderr:
        read.append(raw.decode())
        if found := re.search(pattern, read[-1]):
            return found[1]
    raise AssertionError("".join(read))


@pytest.fixture
def example():
    """Start an example; it is gone at the end of the block."""

    @asynccontextmanager
    async def example(name, *arguments):
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", EXAMPLES / name, *arguments, stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(TIMEOUT):
                yield process
        finally:
            with suppress(ProcessLookupError):
                process.terminate()
            await process.communicate()

    return example


@pytest.fixture
def starlette_app(example):
    """Start the Starlette example; gives its address, and a client for it."""

    @asynccontextmanager
    async def starlette_app(engine=None):
        arguments = ["--port", "0"]
        if engine is not None:
            arguments += ["--handshake-address", "tcp://127.0.0.1:0"]
        async with example("starlette_app.py", *arguments) as process:
            if engine is not None:
                await engine.start(await line_with(process, r"waiting for an engine at (\S+)"))
            base = await line_with(process, r"running on (http://\S+)")
            async with aiohttp.ClientSession(base) as client:
                yield client
            process.terminate()
            await process.communicate()
        assert process.returncode in (0, -15)

    return starlette_app


async def test_the_starlette_app_streams_n_samples(starlette_app):
    body = {"prompt": "an umbel has", "n": 3, "max_tokens": 4, "seed": 7}
    async with starlette_app() as client, client.post("/generate", json=body) as response:
        assert response.status == 200
        pieces = [json.loads(line) for line in (await response.text()).splitlines()]
    assert {piece["index"] for piece in pieces} == {0, 1, 2}
    texts = ["".join(piece["text"] for piece in pieces if piece["index"] == i) for i in range(3)]
    assert [len(text.split()) for text in texts] == [4, 4, 4]
    assert len(set(texts)) == 3
    last = [piece["index"] for piece in pieces if piece.get("finish_reason") == "length"]
    assert sorted(last) == [0, 1, 2]


async def test_the_starlette_app_refuses_a_bad_request(starlette_app):
    prompt = b'{"prompt": "an umbel", '
    bodies = [b"{", b'{"prompt": 1}', prompt + b'"n": 0}', prompt + b'"temperature": 9}']
    async with starlette_app() as client:
        for body in bodies:
            async with client.post("/generate", data=body) as response:
                assert response.status == 400
                assert (await response.json())["error"]


async def test_the_starlette_app_stops_the_samples_of_a_client_that_hangs_up(starlette_app):
    never = asyncio.Event()
    engine = MockEngine(per_child(tokens(3), tokens(6, 7, wait=never), tokens(6, 8, wait=never)))
    body = {"prompt": "an umbel has", "n": 3, "max_tokens": 9}
    async with starlette_app(engine) as client:
        async with client.post("/generate", json=body) as response:
            received = b""
            while received.count(b"\n") < 3:
                received += await response.content.readany()
            response.close()
        (aborted,) = await engine.wait_aborts()
        assert [request_id[:2] for request_id in aborted] == ["1_", "2_"]
        assert engine.running == []
    await engine.close()


async def test_the_starlette_app_goes_on_when_one_sample_fails(starlette_app):
    failing = tokens(finish="error")
    engine = MockEngine(per_child(failing, tokens(3, 4)))
    body = {"prompt": "an umbel has", "n": 2}
    async with starlette_app(engine) as client, client.post("/generate", json=body) as response:
        pieces = [json.loads(line) for line in (await response.text()).splitlines()]
    await engine.close()
    errors = {piece["index"]: piece["error"] for piece in pieces if "error" in piece}
    assert errors == {0: "Internal server error"}
    assert "".join(piece["text"] for piece in pieces if piece["index"] == 1) == " many rays"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*_*.py")))
async def test_an_example_says_how_it_is_used(example, name):
    async with example(name, "--help") as process:
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert output.decode().startswith(f"usage: {name}")


async def test_the_trainer_runs(example):
    async with example("trainer_samples.py", "--steps", "1") as process:
        output, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    assert "paused to exchange the weights" in output.decode()
