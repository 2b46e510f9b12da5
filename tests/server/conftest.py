"""The whole server on a real socket, in front of a mock engine, and clients to ask it with."""

import asyncio
import json
import logging
import re
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

import aiohttp
import msgspec
import numpy as np
import pytest
import tokenizers
import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tokenizers import decoders, models, pre_tokenizers

from umbel_chat import (
    ChatLlm,
    ChatModel,
    ChatTemplate,
    TemplateLimits,
    load_chat_template,
    load_tool_template,
)
from umbel_chat.parsers.registry import REASONING_FORMATS, TOOL_FORMATS
from umbel_engine import EngineClient, EngineOptions, Logprobs
from umbel_engine.mock import DEFAULT_READY, MockEngine, tokens
from umbel_llm import AdmissionLimits, Llm, LlmMetrics
from umbel_server import ServerOptions, create_app
from umbel_server.connections import HEAD_TIMEOUT, Runner
from umbel_server.server import SERVER
from umbel_text import TextLlm, load_text_model

from .commands import run, umbel
from .generating import generating
from .spelling import spell

__all__ = ["generating", "run", "spell", "umbel"]
"""Fixtures that are defined elsewhere."""

ON_BOTH_LOOPS = {
    "test_choices.py",
    "test_connections.py",
    "test_disconnects.py",
    "test_keep_alive.py",
    "test_slow_clients.py",
    "test_streams.py",
}

TIMEOUT = 10
"""Seconds after which something that does not come is given up."""

EOS = "<|im_end|>"

SPECIAL_TOKENS = {"<|endoftext|>": 0, "<|im_start|>": 1, EOS: 2, "<issue_closed>": 10}

MARKERS = {"<think>": 11, "</think>": 12, "<tool_call>": 13, "</tool_call>": 14}

WORDS = {
    "hi": 300,
    "yo": 301,
    " is": 314,
    " the": 315,
    "\u00e9t\u00e9": 316,
    "Hello": 6004,
    " world": 6005,
    " Paris": 7042,
    " London": 7043,
}

FIRST_BYTE = 20
VOCABULARY_SIZE = 49152

