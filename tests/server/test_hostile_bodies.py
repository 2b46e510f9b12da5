"""Bodies that were made to do harm: each gets a clear answer, and nobody waits for it."""

import asyncio
import gzip
import io
import json
import threading
import zlib

import pytest

import umbel_server.exchange
from umbel_engine.mock import tokens
from umbel_server.requests.body import MAX_NESTED

from .conftest import TIMEOUT

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
JSON = {"Content-Type": "application/json"}

MANY = 10**6
FEWER = 10**5


def completion(**fields):
    return COMPLETIONS, json.dumps({"prompt": "Hello", **fields}).encode()


def chat(**fields):
    body = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1, **fields}
    return CHAT, json.dumps(body).encode()


def raw(text, path=COMPLETIONS):
    return path, text.encode() if isinstance(text, str) else text


def with_value(name, value):
    return raw(f'{{"prompt": "Hello", "{name}": {value}}}')


def object_of(count, value="1"):
    """Write an object with so many keys; Python's own writer takes its time."""
    return "{" + ",".join(f'"{index}":{value}' for index in range(count)) + "}"


def array_of(count, item):
    return "[" + ",".join([item] * count) + "]"


DEEP = "it is nested too deeply"
DIGITS = "a number has too many digits"
TOO_BIG = f"more than {MAX_NESTED} arrays, objects and keys"
NOT_FINITE = "must be a finite number"
MANY_FAULTS = "At least 1000 validation errors:"
MANY_WAYS = "a text can match it in too many ways"
LARGE_CONSTRAINT = "structured_outputs must have at most 262144 bytes"

