"""Connections that were made to do harm: what is no request, what never ends, and odd paths."""

import asyncio
import logging
import re

import pytest

from umbel_server.connections import HEAD_TIMEOUT, Runner

from .conftest import TIMEOUT

KEY = "open-sesame"
BODY = b'{"prompt":"Hello","max_tokens":1}'
NEXT = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
"""What comes behind an attack; it must never be taken for a request."""

REFUSAL = b'{"detail": "Bad Request"}'


def lines(*fields, method="POST", path="/v1/completions", version="HTTP/1.1"):
    head = (f"{method} {path} {version}", "Host: localhost", "Content-Type: application/json")
    return "".join(f"{line}\r\n" for line in (*head, *fields, "")).encode("latin-1")


def sized(*fields):
    return lines(*fields) + BODY


def chunked(*parts):
    return lines("Transfer-Encoding: chunked") + b"".join(parts)


SIZE = len(BODY)
CHUNK = b"%x\r\n%b\r\n" % (SIZE, BODY)

SMUGGLED = {
    "two lengths": sized(f"Content-Length: {SIZE}", f"Content-Length: {SIZE + len(NEXT)}"),
    "equal lengths": sized(f"Content-Length: {SIZE}", f"Content-Length: {SIZE}"),
    "a list of lengths": sized(f"Content-Length: {SIZE}, {SIZE}"),
    "negative length": sized("Content-Length: -5"),
    "signed length": sized(f"Content-Length: +{SIZE}"),
    "hexadecimal length": sized(f"Content-Length: {SIZE:#x}"),
    "length with underscore": sized("Content-Length: 3_3"),
    "empty length": sized("Content-Length: "),
    "huge length": sized(f"Content-Length: {'9' * 30}"),
    "length and chunks": lines(f"Content-Length: {SIZE}", "Transfer-Encoding: chunked") + CHUNK,
    "chunks and length": lines("Transfer-Encoding: chunked", f"Content-Length: {SIZE}") + CHUNK,
    "unknown coding": lines("Transfer-Encoding: xchunked") + CHUNK,
    "identity": lines("Transfer-Encoding: identity") + CHUNK,
    "chunked and more": lines("Transfer-Encoding: chunked, identity") + CHUNK,
    "chunked twice": lines("Transfer-Encoding: chunked, chunked") + CHUNK,
    "quoted coding": lines('Transfer-Encoding: "chunked"') + CHUNK,
    "coding behind a tab": lines("Transfer-Encoding: \x0bchunked") + CHUNK,
    "space before the colon": lines("Transfer-Encoding : chunked") + CHUNK,
    "folded coding": lines("Transfer-Encoding:\r\n chunked") + CHUNK,
    "folded header": sized("X-A: b\r\n c", f"Content-Length: {SIZE}"),
    "folded first header": b"GET /health HTTP/1.1\r\n Host: localhost\r\n\r\n",
    "bare line feeds": sized(f"Content-Length: {SIZE}").replace(b"\r\n", b"\n"),
    "one bare line feed": sized(f"X-A: b\nContent-Length: {SIZE}"),
    "bare carriage return": sized(f"X-A: b\rContent-Length: {SIZE}"),
    "no colon": sized("nothing", f"Content-Length: {SIZE}"),
    "no name": sized(": nothing", f"Content-Length: {SIZE}"),
    "odd name": sized("\xff: nothing", f"Content-Length: {SIZE}"),
    "NUL in a header": sized("X-A: b\0c", f"Content-Length: {SIZE}"),
    "NUL in a name": sized("X\0A: b", f"Content-Length: {SIZE}"),
    "NUL in the path": lines(method="GET", path="/hea\0lth"),
    "two hosts": sized("Host: evil.example", f"Content-Length: {SIZE}"),
    "no host": b"GET /health HTTP/1.1\r\n\r\n",
    "huge chunk": chunked(b"f" * 17, b"\r\n"),
    "negative chunk": chunked(b"-1\r\n", BODY),
    "hexadecimal mark": chunked(b"0x", CHUNK),
    "chunk without its end": chunked(CHUNK[:-2], b"0\r\n\r\n"),
    "chunk with bytes behind it": chunked(CHUNK[:-2], b"xx0\r\n\r\n"),
    "line feed after an extension": chunked(b"%x;a\n%b\r\n" % (SIZE, BODY)),
    "line feed after a size": chunked(b"%x\n%b\r\n" % (SIZE, BODY)),
    "made-up method": lines(method="MADE", path="/health"),
    "no path": lines(method="GET", path=""),
    "star": lines(method="GET", path="*"),
    "backslashes": lines(method="GET", path="\\v1\\models"),
    "a host for a path": lines(method="GET", path="localhost:80"),
    "no host in a target": lines(method="GET", path="http:///v1/models"),
    "unclosed host in a target": lines(method="GET", path="http://[::1/v1/models"),
    "bytes in a path": lines(method="GET", path="/\xff\xfe"),
    "space in a path": lines(method="GET", path="/health x"),
    "unknown version": lines(method="GET", path="/health", version="HTTP/1.2"),
    "HTTP/9.9": lines(method="GET", path="/health", version="HTTP/9.9"),
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "TLS": b"\x16\x03\x01\x02\0\1\0\1\xfc\x03\x03" + b"a" * 200,
    "noise": b"\xff\xfe\0\1\r\n\r\n",
    "many headers": lines(*(f"X-{index}: y" for index in range(200)), method="GET"),
    "long header": lines(f"X-A: {'a' * 9000}", method="GET"),
    "long name": lines(f"{'a' * 9000}: x", method="GET"),
    "long path": lines(method="GET", path="/" + "a" * 9000),
    "long method": lines(method="A" * 9000),
    "many trailers": chunked(CHUNK, b"0\r\n", b"X: y\r\n" * 300, b"\r\n"),
}