TEMPLATE = """\
{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


def pytest_asyncio_loop_factories(config, item):
    factories = {"asyncio": asyncio.new_event_loop}
    if item.path.name in ON_BOTH_LOOPS:
        factories["uvloop"] = uvloop.new_event_loop
    return factories


def build_tokenizer():
    """Build a byte-level BPE in which every character is a token, and so are a few words."""
    vocabulary = {**SPECIAL_TOKENS, **MARKERS}
    for offset, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet())):
        vocabulary[character] = FIRST_BYTE + offset
    merges = []
    unused = 1000
    for word, token_id in WORDS.items():
        ((piece, _),) = pre_tokenizers.ByteLevel(
            add_prefix_space=False, use_regex=False
        ).pre_tokenize_str(word)
        for length in range(2, len(piece) + 1):
            merge = (piece[: length - 1], piece[length - 1])
            if merge not in merges:
                merges.append(merge)
                vocabulary[piece[:length]] = unused
                unused += 1
        vocabulary[piece] = token_id
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.add_tokens([tokenizers.AddedToken(text, normalized=False) for text in MARKERS])
    return tokenizer


@pytest.fixture(scope="session")
def tokenizer():
    return build_tokenizer()


@pytest.fixture(scope="session")
def model_folder(tokenizer, tmp_path_factory):
    """A folder with all that the server reads of a model."""
    folder = tmp_path_factory.mktemp("model")
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {"eos_token": EOS, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "config.json").write_text(json.dumps({"vocab_size": VOCABULARY_SIZE}))
    return folder


@pytest.fixture(scope="session")
def token(tokenizer):
    """Give the id of a text that is one token."""

    def token(text):
        (token_id,) = tokenizer.encode(text, add_special_tokens=False).ids
        return token_id

    return token


@pytest.fixture(scope="session")
def say(token):
    """Write the steps of an engine that says these texts, one token each."""

    def say(*texts, finish="length", **rest):
        return tokens(*map(token, texts), finish=finish, **rest)

    return say


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    headers: aiohttp.typedefs.LooseHeaders
    text: str

    def json(self):
        return json.loads(self.text)

    @property
    def error(self):
        return self.json()["error"]

    @property
    def events(self):
        """The events of a stream that has ended, without its [DONE]."""
        *events, done = parse_events(self.text)
        assert done == "[DONE]"
        assert "[DONE]" not in events
        return events


def parse_events(text):
    *frames, rest = text.split("\n\n")
    assert rest == ""
    assert all(frame.startswith("data: ") for frame in frames)
    payloads = [frame.removeprefix("data: ") for frame in frames]
    return [payload if payload == "[DONE]" else json.loads(payload) for payload in payloads]


class RawClient:
    """A client that decides by itself when to read, and when to hang up."""

    def __init__(self, sock):
        self.socket = sock
        self.received = b""
        self._loop = asyncio.get_running_loop()

    @classmethod
    async def connect(cls, port, receive_buffer=None):
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        sock.setblocking(False)
        client = cls(sock)
        await client._loop.sock_connect(sock, ("127.0.0.1", port))
        return client

    async def post(self, path, version="1.1", **body):
        payload = json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/{version}\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\n\r\n"
        )
        await self._loop.sock_sendall(self.socket, head.encode() + payload)

    async def until(self, text, count=1):
        """Read until this text has come so many times in all."""
        async with asyncio.timeout(TIMEOUT):
            while self.received.count(text) < count:
                data = await self._loop.sock_recv(self.socket, 65536)
                assert data, f"the connection was closed after {self.received!r}"
                self.received += data
        return self.received

    async def rest(self):
        """Read until the server closes the connection."""
        async with asyncio.timeout(TIMEOUT):
            while data := await self._loop.sock_recv(self.socket, 65536):
                self.received += data
        return self.received

    @property
    def head(self):
        """The status line and the headers, as they were received."""
        return self.received.partition(b"\r\n\r\n")[0].decode("latin-1")

    @property
    def chunks(self):
        """What was received in each chunk of a body, which must have ended."""
        rest = self.received.partition(b"\r\n\r\n")[2]
        chunks = []
        while True:
            size, _, rest = rest.partition(b"\r\n")
            length = int(size, 16)
            data, end, rest = rest[:length], rest[length : length + 2], rest[length + 2 :]
            assert end == b"\r\n"
            if length == 0:
                assert rest == b""
                return chunks
            assert len(data) == length
            chunks.append(data)

    @property
    def text(self):
        """The body, put together from its chunks."""
        return b"".join(self.chunks).decode()

    def close(self):
        self.socket.close()


class Stream:
    """A stream that is read event by event; the headers come with the first."""

    def __init__(self, request):
        self.request = request
        self._events = self._read()

    async def _read(self):
        response = await self.request
        assert response.status == 200
        async for line in response.content:
            if line != b"\n":
                payload = line.decode().removeprefix("data: ").removesuffix("\n")
                yield payload if payload == "[DONE]" else json.loads(payload)

    async def next(self):
        return await asyncio.wait_for(anext(self._events), TIMEOUT)

    async def rest(self):
        async with asyncio.timeout(TIMEOUT):
            return [event async for event in self._events]


class Served:
    """One running application, what stands behind it, and ways to ask it."""

    def __init__(self, chat, engine, app, port, session):
        self.chat = chat
        self.llm = chat.text.llm
        self.client = self.llm.client
        self.engine = engine
        self.app = app
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.session = session
        self._raw = []

    async def get(self, path, method="GET", **options):
        async with (
            asyncio.timeout(TIMEOUT),
            self.session.request(method, self.url + path, **options) as response,
        ):
            return Answer(response.status, response.headers, await response.text())

    async def post(self, path, headers=None, **body):
        return await self.get(path, "POST", json=body, headers=headers)

    async def ask(self, headers=None, **body):
        """Ask in a chat."""
        body.setdefault("messages", [{"role": "user", "content": "Hello"}])
        return await self.post("/v1/chat/completions", headers, **body)

    async def complete(self, headers=None, **body):
        """Ask for a completion."""
        body.setdefault("prompt", "Hello")
        return await self.post("/v1/completions", headers, **body)

    @asynccontextmanager
    async def stream(self, path, **body):
        """Send a request whose answer streams; it is read as far as the test wants."""
        posted = self.session.post(self.url + path, json={"stream": True, **body})
        request = asyncio.ensure_future(posted)
        try:
            yield Stream(request)
        finally:
            request.cancel()
            if await asyncio.wait((request,)) and not request.cancelled():
                request.result().close()

    async def raw(self, path=None, receive_buffer=None, **body):
        """Open a connection of its own; with a path, a request is sent on it."""
        client = await RawClient.connect(self.port, receive_buffer)
        self._raw.append(client)
        if path is not None:
            await client.post(path, **body)
        return client

    async def in_steps(self, adds, asking):
        """Let the engine begin when it has all requests, so that they go in step."""
        task = asyncio.ensure_future(asking)
        await self.engine.wait_adds(adds)
        self.engine.resume()
        return await task

    async def step(self):
        """Let the engine make one step, and wait until it has been handed over."""
        arrived = asyncio.Event()
        listener = self.client.step_listener

        def note(outputs, step):
            listener(outputs, step)
            arrived.set()

        self.client.step_listener = note
        await self.engine.step()
        await asyncio.wait_for(arrived.wait(), TIMEOUT)
        self.client.step_listener = listener

    async def metrics(self):
        """Give the samples of /metrics by name, those of all labels added up."""
        totals = {}
        for family in text_string_to_metric_families((await self.get("/metrics")).text):
            for sample in family.samples:
                totals[sample.name] = totals.get(sample.name, 0) + sample.value
        return totals

    @property
    def load(self):
        return self.app[SERVER].load

    async def check_nothing_is_left(self):
        for client in self._raw:
            client.close()
        if self.client.error is None:
            await self.engine.wait_idle()
        assert self.client.in_flight == 0
        assert len(self.llm.in_flight) == 0


def listen(send_buffer):
    sock = socket.socket()
    if send_buffer is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, send_buffer)
    sock.bind(("127.0.0.1", 0))
    return sock


@asynccontextmanager
async def serving(
    folder,
    script,
    *,
    handler_cancellation=True,
    head_timeout=HEAD_TIMEOUT,
    new_processor=None,
    tool_parser=None,
    reasoning_parser=None,
    reasoning_format=None,
    send_buffer=None,
    max_model_len=2048,
    max_logprobs=20,
    override=None,
    template_arguments=None,
    trust_request_template=False,
    template_limits=None,
    chat_template=None,
    engine_options=None,
    limits=None,
    **options,
):
    ready = DEFAULT_READY.__class__(max_model_len=max_model_len, vllm_version="0.33.0")
    engine = MockEngine(script, ready=ready, timeout=TIMEOUT, **(engine_options or {}))
    options.setdefault("served_model_names", ("smollm2",))
    options.setdefault("model_root", "a-folder")
    options.setdefault("fingerprint", "vllm-0.33.0-31548d98")
    options.setdefault("engine_version", "0.33.0")
    name = options["served_model_names"][0]
    async with EngineClient(EngineOptions()) as client, engine.serve(client):
        metrics = LlmMetrics.of(client, name)
        registry = CollectorRegistry()
        registry.register(metrics)
        text = TextLlm(
            load_text_model(
                folder,
                max_model_len,
                "auto",
                override,
                max_logprobs,
                limits_thinking=reasoning_parser is not None,
            ),
            Llm(client, metrics, limits or AdmissionLimits()),
        )
        source = load_chat_template(folder, chat_template)
        special_tokens = text.model.tokenizer.special_tokens
        template = ChatTemplate(source, special_tokens)
        tool_source = load_tool_template(folder, chat_template)
        model = ChatModel(
            name,
            template,
            template_arguments=template_arguments or {},
            trust_request_template=trust_request_template,
            template_limits=template_limits or TemplateLimits(),
            tool_template=tool_source and ChatTemplate(tool_source, special_tokens),
            tool_format=TOOL_FORMATS[tool_parser] if tool_parser else None,
            reasoning_format=REASONING_FORMATS[reasoning_parser]
            if reasoning_parser
            else reasoning_format,
        )
        chat = ChatLlm(model, text, new_processor)
        app = create_app(chat, ServerOptions(**options), registry)
        runner = Runner(
            app,
            head_timeout=head_timeout,
            shutdown_timeout=5,
            handler_cancellation=handler_cancellation,
        )
        await runner.setup()
        try:
            sock = listen(send_buffer)
            await web.SockSite(runner, sock).start()
            async with aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=3 * TIMEOUT)
            ) as session:
                served = Served(chat, engine, app, sock.getsockname()[1], session)
                yield served
                await served.check_nothing_is_left()
        finally:
            await runner.cleanup()
        assert served.load == 0


@pytest.fixture
async def serve(model_folder, caplog):
    """Start servers; at the end of the test there must be nothing left of any request."""
    problems = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda loop, context: problems.append(context))
    async with AsyncExitStack() as stack:

        async def serve(script=None, folder=model_folder, **options):
            return await stack.enter_async_context(serving(folder, script, **options))

        yield serve
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert problems == []
    records = caplog.get_records("call")
    assert [r for r in records if r.name == "aiohttp.server" and r.levelno >= logging.ERROR] == []


@pytest.fixture(params=[True, False], ids=["handler-cancellation", "no-handler-cancellation"])
def handler_cancellation(request):
    """Whether the runner cancels the handler of a client that goes away."""
    return request.param


@pytest.fixture
def unhurried(serve):
    """Ask for a stream, and let the engine go on only when all events of a step have come.

    `steps` says how many events each step brings; gives the connection, with the whole answer.
    """

    async def unhurried(served, path, steps, adds=1, **body):
        client = await served.raw(path, stream=True, **body)
        await served.engine.wait_adds(adds)
        expected = 0
        for events in steps:
            await served.step()
            expected += events
            await client.until(b"\n\n", expected)
        await client.until(b"\r\n0\r\n\r\n")
        return client

    return unhurried


@pytest.fixture
def rows():
    """Write log-probabilities: per position a token's id and value, and those of its rivals."""

    def rows(*positions):
        table = np.array([list(position.items()) for position in positions], np.float64)
        ids, values = table[:, :, 0].astype(np.int64), table[:, :, 1].astype(np.float32)
        return Logprobs(ids, values, np.ones(len(positions), np.int64))

    return rows


@pytest.fixture
def sent():
    """Give what an engine was asked for, which must be the same for all but for the seeds."""

    def sent(engine):
        params = [msgspec.structs.replace(add.sampling_params, seed=None) for add in engine.adds]
        assert params
        assert all(one == params[0] for one in params)
        return params[0]

    return sent


@pytest.fixture
def seeds():
    """Give the seed of every request that an engine got, by its id up to the random part."""

    def seeds(engine):
        return {
            re.sub("-[0-9a-f]{8}$", "", add.request_id): add.sampling_params.seed
            for add in engine.adds
        }

    return seeds


@pytest.fixture
def texts_of():
    """Put the text of every choice of a stream together."""

    def texts_of(events):
        texts = {}
        for event in events:
            for choice in event["choices"]:
                text = choice["text"] if "text" in choice else choice["delta"].get("content", "")
                texts[choice["index"]] = texts.get(choice["index"], "") + text
        return texts

    return texts_of
