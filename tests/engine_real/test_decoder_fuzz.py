"""Nothing that a client sends takes an engine down.

An engine's input thread dies on an ADD that vLLM's own struct refuses, and the engine on parameters
that its sampler cannot use.  So request bodies and headers of every kind go over HTTP to the whole
server; what comes out at its other end goes to vLLM's own code (`engine_side.py`).
"""

import asyncio
import json
import os
import struct
import subprocess
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest
from aiohttp import web
from hypothesis import event, given

from umbel_chat import ChatLlm, ChatModel, ChatTemplate, load_chat_template
from umbel_engine import EngineClient, EngineOptions
from umbel_engine.mock import MockEngine, sampled
from umbel_engine.sample_model import prepare_sample_model
from umbel_llm import Llm
from umbel_server import ServerOptions, create_app
from umbel_text import TextLlm, load_text_model

from ..fuzzing import (
    CHAT,
    CHAT_BODIES,
    COMPLETION_BODIES,
    COMPLETIONS,
    FRACTIONS,
    GENERATE,
    GENERATE_BODIES,
    HEADER_NAMES,
    JSON_TYPE,
    MAX_MODEL_LEN,
    MAX_N,
    MODEL,
    THOROUGH,
    TIMEOUT,
    VOCABULARY_SIZE,
    WHOLE,
    Request,
    bounded,
    post,
    requests,
)

PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"
ENGINE_SIDE = Path(__file__).with_name("engine_side.py")

KINDS = {CHAT: CHAT_BODIES, COMPLETIONS: COMPLETION_BODIES, GENERATE: GENERATE_BODIES}


class EngineSide:
    """vLLM's own code, in a process of the engine environment."""

    def __init__(self):
        # Compiling for a batch of one takes longer than what it saves.
        environment = {**os.environ, "TORCHDYNAMO_DISABLE": "1", "PYTHONSAFEPATH": "1"}
        self._process = subprocess.Popen(
            [PYTHON, ENGINE_SIDE],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        assert self._process.stdout.readline() == b"ready\n"

    def fault(self, payload):
        """Give what the engine raises for an ADD, or None."""
        self._process.stdin.write(struct.pack("<I", len(payload)) + payload)
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self):
        self._process.kill()
        self._process.communicate()


def script(request):
    """Answer with one token, and with log-probabilities where they are asked for."""
    return [msgspec.structs.replace(next(iter(model(request))), finish="length")]


model = sampled()


@asynccontextmanager
async def serving(folder):
    """Run the server on the sample model's files, in front of a mock engine."""
    engine = MockEngine(script, timeout=TIMEOUT)
    async with EngineClient(EngineOptions()) as client, engine.serve(client):
        text = TextLlm(load_text_model(folder, MAX_MODEL_LEN), Llm(client))
        template = ChatTemplate(load_chat_template(folder), text.model.tokenizer.special_tokens)
        options = ServerOptions(
            served_model_names=(MODEL,),
            model_root="a-folder",
            max_n_sequences=MAX_N,
            enable_scale_out=True,
        )
        app = create_app(ChatLlm(ChatModel(MODEL, template), text), options)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        try:
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            yield Served(engine, client, runner.addresses[0][1])
        finally:
            await runner.cleanup()


class Served:
    """The server between a client and a mock engine."""

    def __init__(self, engine, client, port):
        self._engine = engine
        self._client = client
        self._port = port

    async def ask(self, request):
        """Send a request; gives the answer and the payload of every ADD that it caused."""
        record = self._engine
        record.adds.clear()
        record.add_frames.clear()
        response = await post(self._port, request)
        await record.wait_idle()
        assert self._client.error is None
        assert self._client.in_flight == 0
        return response, [frames[0] for frames in record.add_frames]


@pytest.fixture(scope="module")
def engine_side():
    side = EngineSide()
    yield side
    side.close()


@pytest.fixture(scope="module")
def runner():
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def served(runner):
    context = serving(prepare_sample_model())
    yield runner.run(context.__aenter__())
    runner.run(context.__aexit__(None, None, None))


def completion(*headers, **fields):
    body = json.dumps({"prompt": "Hello"} | fields).encode()
    return Request(COMPLETIONS, [JSON_TYPE, *headers], body)


