"""What browsers are told about pages of other sites, as Starlette's middleware tells it."""

import pytest

from umbel_server.cli import make_parser, settings_of

CHAT = "/v1/chat/completions"
SITE = "https://site.example"
METHODS = "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT, QUERY"
PREFLIGHT_VARIES_BY = (
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
    "Access-Control-Request-Private-Network"
)


def cors_headers(answer):
    """Give the headers that browsers look at, by the part of their name that differs."""
    return {
        name.lower().removeprefix("access-control-"): value
        for name, value in answer.headers.items()
        if name.lower().startswith("access-control-") or name == "Vary"
    }


async def preflight(served, origin=SITE, method="POST", **headers):
    """Ask as a browser does; headers are named by the end of their names."""
    asked = {f"Access-Control-Request-{name}": value for name, value in headers.items()}
    asked |= {"Origin": origin, "Access-Control-Request-Method": method}
    return await served.get(CHAT, "OPTIONS", headers=asked)


async def test_no_site_is_allowed_unless_it_was_named(serve):
    served = await serve()
    answer = await preflight(served)
    assert (answer.status, answer.text) == (400, "Disallowed CORS origin")
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert cors_headers(answer) == {
        "vary": PREFLIGHT_VARIES_BY,
        "allow-methods": METHODS,
        "max-age": "600",
    }
    answer = await served.get("/v1/models", headers={"Origin": SITE})
    assert answer.status == 200
    assert cors_headers(answer) == {"vary": "Origin"}


async def test_a_preflight_of_a_named_site_is_answered_with_what_it_may_do(serve):
    served = await serve(allowed_origins=(SITE,), api_keys=("key",))
    answer = await preflight(served, Headers="authorization, x-mine")
    assert (answer.status, answer.text) == (200, "OK")
    assert cors_headers(answer) == {
        "vary": PREFLIGHT_VARIES_BY,
        "allow-origin": SITE,
        "allow-methods": METHODS,
        "allow-headers": "authorization, x-mine",
        "max-age": "600",
    }
    answer = await preflight(served, "https://other.example")
    assert (answer.status, answer.text) == (400, "Disallowed CORS origin")
    assert "allow-origin" not in cors_headers(answer)


@pytest.mark.parametrize(
    ("options", "preflight_origin", "answer_headers"),
    [
        ({"allowed_origins": ("*",)}, "*", {"allow-origin": "*", "vary": "Origin"}),
        ({"allowed_origins": (SITE,)}, SITE, {"allow-origin": SITE, "vary": "Origin"}),
        (
            {"allowed_origins": ("*",), "allow_credentials": True},
            SITE,
            {"allow-origin": SITE, "allow-credentials": "true", "vary": "Origin"},
        ),
        (
            {"allowed_origins": ("https://other.example",), "allow_credentials": True},
            None,
            {"allow-credentials": "true", "vary": "Origin"},
        ),
    ],
    ids=["all", "one", "all with credentials", "another"],
)
async def test_the_site_is_named_where_browsers_want_it_named(
    serve, options, preflight_origin, answer_headers
):
    served = await serve(**options)
    assert cors_headers(await preflight(served)).get("allow-origin") == preflight_origin
    answer = await served.get("/v1/models", headers={"Origin": SITE})
    assert cors_headers(answer) == answer_headers
    assert cors_headers(await served.get("/v1/models")) == {"vary": "Origin"}


async def test_every_fault_of_a_preflight_is_named(serve):
    served = await serve(allowed_methods=("GET",), allowed_headers=("X-Mine",))
    asked = {"Headers": "content-type,X-MINE, x-other", "Private-Network": "true"}
    answer = await preflight(served, **asked)
    assert answer.status == 400
    assert answer.text == "Disallowed CORS origin, method, headers, private-network"
    assert cors_headers(answer)["allow-methods"] == "GET"
    allowed = "Accept, Accept-Language, Content-Language, Content-Type, X-Mine"
    assert cors_headers(answer)["allow-headers"] == allowed
    answer = await preflight(served, method="GET", Headers="content-type, X-MINE")
    assert answer.text == "Disallowed CORS origin"


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (CHAT, {"stream": True}, 200),
        (CHAT, {}, 200),
        (CHAT, {"n": 0}, 400),
        (CHAT, {"model": "another"}, 404),
        ("/nope", {}, 404),
        ("/v1/models", {}, 405),
        ("/v1/models/", {}, 307),
    ],
)
async def test_answers_of_every_kind_may_be_read(serve, say, path, body, status):
    served = await serve(lambda request: say("hi"), allowed_origins=(SITE,))
    body = {"messages": [{"role": "user", "content": "Hello"}], **body}
    answer = await served.get(
        path, "POST", json=body, headers={"Origin": SITE}, allow_redirects=False
    )
    assert answer.status == status
    assert cors_headers(answer) == {"allow-origin": SITE, "vary": "Origin"}


async def test_a_page_may_read_that_it_has_the_wrong_key(serve):
    served = await serve(allowed_origins=(SITE,), api_keys=("key",))
    answer = await served.get("/v1/models", headers={"Origin": SITE})
    assert (answer.status, cors_headers(answer)["allow-origin"]) == (401, SITE)


async def test_options_that_are_no_preflight_are_a_wrong_method(serve):
    served = await serve(allowed_origins=("*",))
    for headers in ({"Origin": SITE}, {"Access-Control-Request-Method": "GET"}):
        assert (await served.get("/v1/models", "OPTIONS", headers=headers)).status == 405


async def test_an_origin_that_is_no_text_is_answered(serve):
    served = await serve(allowed_origins=("*",), allow_credentials=True)
    client = await served.raw()
    await client._loop.sock_sendall(
        client.socket,
        b"OPTIONS / HTTP/1.1\r\nHost: localhost\r\nOrigin: \xff\r\nConnection: close\r\n"
        b"Access-Control-Request-Method: GET\r\nAccess-Control-Request-Headers: \xff\r\n\r\n",
    )
    await client.rest()
    assert client.head.startswith("HTTP/1.1 200 ")
    assert "Access-Control-Allow-Origin: ?" in client.head


def test_flags_say_who_is_allowed():
    flags = ["--allowed-origins", f'["{SITE}"]', "--allow-credentials"]
    parsed = make_parser().parse_args(["serve", *flags, "--allowed-headers", '["X-Mine"]'])
    settings = settings_of(parsed, (), {})
    assert settings.allowed_origins == (SITE,)
    assert settings.allow_credentials
    assert settings.allowed_methods == ("*",)
    assert settings.allowed_headers == ("X-Mine",)


@pytest.mark.parametrize("text", ["*", '"*"', "[1]", "{}"])
def test_what_is_no_list_of_strings_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["serve", "--allowed-origins", text])
    assert "not a JSON list of strings" in capsys.readouterr().err
