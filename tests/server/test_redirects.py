"""Other paths by which a route is found: with a slash at the end, or below a prefix."""

import openai
import pytest

from umbel_server.cli import make_parser, settings_of

NOT_FOUND = (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    ("method", "path", "location"),
    [
        ("GET", "/v1/models/", "/v1/models"),
        ("GET", "/v1/models///", "/v1/models"),
        ("GET", "/v1/models/?a=b&c=%26", "/v1/models?a=b&c=%26"),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("DELETE", "/health/", "/health"),
    ],
)
async def test_a_slash_at_the_end_is_redirected(serve, method, path, location):
    served = await serve()
    answer = await served.get(path, method, allow_redirects=False)
    assert (answer.status, answer.text) == (307, "")
    assert answer.headers["Location"] == location


@pytest.mark.parametrize("path", ["/nope/", "/", "//", "//v1/models/", "/v1//models/", "/HEALTH/"])
async def test_a_slash_at_the_end_of_what_does_not_exist_is_not_found(serve, path):
    served = await serve()
    client = await served.raw()
    await client._loop.sock_sendall(
        client.socket,
        f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode(),
    )
    await client.rest()
    assert client.head.startswith("HTTP/1.1 404 ")


async def test_a_client_that_follows_a_redirect_is_answered(serve, say):
    served = await serve(lambda request: say("hi"))
    answer = await served.post(
        "/v1/chat/completions/", messages=[{"role": "user", "content": "Hello"}]
    )
    assert answer.json()["choices"][0]["message"]["content"] == "hi"


async def test_a_key_is_asked_for_before_a_redirect(serve):
    served = await serve(api_keys=("key",))
    assert (await served.get("/v1/models/", allow_redirects=False)).status == 401


@pytest.mark.parametrize("prefix", ["", "/llm"])
@pytest.mark.parametrize("key", ["right", "wrong"])
async def test_a_server_with_a_root_path_answers_with_and_without_it(serve, say, prefix, key):
    served = await serve(lambda request: say("hi"), api_keys=("right",), root_path="/llm")
    async with openai.AsyncOpenAI(
        base_url=f"{served.url}{prefix}/v1", api_key=key, max_retries=0
    ) as client:
        asked = client.chat.completions.create(
            model="smollm2", messages=[{"role": "user", "content": "Hello"}]
        )
        if key == "wrong":
            with pytest.raises(openai.AuthenticationError):
                await asked
        else:
            assert (await asked).choices[0].message.content == "hi"
            assert (await served.get(f"{prefix}/ping", "POST")).status == 200


async def test_below_a_root_path_all_is_as_without_it(serve, say):
    served = await serve(lambda request: say("hi"), root_path="/llm")
    for path in ("/llm/nope", "/llm", "/llm/", "/other/health", "/llmhealth", "/llm/llm/health"):
        answer = await served.get(path)
        assert (answer.status, answer.json()) == NOT_FOUND
    answer = await served.get("/llm/v1/models/", allow_redirects=False)
    assert (answer.status, answer.headers["Location"]) == (307, "/llm/v1/models")
    answer = await served.get("/llm/v1/models", "POST")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_requests_are_counted_without_the_root_path(serve, say):
    served = await serve(lambda request: say("hi"), root_path="/llm")
    await served.complete()
    await served.post("/llm/v1/completions", prompt="Hello")
    await served.get("/llm/health")
    text = (await served.get("/metrics")).text
    line = 'http_requests_total{handler="/v1/completions",method="POST",status="2xx"} 2.0'
    assert line in text
    assert "health" not in text


@pytest.mark.parametrize(
    ("given", "prefix"),
    [("/llm", "/llm"), ("llm/", "/llm"), ("/a/b/", "/a/b"), ("/", ""), ("", "")],
)
def test_the_root_path_may_be_given_with_or_without_slashes(given, prefix):
    parsed = make_parser().parse_args(["serve", "--root-path", given])
    assert settings_of(parsed, (), {}).root_path == prefix


def test_a_root_path_that_is_no_path_is_refused(capsys):
    with pytest.raises(SystemExit):
        make_parser().parse_args(["serve", "--root-path", "/{a}"])
    assert "must be a path" in capsys.readouterr().err
