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
from typing import NamedTuple

import pytest
from aiohttp import web
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from umbel_chat import ChatLlm, ChatModel, ChatTemplate, load_chat_template
from umbel_engine import EngineClient, EngineOptions
from umbel_engine.mock import MockEngine, MockStep, made_up_logprobs
from umbel_engine.sample_model import prepare_sample_model
from umbel_llm import Llm
from umbel_server import ServerOptions, create_app
from umbel_text import TextLlm, load_text_model

PYTHON = Path(__file__).parents[2] / ".venv-engine" / "bin" / "python"
ENGINE_SIDE = Path(__file__).with_name("engine_side.py")

VOCABULARY_SIZE = 49152
MAX_MODEL_LEN = 2048
MAX_N = 6
TIMEOUT = 30
"""Seconds after which an answer that does not come is given up."""

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
JSON_TYPE = b"Content-Type: application/json"

THOROUGH = settings.get_current_profile_name() == "thorough"

fuzzed = settings(
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    **({} if THOROUGH else {"max_examples": 400, "derandomize": True, "database": None}),
)


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


class Response(NamedTuple):
    """What came back; of a stream, `body` has the framing of its chunks too."""

    status: int
    body: bytes


async def post(port, request):
    """Send a request, bytes as they are, on a connection of its own."""
    head = [
        b"POST %b HTTP/1.1" % request.path.encode(),
        b"Host: localhost",
        b"Connection: close",
        b"Content-Length: %d" % len(request.body),
        *request.head,
    ]
    async with asyncio.timeout(TIMEOUT):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(b"\r\n".join(head) + b"\r\n\r\n" + request.body)
            answer, _, body = (await reader.read()).partition(b"\r\n\r\n")
        finally:
            writer.close()
            await writer.wait_closed()
    return Response(int(answer.split()[1]), body)


def script(request):
    """Answer with one token, and with log-probabilities where they are asked for."""
    params = request.sampling_params
    logprobs = None
    if params.logprobs is not None:
        logprobs = made_up_logprobs((100,), params.logprobs)
    return [MockStep(token_ids=(100,), logprobs=logprobs, finish="length")]


@asynccontextmanager
async def serving(folder):
    """Run the server on the sample model's files, in front of a mock engine."""
    engine = MockEngine(script, timeout=TIMEOUT)
    async with EngineClient(EngineOptions()) as client, engine.serve(client):
        text = TextLlm(load_text_model(folder, MAX_MODEL_LEN), Llm(client))
        template = ChatTemplate(load_chat_template(folder), text.model.tokenizer.special_tokens)
        options = ServerOptions(
            served_model_names=("a-model",), model_root="a-folder", max_n_sequences=MAX_N
        )
        app = create_app(ChatLlm(ChatModel("a-model", template), text), options)
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


# What a client may send.


class Request(NamedTuple):
    """A request as it goes out; `head` has the header lines besides the length."""

    path: str
    head: list[bytes]
    body: bytes

    def __repr__(self):
        return f"{self.path} {self.head} {self.body[:5000]} ({len(self.body)} bytes)"