REFUSED = {
    "deep arrays": (raw("[" * FEWER), DEEP),
    "deep objects": (raw('{"a":' * FEWER), DEEP),
    "deep and closed": (with_value("unknown", "[" * FEWER + "]" * FEWER), DEEP),
    "deep messages": (raw('{"messages":' + "[" * 2000 + "]" * 2000 + "}", CHAT), DEEP),
    "long integer": (with_value("n", "9" * FEWER), DIGITS),
    "long integer in text": (with_value("seed", f'"{"9" * FEWER}"'), "too large for an integer"),
    "long float": (with_value("temperature", "9" * 4000), "must be a number"),
    "overflowing n": (with_value("n", "1e400"), NOT_FINITE),
    "overflowing temperature": (with_value("temperature", "1e400"), NOT_FINITE),
    "NaN": (with_value("max_tokens", "NaN"), NOT_FINITE),
    "infinity": (with_value("top_p", "-Infinity"), "top_p must be in (0, 1]"),
    "many stop strings": (with_value("stop", array_of(MANY, '"a"')), "must have at most 4 items"),
    "many biases": (with_value("logit_bias", object_of(MANY)), TOO_BIG),
    "biases": (with_value("logit_bias", object_of(FEWER)), "logit_bias must have at most 1024"),
    "wrong biases": (with_value("logit_bias", object_of(FEWER, '"x"')), MANY_FAULTS),
    "many bad words": (
        completion(bad_words=[f"w{index}" for index in range(FEWER)]),
        "Too many bad words after tokenization",
    ),
    "a long bad word": (completion(bad_words=["no " * MANY]), "a word of 3000000 characters"),
    "many allowed tokens": (
        with_value("allowed_token_ids", array_of(MANY, "5")),
        "allowed_token_ids must have at most 1024 tokens",
    ),
    "many unknown stop tokens": (
        completion(stop_token_ids=list(range(FEWER, 2 * FEWER))),
        "token_id(s) [100000, 100001",
    ),
    "many wrong stop tokens": (with_value("stop_token_ids", array_of(MANY, '"x"')), MANY_FAULTS),
    "many wrong messages": (raw(f'{{"messages": {array_of(MANY, "1")}}}', CHAT), MANY_FAULTS),
    "many wrong extras": (
        with_value("vllm_xargs", '{"a": ' + array_of(FEWER, "{}") + "}"),
        MANY_FAULTS,
    ),
    "many empty arrays": (with_value("unknown", array_of(MANY, "[]")), TOO_BIG),
    "many unknown keys": (raw(object_of(MANY)), TOO_BIG),
    "many messages": (
        chat(messages=[{"role": "user", "content": "a"}] * FEWER),
        "At most 2048 are read, one for each token of the model's context.",
    ),
    "many prompts": (
        with_value("prompt", array_of(MANY, '"a"')),
        "prompt list length 1000000 exceeds the maximum allowed count of 1024",
    ),
    "a long text of which little is kept": (
        completion(prompt="a " * MANY, truncate_prompt_tokens=5),
        "The text has 2000000 characters. At most 1048576 are tokenized.",
    ),
    "truncated": (raw('{"prompt": "Hello", "n"'), "JSON decode error"),
    "regex of optional loops": (completion(structured_outputs={"regex": "(.*)" * 3000}), MANY_WAYS),
    "regex of nested ranges": (
        completion(structured_outputs={"regex": "(" * 8 + "a{0,30}" + "){0,30}" * 8}),
        MANY_WAYS,
    ),
    "regex of nested groups": (
        completion(structured_outputs={"regex": "(" * 5000 + "a" + ")" * 5000}),
        "nested deeper than 200 levels",
    ),
    "long regex": (completion(structured_outputs={"regex": "a" * MANY}), LARGE_CONSTRAINT),
    "grammar of empty loops": (
        completion(structured_outputs={"grammar": 'root ::= (("a"?)*)*'}),
        MANY_WAYS,
    ),
    "grammar that needs itself": (
        completion(structured_outputs={"grammar": "root ::= b\nb ::= root"}),
        "a rule that needs itself has no text",
    ),
    "schema of many values": (
        completion(structured_outputs={"json": {"enum": [f"v{i}" for i in range(FEWER)]}}),
        LARGE_CONSTRAINT,
    ),
    "schema of nested repetitions": (
        completion(
            structured_outputs={"json": {"type": "string", "pattern": "((a{1,1000}){1,1000}){1,9}"}}
        ),
        "it would take too long to compile",
    ),
    "deep schema": (raw('{"prompt":"a","structured_outputs":{"json":{"a":' + "[" * 500 + "]" * 500 + "}}}"), "nested too deeply"),
    "many choices": (
        completion(structured_outputs={"choice": ["a"] * 10000}),
        "structured_outputs.choice must have at most 8192 entries",
    ),
}  # fmt: skip

SERVED = {
    "duplicate keys": raw('{"prompt": 5, "prompt": "Hello", "n": 9, "n": 1}'),
    "NUL in a prompt": completion(prompt="a\0b"),
    "NUL in a message": chat(messages=[{"role": "us\0er", "content": "a\0b"}]),
    "NUL in other texts": completion(
        stop=["\0"], user="\0", bad_words=["\0"], session_id="\0", request_id="a\0b"
    ),
    "UTF-16 with a mark": raw('{"prompt": "H\u00e9llo"}'.encode("utf-16")),
    "UTF-16 without": raw('{"prompt": "Hello"}'.encode("utf-16-le")),
    "UTF-32": raw('{"prompt": "Hello"}'.encode("utf-32-be")),
    "many equal stop tokens": with_value("stop_token_ids", array_of(MANY, "5")),
    "unknown keys": raw('{"prompt": "Hello", "unknown": ' + object_of(FEWER) + "}"),
    "recursive schema": completion(structured_outputs={"json": {"$ref": "#"}}),
    "schema with a length": completion(
        structured_outputs={"json": {"type": "string", "minLength": 10**9}}
    ),
    "schema elsewhere": completion(structured_outputs={"json": {"$ref": "file:///etc/passwd"}}),
    "catastrophic regex": completion(structured_outputs={"regex": "(a+)+$"}),
    "doubling grammar": completion(
        structured_outputs={
            "grammar": "root ::= a0\n"
            + "".join(f"a{i} ::= a{i + 1} a{i + 1}\n" for i in range(60))
            + 'a60 ::= "x"'
        }
    ),
}