async def send(client, data):
    await asyncio.get_running_loop().sock_sendall(client.socket, data)


async def exchange(served, data):
    """Send bytes, and give all that comes back until the server closes the connection."""
    client = await served.raw()
    await send(client, data)
    return await client.rest()


@pytest.mark.parametrize("name", SMUGGLED)
async def test_what_is_no_request_ends_the_connection(serve, caplog, name):
    caplog.set_level(logging.DEBUG)
    served = await serve(api_keys=(KEY,))
    key = rb"\1Authorization: Bearer %b\1" % KEY.encode()
    attack = re.sub(rb"(\r?\n)", key, SMUGGLED[name], count=1)
    received = await exchange(served, attack + NEXT)
    assert received.startswith((b"HTTP/1.0 400 Bad Request\r\n", b"HTTP/1.1 400 Bad Request\r\n"))
    # One answer, in which nothing of the request is repeated.
    assert received.count(b"HTTP/1.") == 1
    assert received.endswith(b"\r\n\r\n" + REFUSAL)
    records = [record for record in caplog.records if record.name != "asyncio"]
    assert all(record.levelno <= logging.INFO and not record.exc_info for record in records)
    assert KEY not in caplog.text
    assert "Traceback" not in caplog.text
    assert served.engine.adds == []


async def test_a_chunk_that_never_comes_does_not_keep_others_from_asking(serve):
    served = await serve(body_timeout=0.05)
    received = await exchange(served, chunked(b"7fffffffffffffff\r\n", BODY))
    assert received.startswith(b"HTTP/1.1 408 ")


@pytest.mark.parametrize(
    "request_",
    [
        chunked(b"%x;a=b\r\n%b\r\n0\r\n\r\n" % (SIZE, BODY)),
        chunked(b"%x;%b\r\n%b\r\n0\r\n\r\n" % (SIZE, b"a" * 10**5, BODY)),
        chunked(b"0" * 100, CHUNK, b"0\r\n\r\n"),
        chunked(CHUNK, b"0\r\nX-A: b\r\n\r\n"),
        lines("Transfer-Encoding: Chunked") + CHUNK + b"0\r\n\r\n",
        lines(f"Content-Length: {SIZE}", "Connection: Upgrade", "Upgrade: h2c") + BODY,
        lines(f"Content-Length: {SIZE}", "Expect: 100-continue") + BODY,
    ],
    ids=["extension", "long-extension", "zeros", "trailer", "case", "upgrade", "expect"],
)
async def test_odd_framing_that_has_one_meaning_is_understood(serve, request_):
    served = await serve()
    client = await served.raw()
    await send(client, request_)
    await client.until(b'"object":"text_completion"')
    client.received = b""
    await send(client, NEXT)
    await client.until(b'"object":"list"')


