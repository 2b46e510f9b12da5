"""Everything around the answers: probes, models, metrics, keys, and what no handler sees."""

import asyncio
import re
import threading

import pytest

from umbel_engine.mock import child_index

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
MESSAGES = [{"role": "user", "content": "Hello"}]
PAUSED = {"engine_options": {"paused": True}}

ENGINE_DEAD = {
    "message": "The server had an error while processing your request.",
    "type": "InternalServerError",
    "param": None,
    "code": 500,
}


async def test_health_and_ping_say_that_requests_can_be_served(serve):
    served = await serve()
    for method, path in (("GET", "/health"), ("GET", "/ping"), ("POST", "/ping")):
        answer = await served.get(path, method)
        assert (answer.status, answer.text) == (200, "")


@pytest.mark.parametrize("way", ["sentinel", "gone", "garbage"])
async def test_the_death_of_the_engine_ends_every_answer_and_turns_health_to_503(serve, say, way):
    served = await serve(lambda request: say("hi", finish=None), **PAUSED)
    engine = served.engine
    async with (
        served.stream(CHAT, messages=MESSAGES, n=2) as chat,
        served.stream(COMPLETIONS, prompt=["Hello", "hi"]) as completion,
    ):
        await engine.wait_adds(4)
        await served.step()
        for _ in range(4):
            await chat.next()
        for _ in range(2):
            await completion.next()
        whole = asyncio.ensure_future(served.ask(n=3))
        unbegun = asyncio.ensure_future(served.ask(n=3, stream=True))
        await engine.wait_adds(10)
        if way == "sentinel":
            engine.send_dead()
        elif way == "gone":
            engine.kill()
        else:
            engine.send((b"\xc1",))
        assert await chat.rest() == [{"error": ENGINE_DEAD}, "[DONE]"]
        assert await completion.rest() == [{"error": ENGINE_DEAD}, "[DONE]"]
        for answer in (await whole, await unbegun):
            assert (answer.status, answer.error) == (500, ENGINE_DEAD)
    for path in ("/health", "/ping"):
        answer = await served.get(path)
        assert (answer.status, answer.text) == (503, "")
    for stream in (False, True):
        answer = await served.ask(stream=stream)
        assert (answer.status, answer.error) == (500, ENGINE_DEAD)
    assert (await served.get("/metrics")).status == 200
    assert (await served.ask(model="gpt")).status == 404


async def test_every_name_of_the_model_has_a_card_and_answers_carry_the_first(serve, say):
    served = await serve(lambda request: say("hi"), served_model_names=("smollm2", "small"))
    body = (await served.get("/v1/models")).json()
    assert body["object"] == "list"
    assert [card["id"] for card in body["data"]] == ["smollm2", "small"]
    card = body["data"][0]
    assert list(card) == [
        *("id", "object", "created", "owned_by", "root", "parent", "max_model_len", "permission")
    ]
    assert (card["object"], card["root"], card["max_model_len"]) == ("model", "a-folder", 2048)
    assert card["permission"][0]["object"] == "model_permission"
    for name in ("small", "smollm2", "", None):
        assert (await served.ask(model=name)).json()["model"] == "smollm2"


async def test_the_version_is_the_engines(serve):
    served = await serve()
    body = (await served.get("/version")).json()
    assert body["version"] == "0.33.0"
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", body["umbel_version"])


async def test_load_counts_the_requests_that_are_being_answered(serve, say):
    served = await serve(lambda request: say("hi"), **PAUSED)
    assert (await served.get("/load")).json() == {"server_load": 0}
    whole = asyncio.ensure_future(served.ask(n=3))
    stream = asyncio.ensure_future(served.complete(n=2, stream=True))
    await served.engine.wait_adds(5)
    assert (await served.get("/load")).json() == {"server_load": 2}
    served.engine.resume()
    assert {(await whole).status, (await stream).status} == {200}
    assert (await served.get("/load")).json() == {"server_load": 0}


