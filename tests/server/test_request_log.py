"""The log of requests: what it says of each, and that it says nothing of their texts."""

import json
import logging
import socket
from types import SimpleNamespace

import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request

from umbel_server.request_log import RequestLog

from .commands import CHAT, COMPLETIONS, MESSAGES

LOGGER = "umbel_server.request_log"
SECRET = "Hello world Paris"


@pytest.fixture
def logged(serve, caplog):
    """Start a server that logs requests; gives it and the way to its records."""

    async def logged(script=None, **options):
        caplog.set_level(logging.INFO, LOGGER)
        served = await serve(script, log_requests=True, **options)

        def records():
            return [record for record in caplog.records if record.name == LOGGER]

        return served, records

    return logged


async def test_a_line_tells_what_became_of_a_chat(logged, say):
    served, records = await logged(lambda request: say("hi", "yo", "hi"))
    answer = await served.ask(n=3, max_tokens=5)
    (record,) = records()
    facts = record.request
    assert facts["id"] == answer.json()["id"]
    assert (facts["method"], facts["path"], facts["status"]) == ("POST", CHAT, 200)
    usage = answer.json()["usage"]
    assert (facts["prompt_tokens"], facts["completion_tokens"]) == (usage["prompt_tokens"], 9)
    assert (facts["n"], facts["prompts"]) == (3, 1)
    assert facts["finish_reasons"] == {"length": 3}
    assert 0 <= facts["time_to_first_token"] <= facts["seconds"] + 0.01
    line = record.getMessage()
    assert line.startswith(f"POST {CHAT} 200 in ")
    assert f'id="{facts["id"]}" n=3 prompts=1 ' in line


async def test_prompts_of_a_list_are_added_up(logged, say):
    served, records = await logged(lambda request: say("hi"))
    await served.complete(prompt=["Hello", "Hello"], n=2)
    (record,) = records()
    assert (record.request["prompts"], record.request["n"]) == (2, 2)
    assert record.request["completion_tokens"] == 4


async def test_a_client_that_goes_is_a_disconnect(logged):
    served, records = await logged(lambda request: [])
    client = await served.raw(CHAT, messages=MESSAGES, stream=True, n=2)
    await served.engine.wait_adds(2)
    client.close()
    await served.engine.wait_aborts()
    (record,) = records()
    assert record.request["status"] == "disconnected"
    assert record.request["finish_reasons"] == {"abort": 2}


async def test_a_client_that_closes_its_half_is_a_disconnect_too(logged, say, handler_cancellation):
    served, records = await logged(
        lambda request: say("hi", "yo"),
        engine_options={"paused": True},
        handler_cancellation=handler_cancellation,
    )
    client = await served.raw(CHAT, messages=MESSAGES, stream=True)
    await served.engine.wait_adds(1)
    client.socket.shutdown(socket.SHUT_WR)
    await served.engine.wait_aborts()
    client.close()
    (record,) = records()
    assert record.request["status"] == "disconnected"


async def test_what_nobody_can_read_any_more_has_no_status(caplog):
    caplog.set_level(logging.INFO, LOGGER)
    closing = SimpleNamespace(
        is_closing=lambda: True, get_extra_info=lambda name, default=None: None
    )
    request = make_mocked_request("POST", CHAT, transport=closing)

    async def handler(request):
        return web.Response(status=400)

    await RequestLog().middleware(request, handler)
    (record,) = caplog.records
    assert record.request["status"] == "disconnected"


async def test_what_is_refused_is_logged_with_its_status(logged):
    served, records = await logged(api_keys=("key",))
    await served.ask()
    await served.get("/nowhere")
    await served.ask(headers={"Authorization": "Bearer key"}, n=0)
    assert [record.request["status"] for record in records()] == [401, 404, 400]


async def test_probes_are_not_logged(logged):
    served, records = await logged()
    for path in ("/health", "/ping", "/load", "/metrics"):
        await served.get(path)
    assert records() == []


async def test_neither_prompt_nor_answer_nor_key_is_logged(logged, say, caplog):
    caplog.set_level(logging.DEBUG)
    served, records = await logged(lambda request: say(" London", "hi"), api_keys=("a-key",))
    headers = {"Authorization": "Bearer a-key"}
    messages = [{"role": "user", "content": SECRET}]
    await served.ask(headers=headers, messages=messages, stream=True)
    await served.ask(headers=headers, messages=messages, temperature=-1)
    await served.complete(headers=headers, prompt=SECRET, logprobs=1000)
    assert len(records()) == 3
    for record in caplog.records:
        text = logging.Formatter().format(record) + json.dumps(getattr(record, "request", None))
        for secret in ("Paris", "London", "a-key"):
            assert secret not in text


async def test_an_id_of_the_client_cannot_break_the_line(logged, say):
    served, records = await logged(lambda request: say("hi"))
    await served.ask(request_id="x\nGET / 200")
    await served.get("/a%0Ab")
    for record in records():
        assert "\n" not in record.getMessage()


async def test_without_the_option_nothing_is_logged(serve, say, caplog):
    caplog.set_level(logging.DEBUG)
    served = await serve(lambda request: say("hi"))
    await served.ask()
    assert [record for record in caplog.records if record.name == LOGGER] == []
    assert served.llm.listener is None


async def test_the_command_writes_lines_of_text(umbel, say):
    served = await umbel(lambda request: say("hi"), "--enable-log-requests")
    await served.ask(n=2)
    await served.line(
        rf"^\d\d:\d\d:\d\d INFO POST {CHAT} 200 in \d+\.\d{{3}} s "
        r'id="chatcmpl-\S+" n=2 prompts=1 prompt_tokens=\d+ completion_tokens=2 '
        r'finish_reasons=\{"length": 2\} time_to_first_token=[\d.]+\n$'
    )


async def test_the_command_writes_lines_of_json_from_every_process(umbel, say):
    served = await umbel(
        lambda request: say("hi"),
        *("--enable-log-requests", "--log-format", "json", "--api-server-count", "2"),
    )
    # Whatever is said comes in this form, once it is known which that is.
    for line in served.lines:
        assert json.loads(line)["logger"] in ("umbel", "engine")
    await served.ask(COMPLETIONS, n=2)
    entry = json.loads((await served.line(r"^\{.*request_log.*\}$"))[0])
    assert entry["level"] == "INFO"
    assert entry["request"]["finish_reasons"] == {"length": 2}
    assert entry["message"].startswith(f"POST {COMPLETIONS} 200 in ")
    assert entry["time"].endswith("+00:00")