async def test_an_unknown_expectation_is_refused(serve):
    served = await serve()
    client = await served.raw()
    await send(client, lines("Expect: cookies", f"Content-Length: {SIZE}"))
    assert (await client.until(b"cookies")).startswith(b"HTTP/1.1 417 ")


async def test_requests_in_a_row_are_answered_in_order(serve):
    served = await serve()
    client = await served.raw()
    await send(client, NEXT * 50 + lines(method="GET", path="/nope", version="HTTP/1.0"))
    received = await client.rest()
    assert received.count(b"HTTP/1.1 200 ") == 50
    assert received.count(b"HTTP/1.0 404 ") == 1


@pytest.mark.parametrize("query", ["%zz", "a=%ff&=;&[]{}|", "config_format=%ff%00", "&" * 5000])
async def test_any_query_is_survived(serve, query):
    served = await serve(development_mode=True)
    for path in ("/health", "/server_info"):
        received = await exchange(
            served, lines("Connection: close", method="GET", path=f"{path}?{query}")
        )
        assert received.split(b" ")[1] in (b"200", b"400")


# Time.


async def test_whoever_says_nothing_is_sent_away(serve):
    served = await serve(head_timeout=0.05)
    client = await served.raw()
    assert await client.rest() == b""


@pytest.mark.parametrize("before", [b"", NEXT])
async def test_a_head_that_trickles_in_is_given_up(serve, before):
    served = await serve(head_timeout=0.05)
    client = await served.raw()
    if before:
        await send(client, before)
        await client.until(b'"object":"list"')

    async def trickle():
        await send(client, b"GET /health HTTP/1.1\r\n")
        while True:
            await send(client, b"X")
            await asyncio.sleep(0.001)

    trickling = asyncio.ensure_future(trickle())
    client.received = b""
    try:
        assert await client.rest() == b""
    except ConnectionResetError:
        pass
    finally:
        trickling.cancel()
        await asyncio.wait((trickling,))


class OpenTransport(asyncio.Transport):
    """A connection without a socket."""

    closed = False

    def is_closing(self):
        return self.closed

    def close(self):
        self.closed = True

    def get_write_buffer_size(self):
        return 0


async def test_a_head_that_begins_with_its_connection_is_given_up_too(serve):
    served = await serve(head_timeout=0.05)
    # As with TLS, where the first bytes come with the end of the handshake.
    connection = Runner(served.app, head_timeout=0.05)
    await connection.setup()
    protocol, transport = connection.server(), OpenTransport()
    protocol.connection_made(transport)
    protocol.data_received(b"GET /health HT")
    async with asyncio.timeout(TIMEOUT):
        while not transport.closed:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    protocol.connection_lost(None)
    await connection.cleanup()


async def test_an_answer_may_take_longer_than_a_head_and_so_may_the_next_request(serve, say):
    served = await serve(
        lambda request: say("hi"), head_timeout=0.05, engine_options={"paused": True}
    )
    asking = await served.raw("/v1/completions", prompt="Hello")
    await served.engine.wait_adds(1)
    await (await served.raw()).rest()
    served.engine.resume()
    await asking.until(b'"object":"text_completion"')
    # A connection that was of use may lie idle; the time of a head begins with its first byte.
    await (await served.raw()).rest()
    asking.received = b""
    await send(asking, NEXT)
    await asking.until(b'"object":"list"')


def test_the_command_gives_a_minute_to_a_head():
    assert HEAD_TIMEOUT == 60


# Paths.