async def test_metrics_are_those_of_the_requests(serve, say):
    served = await serve(lambda request: say(*["hi"] * (child_index(request) + 1)))
    await served.ask(n=3)
    await served.complete(n=2, stream=True)
    await served.ask(n=0)
    answer = await served.get("/metrics")
    assert answer.status == 200
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    labels = 'engine="0",model_name="smollm2"'
    assert f"vllm:request_params_n_sum{{{labels}}} 5.0" in answer.text
    metrics = await served.metrics()
    assert metrics["vllm:request_params_n_count"] == 2
    assert metrics["vllm:request_max_num_generation_tokens_sum"] == 3 + 2
    assert metrics["vllm:request_generation_tokens_count"] == 5
    assert metrics["vllm:generation_tokens_total"] == 1 + 2 + 3 + 1 + 2
    assert metrics["vllm:request_success_total"] == 5
    assert metrics["vllm:e2e_request_latency_seconds_count"] == 5
    for status, path, count in (("2xx", CHAT, 1), ("4xx", CHAT, 1), ("2xx", COMPLETIONS, 1)):
        line = f'http_requests_total{{handler="{path}",method="POST",status="{status}"}} {count}.0'
        assert line in answer.text
    assert "/metrics" not in answer.text


async def test_a_key_is_asked_for_where_the_model_is_used(serve, say):
    served = await serve(lambda request: say("hi"), api_keys=("first", "s\u00e9cond"))
    for path in ("/v1/models", "/v1/nope", "/v2/anything"):
        answer = await served.get(path)
        assert (answer.status, answer.text) == (401, '{"error":"Unauthorized"}')
    for shown in ("Bearer third", "Bearer", "first", "Basic first", "Bearer firs"):
        answer = await served.ask(headers={"Authorization": shown})
        assert answer.status == 401
    assert served.engine.adds == []
    for shown in ("Bearer first", "bearer first", "Bearer s\u00e9cond"):
        assert (await served.ask(headers={"Authorization": shown})).status == 200
    for path in ("/health", "/ping", "/version", "/load", "/metrics"):
        assert (await served.get(path)).status == 200


async def test_an_unknown_path_is_not_found(serve):
    served = await serve()
    for path in ("/nope", "/v1/nope", "//v1/models", "/HEALTH"):
        answer = await served.get(path)
        assert (answer.status, answer.json()) == (404, {"detail": "Not Found"})


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", CHAT, "POST"),
        ("DELETE", COMPLETIONS, "POST"),
        ("POST", "/v1/models", "GET"),
        ("OPTIONS", "/v1/models", "GET"),
    ],
)
async def test_a_wrong_method_is_told_the_right_one(serve, method, path, allowed):
    served = await serve()
    answer = await served.get(path, method)
    assert (answer.status, answer.json()) == (405, {"detail": "Method Not Allowed"})
    assert answer.headers["Allow"] == allowed


async def test_head_is_a_wrong_method(serve):
    served = await serve()
    answer = await served.get("/v1/models", "HEAD")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET")


async def test_a_body_that_is_too_large_is_refused(serve):
    served = await serve(max_body_size=1000)
    answer = await served.complete(prompt="x" * 1000)
    assert (answer.status, answer.json()) == (413, {"detail": "Request body is too large"})
    assert served.engine.adds == []


@pytest.mark.parametrize("path", [COMPLETIONS, f"{COMPLETIONS}/render"])
@pytest.mark.parametrize("stop", ["\ud800", ["a", "\ud800"]])
async def test_a_stop_string_that_is_no_text_is_refused(serve, path, stop):
    served = await serve(enable_scale_out=True)
    answer = await served.post(path, prompt="Hello", stop=stop)
    assert (answer.status, answer.error["param"]) == (400, "body.stop")


async def test_a_message_that_quotes_a_long_request_is_cut(serve):
    served = await serve()
    answer = await served.complete(stop_token_ids=list(range(10**6, 10**6 + 10**5)))
    assert (answer.status, answer.error["param"]) == (400, "stop_token_ids")
    assert len(answer.text) < 20_000


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_goes_away_is_no_fault_of_the_server(
    serve, say, handler_cancellation, stream
):
    served = await serve(
        lambda request: say("hi", "yo"), handler_cancellation=handler_cancellation, **PAUSED
    )
    client = await served.raw(CHAT, messages=MESSAGES, stream=stream)
    await served.engine.wait_adds()
    client.close()
    await served.engine.wait_aborts()
    await served.get("/v1/models")
    text = (await served.get("/metrics")).text
    assert 'status="5xx"' not in text