async def post(served, request, **headers):
    path, body = request
    return await served.get(path, "POST", data=io.BytesIO(body), headers={**JSON, **headers})


@pytest.mark.parametrize("name", REFUSED)
async def test_a_hostile_body_gets_a_clear_answer(serve, name):
    request, message = REFUSED[name]
    served = await serve()
    answer = await post(served, request)
    assert answer.status == 400
    assert message in answer.error["message"]
    assert len(answer.text) < 20_000
    # A request that is served comes after all that could have reached the engine.
    assert (await served.complete(max_tokens=1)).status == 200
    assert len(served.engine.adds) == 1


@pytest.mark.parametrize("name", SERVED)
async def test_a_strange_body_that_means_something_is_served(serve, name):
    served = await serve()
    assert (await post(served, SERVED[name])).status == 200


@pytest.mark.parametrize(
    "field", ["model", "request_id", "session_id", "cache_salt", "stop", "user"]
)
async def test_half_a_character_in_any_text_is_told_of_or_without_effect(serve, field):
    served = await serve()
    answer = await post(served, with_value(field, '"\\ud800"'))
    assert answer.status in ((200,) if field == "user" else (400, 404))
    assert (await served.get("/health")).status == 200


@pytest.mark.parametrize("content_type", ["application/json; charset=utf-7", "application/JSON;;"])
async def test_a_charset_is_not_believed(serve, content_type):
    served = await serve()
    request = completion(prompt="Hello", max_tokens=1)
    assert (await post(served, request, **{"Content-Type": content_type})).status == 200


async def test_a_long_text_is_not_tokenized_for_its_own_sake(serve):
    served = await serve()
    answer = await post(served, raw('{"prompt": "' + "a " * MANY + '"}', "/tokenize"))
    assert (answer.status, answer.error["param"]) == (400, "input_text")


# Sizes, packing and time.


async def test_a_body_that_says_it_is_too_long_is_not_waited_for(serve):
    served = await serve()
    client = await served.raw()
    await send(client, head(f"Content-Length: {2**30}") + b"{")
    received = await client.until(b'{"detail":"Request body is too large"}')
    assert received.startswith(b"HTTP/1.1 413 ")


async def test_a_body_that_becomes_too_long_is_not_read_to_its_end(serve):
    served = await serve(max_body_size=1000)
    client = await served.raw()
    await send(client, head("Transfer-Encoding: chunked") + b"400\r\n%b\r\n" % (b" " * 1024))
    await client.until(b'{"detail":"Request body is too large"}')


@pytest.mark.parametrize("route", [COMPLETIONS, "/tokenize", "/inference/v1/abort_requests"])
@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("br", bytes), ("zstd", bytes)],
)
async def test_nothing_is_unpacked(serve, route, encoding, pack):
    served = await serve(enable_scale_out=True)
    bomb = pack(b'{"prompt": "' + b"a" * 10**7 + b'"}')
    answer = await post(served, (route, bomb), **{"Content-Encoding": encoding})
    assert (answer.status, answer.error["type"]) == (415, "Unsupported Media Type")
    assert "Content-Encoding must be `identity` or left out" in answer.error["message"]


async def test_a_transfer_that_is_packed_is_refused(serve):
    served = await serve()
    client = await served.raw()
    await send(client, head("Transfer-Encoding: gzip, chunked") + b"2\r\n{}\r\n0\r\n\r\n")
    assert (await client.until(b"}}")).startswith(b"HTTP/1.1 415 ")


async def test_a_body_that_does_not_arrive_is_given_up(serve):
    served = await serve(body_timeout=0.05)
    client = await served.raw()
    await send(client, head("Content-Length: 100") + b'{"prompt"')
    received = await client.rest()
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"The body did not arrive within 0.05 seconds." in received
    assert served.load == 0


def head(*lines, path=COMPLETIONS):
    lines = (f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *lines)
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


