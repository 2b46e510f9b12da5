"""The managed engine and the sample model, with vLLM itself in `.venv-engine`."""

import os
import select
import time
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from umbel_engine import (
    Child,
    EngineClient,
    EngineCoreRequest,
    EngineOptions,
    EngineStartError,
    Fanout,
    SamplingParams,
    TokenStage,
)
from umbel_engine.process import EngineProcess, EngineProcessOptions
from umbel_engine.sample_model import prepare_sample_model

PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"


@pytest.fixture(scope="module")
def model():
    return prepare_sample_model()


def process_options(client, model):
    return EngineProcessOptions(PYTHON, str(model), client.handshake_address, max_model_len="1024")


def descendants():
    """Give the ids of the processes that this one has started, directly or not."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    found = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found - {os.getpid()}


def assert_ended(descriptors):
    for descriptor in descriptors:
        ended, _, _ = select.select([descriptor], [], [], 10)
        os.close(descriptor)
        assert ended


async def generate(client, request_id, prompt, seeds, **params):
    request = EngineCoreRequest(
        request_id,
        prompt,
        None,
        SamplingParams(eos_token_id=2, all_stop_token_ids=[2], **params),
        None,
        time.time(),
        external_req_id=request_id,
    )
    children = [Child(f"{index}_{request_id}", seed) for index, seed in enumerate(seeds)]
    samples = client.fan_out(Fanout(request, children, lambda child: TokenStage(), 1))
    tokens = [[] for _ in seeds]
    finishes = [None for _ in seeds]
    async with samples:
        async for index, delta in samples:
            tokens[index] += delta.token_ids
            finishes[index] = delta.finish
    return tokens, [finish.reason for finish in finishes]


async def test_the_sample_model_answers_on_a_managed_engine_and_stop_leaves_nothing(model):
    tokenizer = Tokenizer.from_file(str(model / "tokenizer.json"))
    prompt = tokenizer.encode("The capital of France is").ids
    options = EngineOptions(local_engines=True, ready_timeout=300)
    async with EngineClient(options) as client:
        async with EngineProcess(process_options(client, model)) as process:
            await process.wait_ready(client)
            assert client.max_model_len == 1024

            [tokens], [reason] = await generate(
                client, "greedy", prompt, [None], temperature=0.0, max_tokens=12
            )
            text = tokenizer.decode(tokens)
            print(f"greedy: {text!r}")
            assert text.startswith(" Paris")
            assert reason in ("stop", "length")

            pair, reasons = await generate(
                client, "seeded", prompt, [7, 8], temperature=1.0, max_tokens=16, ignore_eos=True
            )
            print(f"seeded: {[tokenizer.decode(tokens) for tokens in pair]}")
            assert [len(tokens) for tokens in pair] == [16, 16]
            assert pair[0] != pair[1]
            assert reasons == ["length", "length"]

            started = [os.pidfd_open(pid) for pid in descendants()]
            assert len(started) >= 3, "a supervisor, vLLM and its engine core"
        assert_ended(started)
        # The client outlived its engine, and knows.
        assert client.error is not None


async def test_a_model_that_is_not_there_ends_the_start_with_what_the_engine_said(tmp_path):
    missing = tmp_path / "none"
    async with (
        EngineClient(EngineOptions(ready_timeout=300)) as client,
        EngineProcess(process_options(client, missing)) as process,
    ):
        with pytest.raises(EngineStartError, match="exited with status 1 while loading") as caught:
            await process.wait_ready(client)
    assert str(missing) in str(caught.value)