async def test_a_long_prompt_is_tokenized_while_others_are_answered(serve, say, monkeypatch):
    served = await serve(lambda request: say("hi"), max_model_len=100_000)
    may_tokenize = threading.Event()
    tokenizer = served.chat.text.model.tokenizer
    encode = tokenizer.encode

    def slow_encode(text, add_special_tokens=True):
        if len(text) > 20_000:
            assert may_tokenize.wait(timeout=10)
        return encode(text, add_special_tokens)

    monkeypatch.setattr(tokenizer, "encode", slow_encode)
    long = asyncio.ensure_future(served.complete(prompt="x" * 30_000, max_tokens=1))
    assert (await served.complete(prompt="Hello", max_tokens=1)).status == 200
    assert not long.done()
    may_tokenize.set()
    assert (await long).status == 200


async def test_render_routes_are_closed_unless_they_were_opened(serve):
    served = await serve()
    for path in (CHAT, COMPLETIONS):
        answer = await served.post(f"{path}/render", prompt="Hello", messages=MESSAGES)
        assert answer.status == 403
        assert answer.error == {
            "message": "Scale-out endpoints are disabled. Restart vllm serve with "
            "--enable-scale-out to enable them.",
            "type": "PermissionDeniedError",
            "param": None,
            "code": 403,
        }


async def test_headers_reach_the_engine(serve, say):
    served = await serve(lambda request: say("hi"))
    headers = {
        "X-Request-Id": "mine",
        "X-data-parallel-rank": "0",
        "X-Session-ID": "a-session",
        "X-Vllm-Priority": "-3",
        "traceparent": "00-1-2-01",
    }
    assert (await served.ask(headers, n=2, priority=5)).json()["id"] == "chatcmpl-mine"
    for add in served.engine.adds:
        assert add.external_req_id == "chatcmpl-mine"
        assert (add.data_parallel_rank, add.session_id, add.priority) == (0, "a-session", -3)
        assert add.trace_headers == {"traceparent": "00-1-2-01"}


async def test_two_requests_may_share_an_id(serve, say):
    served = await serve(lambda request: say("hi"), **PAUSED)
    both = asyncio.gather(*(served.ask(n=2, request_id="same") for _ in range(2)))
    await served.engine.wait_adds(4)
    served.engine.resume()
    assert [answer.json()["id"] for answer in await both] == ["chatcmpl-same"] * 2


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_timing_is_reported_for_a_single_sample(serve, say, stream):
    served = await serve(lambda request: say("hi", "yo"), enable_per_request_metrics=True)
    usage = {"stream_options": {"include_usage": True}} if stream else {}

    async def metrics(**body):
        answer = await served.complete(stream=stream, **usage, **body)
        return (answer.events[-1] if stream else answer.json()).get("metrics")

    timing = await metrics()
    assert timing["time_to_first_token_ms"] >= 0
    assert timing["generation_time_ms"] >= 0
    assert await metrics(n=2) is None
    assert await metrics(prompt=["Hello", "hi"]) is None


async def test_where_prompt_tokens_came_from_is_told_when_the_server_is_told_to(serve, say):
    for enabled in (False, True):
        served = await serve(lambda request: say("hi"), enable_prompt_tokens_details=enabled)
        chat = (await served.ask(n=2)).json()["usage"]["prompt_tokens_details"]
        completion = (await served.complete(n=2)).json()["usage"]["prompt_tokens_details"]
        if enabled:
            assert (chat["cached_tokens"], chat["created_cache_tokens"]) == (0, 0)
            assert (completion["cached_tokens"], completion["created_cache_tokens"]) == (0, None)
        else:
            assert (chat, completion) == (None, None)