async def send(client, data):
    await asyncio.get_running_loop().sock_sendall(client.socket, data)


# Nobody waits.


class Held:
    """A function that goes on when it is told to; meanwhile the loop must run."""

    def __init__(self, function):
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._release = threading.Event()
        self.entered = asyncio.Event()

    def __call__(self, *args, **kwargs):
        self._loop.call_soon_threadsafe(self.entered.set)
        assert self._release.wait(TIMEOUT), "the loop did not run"
        return self._function(*args, **kwargs)

    def release(self):
        self._release.set()


LONG_CHAT = {"messages": [{"role": "user", "content": "Hello"}], "unknown": "x" * 20_000}
LONG_COMPLETION = {"prompt": "Hello", "unknown": "x" * 20_000}
CONSTRAINED = {"prompt": "Hello", "structured_outputs": {"regex": "a?" * 600}}


@pytest.mark.parametrize(
    ("place", "path", "body"),
    [
        ("exchange.decode_body", CHAT, LONG_CHAT),
        ("routes.chat.read_chat_request", CHAT, LONG_CHAT),
        ("routes.chat._begin_chat", CHAT, LONG_CHAT),
        ("routes.completions.read_completion_request", COMPLETIONS, LONG_COMPLETION),
        ("routes.completions._begin_completion", COMPLETIONS, LONG_COMPLETION),
        ("routes.completions.lower_all", COMPLETIONS, LONG_COMPLETION),
        ("routes.completions.lower_all", COMPLETIONS, CONSTRAINED),
        ("routes.invocations._read", "/invocations", LONG_COMPLETION),
        ("routes.tokenize.read_tokenize_request", "/tokenize", LONG_COMPLETION),
        ("routes.tokenize._tokenize", "/tokenize", LONG_COMPLETION),
    ],
)
async def test_others_are_answered_while_a_long_body_is_read(serve, monkeypatch, place, path, body):
    module, _, name = f"umbel_server.{place}".rpartition(".")
    served = await serve()
    held = Held(getattr(__import__(module, fromlist=[name]), name))
    monkeypatch.setattr(f"{module}.{name}", held)
    asked = asyncio.ensure_future(served.post(path, **body))
    await asyncio.wait_for(held.entered.wait(), TIMEOUT)
    try:
        assert (await served.get("/health")).status == 200
    finally:
        held.release()
    assert (await asked).status == 200


async def test_the_longest_bodies_take_turns_and_others_do_not_wait_for_them(serve, monkeypatch):
    served = await serve(lambda request: tokens(300, 301))
    decode = umbel_server.exchange.decode_body
    held = Held(decode)
    monkeypatch.setattr(
        "umbel_server.exchange.decode_body",
        lambda body, *args: (held if len(body) > 1_000_000 else decode)(body, *args),
    )
    body = json.dumps({"prompt": "Hello", "unknown": "x" * 1_200_000}).encode()

    def ask():
        form = {"data": io.BytesIO(body), "headers": {"Content-Type": "application/json"}}
        return asyncio.ensure_future(served.get(COMPLETIONS, "POST", **form))

    first = ask()
    await asyncio.wait_for(held.entered.wait(), TIMEOUT)
    held.entered.clear()
    second = ask()
    try:
        # A long prompt that is none of the longest has threads at hand.
        assert (await served.post(COMPLETIONS, **LONG_COMPLETION)).status == 200
        assert not held.entered.is_set()
    finally:
        held.release()
    assert [answer.status for answer in await asyncio.gather(first, second)] == [200, 200]


async def test_a_conversation_of_more_messages_than_the_model_reads_is_not_rendered(serve):
    served = await serve(max_model_len=2048)
    messages = [{"role": "user", "content": ""}]
    refused = await served.ask(messages=messages * 3000)
    assert (refused.status, refused.error["param"]) == (400, "messages")
    assert refused.error["message"].startswith("The conversation has 3000 messages. At most 2048")
    assert (await served.post("/tokenize", messages=messages * 2048)).status == 200