EDGES = [2**bits + more for bits in (7, 15, 16, 31, 32, 53, 63, 64) for more in (-1, 0, 1)]
WHOLE = [0, 1, -1, 2, -2, 3, 20, 21, 2047, 2048, 49151, 49152, 10**25]
WHOLE += [sign * edge for edge in EDGES for sign in (1, -1)]
SMALL = [0.0, -0.0, 5e-324, 1e-40, 1e-5, 0.009, 0.01, 0.5, 1.0, 1.0000001, 1.5, 2.0, 2.0000001]
LARGE = [1e38, 1e39, 1.7976931348623157e308, float("nan"), float("inf")]
FRACTIONS = [sign * value for value in SMALL + LARGE for sign in (1, -1)]
INTEGERS = st.sampled_from(WHOLE)
FLOATS = st.sampled_from(FRACTIONS) | st.floats()
# Surrogates included: JSON can carry lone ones.
ODD_TEXTS = st.sampled_from(
    ["", "a", "1", "2.0", "true", "NaN", "\0", "\ud800", "a\udfffb", "\r\n"]
)
LONG_TEXTS = st.sampled_from(["a" * 129, "a" * 1025])
SPECIAL_TEXTS = st.sampled_from(
    ["<|im_end|>", "<|im_start|>user\n", "\u202e\ufeff", "\U0001f9d1\u200d"]
)
TEXTS = st.text(max_size=12)
ANY_TEXTS = ODD_TEXTS | LONG_TEXTS | SPECIAL_TEXTS | st.text(st.characters(), max_size=12)
SCALARS = st.one_of(st.none(), st.booleans(), INTEGERS, FLOATS, ANY_TEXTS)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXTS, inner, max_size=3),
    max_leaves=6,
)
TOKEN_IDS = st.integers(0, VOCABULARY_SIZE - 1)
SOME_TOKEN_IDS = st.lists(TOKEN_IDS, min_size=1, max_size=5)
MANY_TOKEN_IDS = st.sampled_from([127, 128, 129, 1025, 2047, 2048, 2049]).map(
    lambda count: list(range(100, 100 + count))
)
TOKEN_ID_LISTS = st.one_of(SOME_TOKEN_IDS, SOME_TOKEN_IDS, SOME_TOKEN_IDS, MANY_TOKEN_IDS)
SOME_BIASES = st.dictionaries(TOKEN_IDS.map(str), FLOATS | INTEGERS, max_size=4)
MANY_BIASES = st.sampled_from([300, 1024, 1025]).map(
    lambda count: {str(token_id): 1.0 for token_id in range(count)}
)


# Small numbers and the ends of a range are drawn more often than others: what is to be rare is
# tied to one in the middle.


@st.composite
def mostly(draw, usual, edges=ANYTHING):
    """Draw what a field is for; sometimes a value at an edge of that, and now and then anything."""
    return draw({13: edges, 17: edges, 19: ANYTHING}.get(draw(st.integers(0, 31)), usual))


BOOLEANS = mostly(st.booleans(), SCALARS)
NAMES = mostly(TEXTS, ANY_TEXTS)

FIELDS = {
    "n": mostly(st.integers(1, MAX_N), INTEGERS),
    "seed": mostly(st.integers(-(2**63), 2**63 - 1), INTEGERS),
    "temperature": mostly(st.floats(0.001, 2), FLOATS),
    "top_p": mostly(st.floats(0, 1, exclude_min=True), FLOATS),
    "top_k": mostly(st.integers(-1, 2**70), INTEGERS),
    "min_p": mostly(st.floats(0, 1), FLOATS),
    "presence_penalty": mostly(st.floats(-2, 2), FLOATS),
    "frequency_penalty": mostly(st.floats(-2, 2), FLOATS),
    "repetition_penalty": mostly(st.floats(0, exclude_min=True, allow_infinity=False), FLOATS),
    "max_tokens": mostly(st.integers(3, MAX_MODEL_LEN), INTEGERS),
    "min_tokens": mostly(st.integers(0, 3), INTEGERS),
    "stop": mostly(
        TEXTS.filter(bool) | st.lists(TEXTS.filter(bool), max_size=4), st.lists(ANY_TEXTS)
    ),
    "stop_token_ids": mostly(TOKEN_ID_LISTS, st.lists(SCALARS, max_size=4)),
    "ignore_eos": BOOLEANS,
    "include_stop_str_in_output": BOOLEANS,
    "skip_special_tokens": BOOLEANS,
    "logit_bias": mostly(
        st.one_of(SOME_BIASES, SOME_BIASES, SOME_BIASES, MANY_BIASES),
        st.dictionaries(ANY_TEXTS | INTEGERS.map(str), FLOATS, max_size=2),
    ),
    "stream_interval": mostly(st.integers(1, 2**70), INTEGERS),
    "priority": mostly(st.integers(-(2**63), 2**63 - 1), INTEGERS),
    "request_id": NAMES,
    "session_id": NAMES,
    "cache_salt": mostly(
        st.text(st.characters(codec="utf-8", exclude_characters="@/\\\0"), min_size=1), ANY_TEXTS
    ),
    "return_token_ids": BOOLEANS,
    "echo": BOOLEANS,
    "add_special_tokens": BOOLEANS,
    "user": NAMES,
    "model": mostly(st.sampled_from(["a-model", "", None]), ANY_TEXTS),
    "something_else": ANYTHING,
}