ENCODED = [
    "/v1/models", "//v1/models", "/v1/../v1/models", "/health/../v1/models", "/./v1/models",
    "/%2e/v1/models", "/x/%2e%2e/v1/models", "/x/..%2fv1/models", "/%761/models", "/v%31/models",
    "/%76%31/%6d%6f%64%65%6c%73", "/%2fv1/models", "/v1%2fmodels", "/v1/models/", "/v1/models%2f",
    "/v1/models%00", "/v1/models;a", "/v1/models?x", "/v1/models%3fx", "/v1/models#x",
    "/v1\\models", "/V1/models", "/%5cv1/models", "/%EF%BD%961/models", "http://x/v1/models",
    "http://x//v1/models", "HTTP://X/%761/models", "http://x@y/v1/models", "/v1/%6dodels",
    "/%69nference/v1/generate", "/v2/../v1/models", "/ping/../v1/models", "/llm/v1/models",
    "/llm/%761/models", "/llm//v1/models",
]  # fmt: skip


@pytest.mark.parametrize("path", ENCODED)
async def test_no_spelling_of_a_path_goes_past_the_key(serve, path):
    served = await serve(api_keys=(KEY,), enable_scale_out=True, root_path="/llm")
    for method in ("GET", "POST", "HEAD", "CONNECT"):
        received = await exchange(
            served, lines("Connection: close", "Content-Length: 0", method=method, path=path)
        )
        assert received.split(b" ")[1] in (b"400", b"401", b"404", b"405")
        assert b"smollm2" not in received


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Bearer \xff\xfe", "Bearer \xe9",
    f"Bearer  {KEY}", f"Bearer {KEY}\xff", f"Bearer {KEY},{KEY}", f"Bearer\t{KEY}", f"Basic {KEY}",
    KEY, f"Bearer {KEY[:-1]}", f"Bearer {KEY}{KEY}", "Bearer " + "a" * 8000])  # fmt: skip
async def test_only_the_key_is_the_key(serve, header):
    served = await serve(api_keys=(KEY, "another"))
    data = lines(f"Authorization: {header}", "Connection: close", method="GET", path="/v1/models")
    received = await exchange(served, data)
    assert received.startswith(b"HTTP/1.1 401 ")
    assert KEY.encode() not in received


@pytest.mark.parametrize(
    "path",
    [
        "//evil.example/", "//evil.example/health/", "///evil.example/", "/\\evil.example/",
        "http://evil.example/health/", "http://u:p@evil.example/v1/models/", "/health//",
        "/health/?//evil.example", "/health///?a=%0d%0aSet-Cookie:x", "/%2fevil.example/",
        "/health/%2e%2e//evil.example/", "/health/%0d%0aX:/",
    ],
)  # fmt: skip
async def test_no_redirect_leaves_the_site(serve, path):
    served = await serve()
    received = await exchange(served, lines("Connection: close", method="GET", path=path))
    head = received.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert head[0].split(" ")[1] in ("307", "404")
    for line in head:
        if line.lower().startswith("location:"):
            location = line.partition(": ")[2]
            assert location.startswith(("/health", "/v1/models"))
    assert "x" not in [line.partition(":")[0].lower() for line in head]


@pytest.mark.parametrize("target", ["CONNECT evil.example:443", "CONNECT /", "OPTIONS *"])
async def test_no_tunnel_is_opened(serve, target):
    served = await serve()
    method, _, path = target.partition(" ")
    received = await exchange(served, lines("Connection: close", method=method, path=path))
    assert received.split(b" ")[1] in (b"404", b"405")


# Metrics.


async def test_methods_that_clients_choose_share_one_label(serve):
    served = await serve()
    for method in ("MKCOL", "PROPFIND", "UNLOCK", "M-SEARCH", "GET"):
        await exchange(served, lines("Connection: close", method=method, path=f"/{method}"))
    text = (await served.get("/metrics")).text
    counted = [line for line in text.splitlines() if line.startswith("http_requests_total")]
    assert counted == [
        'http_requests_total{handler="none",method="other",status="4xx"} 4.0',
        'http_requests_total{handler="none",method="GET",status="4xx"} 1.0',
    ]


# The command.


async def test_the_command_serves_connections_with_limits(umbel):
    server = await umbel(None)
    host, port = server.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(SMUGGLED["length and chunks"] + NEXT)
    async with asyncio.timeout(TIMEOUT):
        received = await reader.read()
    writer.close()
    assert received.endswith(REFUSAL)
