"""Aborting by request id."""

import asyncio

import aiohttp
import pytest

from umbel_engine.mock import MockStep, tokens

from .generating import ABORT, GENERATE, PROMPT, generate

PAUSED = {"engine_options": {"paused": True}}


@pytest.mark.parametrize("as_list", [True, False])
async def test_an_abort_ends_every_sample_of_a_request_with_that_reason(generating, as_list):
    served = await generating(lambda request: [MockStep(token_ids=[5])])
    request_id = "generate-tokens-42"
    async with served.stream(
        GENERATE, token_ids=PROMPT, sampling_params={"n": 3}, request_id="42"
    ) as stream:
        for _ in range(3):
            assert (await stream.next())["choices"][0]["finish_reason"] is None
        ids = [request_id, "unknown"] if as_list else request_id
        answer = await served.post(ABORT, request_ids=ids)
        assert (answer.status, answer.text) == (200, "")
        *ends, done = await stream.rest()
    assert done == "[DONE]"
    assert [end["choices"][0]["finish_reason"] for end in ends] == ["abort"] * 3
    await served.engine.wait_aborts()
    assert len(served.engine.aborts[0]) == 3


async def test_an_aborted_answer_that_does_not_stream_has_what_there_was(generating):
    served = await generating(lambda request: tokens(5, 6), **PAUSED)
    asked = asyncio.ensure_future(generate(served, {"X-Request-Id": "7"}, n=2))
    await served.engine.wait_adds(2)
    await served.step()
    await served.post(ABORT, request_ids=["generate-tokens-7"])
    answer = await asked
    assert answer.status == 200
    ends = [(choice["token_ids"], choice["finish_reason"]) for choice in answer.json()["choices"]]
    assert ends == [([5], "abort")] * 2


@pytest.mark.parametrize(
    ("body", "message", "param"),
    [
        (b"", "JSON decode error: Expecting value: line 1 column 1 (char 0)", None),
        (b"{}", "Missing 'request_ids' in request body", None),
        (b'{"request_ids": null}', "Missing 'request_ids' in request body", None),
        (b"[]", "Missing 'request_ids' in request body", None),
        (b"\xff", "The body could not be read.", None),
        (
            b'{"request_ids": [1]}',
            "`request_ids` must be a string or an array of strings.",
            "request_ids",
        ),
    ],
)
async def test_an_abort_that_names_no_requests_is_refused(generating, body, message, param):
    served = await generating()
    answer = await served.get(ABORT, "POST", data=aiohttp.BytesPayload(body))
    assert answer.status == 400
    assert answer.error == {"message": message, "type": "Bad Request", "param": param, "code": 400}