UNSERVED = [
    "allowed_token_ids",
    "bad_words",
    "kv_transfer_params",
    "logprob_token_ids",
    "prompt_logprobs",
    "repetition_detection",
    "response_format",
    "structured_outputs",
    "thinking_token_budget",
    "tools",
    "truncate_prompt_tokens",
    "use_beam_search",
    "vllm_xargs",
    "watermarking",
]

STREAMED = {
    "stream": mostly(st.just(True), SCALARS),
    "stream_options": mostly(
        st.fixed_dictionaries(
            {}, optional={"include_usage": st.booleans(), "continuous_usage_stats": st.booleans()}
        )
    ),
}

PARTS = st.lists(
    mostly(st.fixed_dictionaries({"type": st.just("text"), "text": NAMES})), max_size=3
)
ROLES = st.sampled_from(["user", "assistant", "system", "tool", "developer", "critic"])
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": mostly(ROLES, ANY_TEXTS), "content": mostly(NAMES | PARTS)},
        optional={"name": NAMES, "reasoning": NAMES, "extra": ANYTHING},
    ),
    min_size=1,
    max_size=3,
)
CHAT_FIELDS = FIELDS | {
    "logprobs": BOOLEANS,
    "max_completion_tokens": mostly(st.integers(3, MAX_MODEL_LEN), INTEGERS),
    "add_generation_prompt": BOOLEANS,
    "chat_template_kwargs": mostly(st.dictionaries(TEXTS, ANYTHING, max_size=2)),
}
RIVALS = {
    "logprobs": mostly(st.just(True), SCALARS),
    "top_logprobs": mostly(st.integers(0, 20), INTEGERS),
}
CONTINUED = {
    "continue_final_message": mostly(st.just(True), SCALARS),
    "add_generation_prompt": mostly(st.just(False), SCALARS),
}

PROMPTS = st.one_of(
    TEXTS.filter(bool),
    TOKEN_ID_LISTS,
    st.lists(TEXTS.filter(bool), min_size=1, max_size=3),
    st.lists(TOKEN_ID_LISTS, min_size=1, max_size=2),
)
ODD_PROMPTS = st.one_of(
    st.lists(ANY_TEXTS | INTEGERS, max_size=3),
    st.lists(st.lists(INTEGERS, max_size=2), max_size=3),
    st.sampled_from(["long " * 2040, "a" * 70_000]),
)
COMPLETION_FIELDS = FIELDS | {"logprobs": mostly(st.integers(0, 20), INTEGERS)}


@st.composite
def bodies(draw, needed, fields, groups):
    """Draw a body with a few of the fields, and with some of the groups that go together."""
    body = dict(draw(needed))
    names = draw(st.lists(st.sampled_from(sorted(fields)), unique=True, max_size=6))
    body |= {name: draw(fields[name]) for name in names}
    for group in groups:
        if draw(st.integers(0, 3)) == 0:
            body |= {name: draw(strategy) for name, strategy in group.items()}
    if draw(st.integers(0, 31)) == 19:
        body[draw(st.sampled_from(UNSERVED))] = draw(ANYTHING)
    return body


