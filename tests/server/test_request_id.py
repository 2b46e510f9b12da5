"""The id of a request in the headers of its answer."""

import re

import pytest

CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]


def answers_of_every_kind(served, headers):
    return [
        lambda: served.ask(headers),
        lambda: served.ask(headers, stream=True),
        lambda: served.ask(headers, n=0),
        lambda: served.get("/health", headers=headers),
        lambda: served.get("/nope", headers=headers),
        lambda: served.get(CHAT, headers=headers),
        lambda: served.get("/health/", headers=headers, allow_redirects=False),
        lambda: served.get(
            CHAT,
            "OPTIONS",
            headers={**headers, "Origin": "a", "Access-Control-Request-Method": "GET"},
        ),
    ]


async def test_the_id_of_a_request_comes_back_on_answers_of_every_kind(serve, say):
    served = await serve(lambda request: say("hi"), enable_request_id_headers=True)
    statuses = []
    for ask in answers_of_every_kind(served, {"X-Request-Id": "mine"}):
        answer = await ask()
        statuses.append(answer.status)
        assert answer.headers.getall("X-Request-Id") == ["mine"]
    assert statuses == [200, 200, 400, 200, 404, 405, 307, 400]


async def test_a_request_without_an_id_gets_a_new_one_on_answers_of_every_kind(serve, say):
    served = await serve(lambda request: say("hi"), enable_request_id_headers=True)
    ids = [(await ask()).headers["X-Request-Id"] for ask in answers_of_every_kind(served, {})]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[0-9a-f]{32}", request_id) for request_id in ids)


async def test_a_new_id_is_not_the_one_in_the_body(serve, say):
    served = await serve(lambda request: say("hi"), enable_request_id_headers=True)
    answer = await served.ask(request_id="from-the-body")
    assert answer.json()["id"] == "chatcmpl-from-the-body"
    assert answer.headers["X-Request-Id"] != "from-the-body"


async def test_an_empty_id_comes_back_as_it_is(serve, say):
    served = await serve(lambda request: say("hi"), enable_request_id_headers=True)
    answer = await served.ask({"X-Request-Id": ""})
    assert answer.headers["X-Request-Id"] == ""
    assert answer.json()["id"] == "chatcmpl-"


async def test_who_has_no_key_gets_an_id(serve):
    served = await serve(enable_request_id_headers=True, api_keys=("key",))
    answer = await served.get("/v1/models", headers={"X-Request-Id": "mine"})
    assert (answer.status, answer.headers["X-Request-Id"]) == (401, "mine")


async def test_there_is_no_id_unless_it_is_wanted(serve, say):
    served = await serve(lambda request: say("hi"))
    for ask in answers_of_every_kind(served, {"X-Request-Id": "mine"}):
        assert "X-Request-Id" not in (await ask()).headers


@pytest.mark.parametrize("sent", [b"\xff", "\u00e9".encode()], ids=["no text", "text"])
async def test_an_id_of_any_bytes_is_answered(serve, sent):
    served = await serve(enable_request_id_headers=True)
    client = await served.raw()
    await client._loop.sock_sendall(
        client.socket,
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nX-Request-Id: "
        + sent
        + b"\r\n\r\n",
    )
    received = await client.rest()
    assert received.startswith(b"HTTP/1.1 200 ")
    assert b"X-Request-Id: " + (b"?" if sent == b"\xff" else sent) + b"\r\n" in received
