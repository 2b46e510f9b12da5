"""Secrets: keys, prompts and answers go where they belong, and into no log, metric or error."""

import hmac
import json
import logging

import msgspec
import pytest
from aiohttp.test_utils import make_mocked_request

from umbel_engine.fault_log import log_fault
from umbel_engine.mock import MockStep
from umbel_engine.wire import RequestFault
from umbel_server.paths import LONGEST_SHOWN, shown_path

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

KEY = "open-sesame"
PROMPT = "the prompt nobody may see"
ANSWER = " Paris"
SECRETS = (KEY, PROMPT, ANSWER)

HEADERS = {"Authorization": f"Bearer {KEY}"}
MESSAGES = [{"role": "user", "content": PROMPT}]


@pytest.fixture
def everything_is_logged(caplog):
    caplog.set_level(logging.DEBUG)
    return caplog


def check_log(caplog):
    """Check that no record tells a secret, in its text, its arguments or its traceback."""
    assert caplog.records
    for record in caplog.records:
        shown = logging.Formatter("%(name)s %(message)s").format(record)
        assert not any(secret in shown for secret in SECRETS), shown


async def test_every_key_is_compared_in_constant_time(serve, monkeypatch):
    compared = []

    def compare(shown, known):
        compared.append((shown, known))
        return hmac_compare(shown, known)

    hmac_compare = hmac.compare_digest
    monkeypatch.setattr(hmac, "compare_digest", compare)
    served = await serve(api_keys=("first", KEY, "last"))
    assert (await served.get("/v1/models", headers=HEADERS)).status == 200
    assert (await served.get("/v1/models", headers={"Authorization": "Bearer x"})).status == 401
    keys = [b"first", KEY.encode(), b"last"]
    assert compared == [(shown, key) for shown in (KEY.encode(), b"x") for key in keys]


async def test_a_key_is_shown_nowhere(serve):
    served = await serve(
        api_keys=(KEY,), development_mode=True, environment={"VLLM_LOGGING_LEVEL": "DEBUG"}
    )
    pages = [
        await served.get(path, headers=HEADERS)
        for path in ("/server_info", "/server_info?config_format=json", "/metrics", "/version")
    ]
    pages += [await served.get("/nope", headers=HEADERS), await served.post(CHAT, HEADERS, n=0)]
    for page in pages:
        assert KEY not in page.text
        assert KEY not in str(page.headers)


REQUESTS = [
    (200, CHAT, {"messages": MESSAGES}),
    (200, COMPLETIONS, {"prompt": PROMPT}),
    (400, CHAT, {"messages": MESSAGES, "n": PROMPT}),
    (400, COMPLETIONS, {"prompt": PROMPT, "stop": [PROMPT, 5]}),
    (400, COMPLETIONS, {"prompt": PROMPT, "logit_bias": {PROMPT: 1}}),
    (400, COMPLETIONS, {"prompt": PROMPT, "structured_outputs": {"grammar": PROMPT}}),
    (404, COMPLETIONS, {"prompt": PROMPT, "model": PROMPT}),
    (404, f"/{PROMPT}", {}),
]


@pytest.mark.parametrize("stream", [False, True])
async def test_requests_leave_nothing_of_theirs_in_the_log(
    serve, say, everything_is_logged, stream
):
    served = await serve(lambda request: say(ANSWER), api_keys=(KEY,))
    for status, path, body in REQUESTS:
        answer = await served.post(path, HEADERS, **body, stream=stream)
        assert answer.status == status
    malformed = {**HEADERS, "Content-Type": "application/json"}
    for body in (f'{{"prompt": "{PROMPT}', f'"{PROMPT}"', f'{{"prompt": "{PROMPT}\\ud800"}}'):
        answer = await served.get(COMPLETIONS, "POST", data=body.encode(), headers=malformed)
        assert answer.status == 400
    check_log(everything_is_logged)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
async def test_an_error_of_the_engine_does_not_either(
    serve, token, everything_is_logged, stream, path
):
    def script(request):
        fault = RequestFault(f"cannot do {PROMPT}")
        return [MockStep(token_ids=[token(ANSWER)]), MockStep(finish="error", error=fault)]

    served = await serve(script, api_keys=(KEY,))
    answer = await served.post(path, HEADERS, prompt=PROMPT, messages=MESSAGES, stream=stream)
    # Whoever asked is told.
    assert PROMPT in answer.text
    check_log(everything_is_logged)


def fail(*args, **kwargs):
    """Fail as JSON and types do: with what they were given."""
    try:
        json.loads(PROMPT)
    except ValueError as error:
        raise msgspec.ValidationError(f"{PROMPT} {ANSWER} {KEY}") from error


@pytest.mark.parametrize(
    ("place", "stream"),
    [
        ("routes.chat.chat_completion", False),
        ("exchange.decode_body", False),
        ("responses.chat_frames.ChatFrames.item", True),
    ],
)
async def test_a_fault_of_the_server_is_logged_by_where_it_happened(
    serve, say, everything_is_logged, monkeypatch, place, stream
):
    served = await serve(lambda request: say(ANSWER, ANSWER), api_keys=(KEY,))
    monkeypatch.setattr(f"umbel_server.{place}", fail)
    answer = await served.post(CHAT, HEADERS, messages=MESSAGES, stream=stream)
    assert "Internal server error" in answer.text
    check_log(everything_is_logged)
    (record,) = [r for r in everything_is_logged.records if r.levelno >= logging.ERROR]
    assert "ValidationError" in record.getMessage()
    assert ", in fail\n" in record.getMessage()
    if not stream:
        assert answer.status == 500
        assert record.getMessage().startswith(f"POST {CHAT} failed: ")


def test_a_path_cannot_write_lines_of_its_own_into_the_log():
    request = make_mocked_request("GET", "/v1/models%0aERROR%20forged" + "x" * 1000)
    shown = shown_path(request)
    assert shown.startswith("/v1/models%0AERROR%20forgedx")
    assert len(shown) == LONGEST_SHOWN


def test_a_fault_is_told_with_what_led_to_it(everything_is_logged):
    try:
        fail()
    except msgspec.ValidationError as error:
        log_fault(logging.getLogger("umbel"), error, "request %s failed", "r-1")
    (record,) = everything_is_logged.records
    lines = record.getMessage().splitlines()
    assert lines[0] == "request r-1 failed: JSONDecodeError"
    assert "which led to" in lines
    assert "ValidationError" in lines
    check_log(everything_is_logged)