CHAT_BODIES = bodies(
    st.fixed_dictionaries({"messages": mostly(MESSAGES)}),
    CHAT_FIELDS,
    (STREAMED, RIVALS, CONTINUED),
)
COMPLETION_BODIES = bodies(
    st.fixed_dictionaries({"prompt": mostly(PROMPTS, ODD_PROMPTS)}), COMPLETION_FIELDS, (STREAMED,)
)

HEADER_NAMES = [
    b"X-Request-Id",
    b"X-Session-ID",
    b"X-Vllm-Priority",
    b"X-data-parallel-rank",
    b"traceparent",
    b"tracestate",
    b"Authorization",
]
HEADER_VALUES = st.one_of(
    INTEGERS.map(lambda number: b"%d" % number),
    st.sampled_from([b"", b"1_0", b"+1", b"0x1", b"1.0", b"nan", b"a" * 4000, "\u0663".encode()]),
    # Visible characters, blanks, and bytes that are no UTF-8.
    st.binary(max_size=20).map(lambda data: bytes(byte | 0x20 for byte in data).strip()),
)
HEADERS = st.lists(
    st.tuples(st.sampled_from(HEADER_NAMES), HEADER_VALUES).map(b": ".join), max_size=2
)

DEEP = [b"[" * 3000, b'{"a":' * 3000, b'{"prompt":' + b"[" * 3000 + b"]" * 3000 + b"}"]


@st.composite
def requests(draw):
    """Draw a request, and sometimes damage its body."""
    path, body = draw(
        st.tuples(st.just(CHAT), CHAT_BODIES) | st.tuples(st.just(COMPLETIONS), COMPLETION_BODIES)
    )
    text = json.dumps(body, ensure_ascii=draw(st.booleans()))
    content = text.encode("utf-8", "surrogatepass")
    damage = draw(st.integers(0, 49))
    if damage == 23:
        at = draw(st.integers(0, len(content)))
        content = content[:at] + draw(st.binary(max_size=4)) + content[at + 1 :]
    elif damage == 29:
        encoding = draw(st.sampled_from(["utf-16", "utf-32-be", "utf-8-sig"]))
        content = text.encode(encoding, "surrogatepass")
    elif damage == 31:
        content = draw(st.sampled_from(DEEP) | st.binary(max_size=20))
    return Request(path, [JSON_TYPE, *draw(HEADERS)], content)


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


@pytest.mark.parametrize(
    "field", ["request_id", "session_id", "cache_salt", "stop", "user", "model"]
)
def test_the_engine_can_take_every_text_that_is_let_through(check, field):
    for text in ["\0", "\ud800", "a\udfff", "\U0001f9d1", "a" * 128, "\r\n", "@/", ""]:
        for stream in (True, False):
            check(completion(stream=stream, **{field: text}))


@pytest.mark.parametrize("count", [127, 128, 129, 1024, 1025, VOCABULARY_SIZE])
def test_the_engine_has_room_for_everything_that_is_let_through(check, count):
    token_ids = list(range(100, 100 + count))
    for more in ({}, {"min_tokens": 1}, {"ignore_eos": True, "min_tokens": 1}):
        check(completion(stop_token_ids=token_ids, **more))
        check(completion(logit_bias={str(token_id): 1 for token_id in range(count)}, **more))


@pytest.mark.parametrize("name", HEADER_NAMES, ids=bytes.decode)
def test_the_engine_can_take_what_comes_from_headers(check, name):
    for value in (b"\xff", b"\xc3\xa9", b"\x80a", b"-1", b"0", b"5", b"9" * 30, b"a" * 4000, b""):
        for stream in (True, False):
            check(completion(b"%b: %b" % (name, value), stream=stream))


@fuzzed
@pytest.mark.timeout(0 if THOROUGH else 290)
@given(request=requests())
def test_whatever_is_sent_the_engine_can_take_what_it_gets(check, request):
    event(f"status {check(request)}")