NUMBERS = {
    "n": lambda value: {"n": value},
    "seed": lambda value: {"seed": value, "n": 3},
    "temperature": lambda value: {"temperature": value},
    "top_p": lambda value: {"top_p": value},
    "top_k": lambda value: {"top_k": value},
    "min_p": lambda value: {"min_p": value},
    "presence_penalty": lambda value: {"presence_penalty": value},
    "frequency_penalty": lambda value: {"frequency_penalty": value},
    "repetition_penalty": lambda value: {"repetition_penalty": value},
    "max_tokens": lambda value: {"max_tokens": value},
    "min_tokens": lambda value: {"min_tokens": value, "max_tokens": MAX_MODEL_LEN},
    "logprobs": lambda value: {"logprobs": value},
    "prompt_logprobs": lambda value: {"prompt_logprobs": value},
    "logprob_token_ids": lambda value: {"logprob_token_ids": [value], "logprobs": 1},
    "allowed_token_ids": lambda value: {"allowed_token_ids": [value]},
    "best_of": lambda value: {"best_of": value, "n": 2},
    "echo": lambda value: {"echo": True, "max_tokens": 0, "logprobs": value},
    "repetition_detection-pattern": lambda value: {
        "repetition_detection": {"max_pattern_size": value, "min_count": 2}
    },
    "repetition_detection-count": lambda value: {
        "repetition_detection": {"max_pattern_size": 3, "min_count": value}
    },
    "routed_experts_prompt_start": lambda value: {"routed_experts_prompt_start": value},
    "thinking_token_budget": lambda value: {"thinking_token_budget": value},
    "truncate_prompt_tokens": lambda value: {"truncate_prompt_tokens": value},
    "vllm_xargs": lambda value: {"vllm_xargs": {"a": value, "b": [value]}},
    "kv_transfer_params": lambda value: {"kv_transfer_params": {"a": {"b": [value]}}},
    "stop_token_ids": lambda value: {"stop_token_ids": [value]},
    "logit_bias-token": lambda value: {"logit_bias": {str(value): 1}},
    "logit_bias": lambda value: {"logit_bias": {"5": value}},
    "prompt": lambda value: {"prompt": [value]},
    "stream_interval": lambda value: {"stream_interval": value, "stream": True},
    "priority": lambda value: {"priority": value},
}


@pytest.fixture(scope="module")
def check(served, runner, engine_side):
    """Send a request: it must be answered, and the engine must be able to take what it gets."""

    def check(request):
        response, payloads = runner.run(served.ask(request))
        assert 200 <= response.status < 500, request
        # Within a stream, an error is an event.
        assert b'"code":5' not in response.body, request
        assert len(payloads) == 0 or response.status == 200, request
        for payload in payloads:
            assert engine_side.fault(payload) is None, request
        return response.status

    return check


@pytest.mark.parametrize("name", NUMBERS)
def test_the_engine_can_take_every_number_that_is_let_through(check, name):
    for value in WHOLE + FRACTIONS:
        check(completion(**NUMBERS[name](value)))


TEXTS = {
    **{
        name: lambda text, name=name: {name: text}
        for name in ("request_id", "session_id", "cache_salt", "stop", "user", "model")
    },
    "bad_words": lambda text: {"bad_words": [text, text]},
    "extra-key": lambda text: {"vllm_xargs": {text: text}},
    "transfer-key": lambda text: {"kv_transfer_params": {"a": {text: [text]}}},
    **{
        f"structured-{name}": lambda text, name=name: {"structured_outputs": {name: text}}
        for name in ("json", "regex", "grammar", "structural_tag")
    },
    "structured-choice": lambda text: {"structured_outputs": {"choice": [text]}},
    "schema": lambda text: {
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": text, "schema": {"enum": [text], text: text}},
        }
    },
}


@pytest.mark.parametrize("name", TEXTS)
def test_the_engine_can_take_every_text_that_is_let_through(check, name):
    for text in ["\0", "\ud800", "a\udfff", "\U0001f9d1", "a" * 128, "\r\n", "@/", "", "{}"]:
        for stream in (True, False):
            check(completion(stream=stream, **TEXTS[name](text)))


@pytest.mark.parametrize("count", [127, 128, 129, 1024, 1025, VOCABULARY_SIZE])
def test_the_engine_has_room_for_everything_that_is_let_through(check, count):
    token_ids = list(range(100, 100 + count))
    for more in ({}, {"min_tokens": 1}, {"ignore_eos": True, "min_tokens": 1}):
        check(completion(stop_token_ids=token_ids, **more))
        check(completion(logit_bias={str(token_id): 1 for token_id in range(count)}, **more))
        check(completion(allowed_token_ids=token_ids, **more))
    check(completion(logprob_token_ids=token_ids, logprobs=count))
    check(completion(bad_words=[f"word {number}" for number in range(count)]))
    check(completion(bad_words=["word " * count]))


@pytest.mark.parametrize("depth", [60, 63, 64, 65, 500])
def test_the_engine_can_take_every_depth_that_is_let_through(check, depth):
    for value in (
        json.loads("[" * depth + "]" * depth),
        json.loads('{"a":' * depth + "1" + "}" * depth),
    ):
        check(completion(vllm_xargs={"a": value}))
        check(completion(kv_transfer_params={"a": value}))
        check(completion(ec_transfer_params={"a": value}))
        check(completion(structured_outputs={"json": {"items": value}}))


@pytest.mark.parametrize("name", HEADER_NAMES, ids=bytes.decode)
def test_the_engine_can_take_what_comes_from_headers(check, name):
    for value in (b"\xff", b"\xc3\xa9", b"\x80a", b"-1", b"0", b"5", b"9" * 30, b"a" * 4000, b""):
        for stream in (True, False):
            check(completion(b"%b: %b" % (name, value), stream=stream))


@bounded(400)
@pytest.mark.timeout(0 if THOROUGH else 290)
@given(request=requests(KINDS))
def test_whatever_is_sent_the_engine_can_take_what_it_gets(check, request):
    event(f"status {check(request)}")
