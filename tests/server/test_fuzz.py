"""Whatever is sent to a route: no 5xx, no hang, nothing left over, and no engine harmed.

What real engines make of such requests is tried in `tests/engine_real/test_decoder_fuzz.py`; here
`strict_wire` stands in for them.
"""

import asyncio
import json

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from umbel_engine.mock import sampled
from umbel_server.requests.tokenize import DetokenizeRequest, TokenizeChatRequest

from ..fuzzing import (
    ANY_TEXTS,
    CHAT,
    CHAT_BODIES,
    CHAT_FIELDS,
    COMPLETION_BODIES,
    COMPLETION_FIELDS,
    COMPLETIONS,
    FRACTIONS,
    GENERATE,
    GENERATE_BODIES,
    GENERATE_FIELDS,
    GENERATE_SAMPLING_FIELDS,
    INTEGERS,
    JSON_TYPE,
    MAX_MODEL_LEN,
    MAX_N,
    MODEL,
    THOROUGH,
    TOKEN_ID_LISTS,
    WHOLE,
    WORDS,
    Request,
    as_sent,
    bodies,
    bounded,
    fields_of,
    mostly,
    post,
    requests,
)
from .strict_wire import check_add

LONGEST = 3
"""Tokens of an answer."""

TOKENIZE_FIELDS = fields_of(
    TokenizeChatRequest, CHAT_FIELDS, {"prompt": mostly(WORDS, ANY_TEXTS)}
)
DETOKENIZE_FIELDS = fields_of(
    DetokenizeRequest, {"tokens": mostly(TOKEN_ID_LISTS, st.lists(INTEGERS, max_size=3))}
)

KINDS = {
    CHAT: CHAT_BODIES,
    COMPLETIONS: COMPLETION_BODIES,
    f"{CHAT}/render": CHAT_BODIES,
    f"{COMPLETIONS}/render": COMPLETION_BODIES,
    GENERATE: GENERATE_BODIES,
    "/inference/v1/abort_requests": st.fixed_dictionaries(
        {"request_ids": mostly(st.lists(ANY_TEXTS, max_size=3))}
    ),
    "/invocations": CHAT_BODIES | COMPLETION_BODIES,
    "/ping": st.just({}),
    "/tokenize": bodies(st.just({}), TOKENIZE_FIELDS, (), ["messages", "prompt"]),
    "/detokenize": bodies(st.just({}), DETOKENIZE_FIELDS, (), ["tokens"]),
}

NEEDED = {
    CHAT: {"messages": [{"role": "user", "content": "Hello"}]},
    COMPLETIONS: {"prompt": "Hello"},
    GENERATE: {"token_ids": [300, 301], "sampling_params": {}},
}


def script(request):
    """Answer with a few tokens, and with all that a request asks to be told of them."""
    for count, step in enumerate(model(request), 1):
        if count < LONGEST and step.finish is None:
            yield step
        else:
            yield msgspec.structs.replace(step, finish=step.finish or "length")
            return


model = sampled(eos_after=2)


@pytest.fixture
async def served(serve):
    """A server that has every route."""
    return await serve(
        script,
        served_model_names=(MODEL,),
        max_model_len=MAX_MODEL_LEN,
        max_n_sequences=MAX_N,
        enable_scale_out=True,
        enable_tokenizer_info_endpoint=True,
        development_mode=True,
    )


def post_routes(served):
    return {
        route.resource.canonical for route in served.app.router.routes() if route.method == "POST"
    }


@pytest.fixture
def check(served):
    """Send a request: it must be answered, and the engine must be able to take what it gets."""
    engine = served.engine

    async def settle(request):
        """Wait until nothing is left of a request, and look at what the engine got of it."""
        await engine.wait_idle()
        assert served.client.in_flight == 0, request
        assert len(served.llm.in_flight) == 0, request
        for frames in engine.add_frames:
            check_add(*frames)

    async def check(request):
        for record in (engine.adds, engine.add_frames, engine.aborts):
            record.clear()
        response = await post(served.port, request)
        assert 200 <= response.status < 500, request
        # Within a stream, an error is an event.
        assert b'"code":5' not in response.body, request
        if b"data: " in response.body[:20]:
            assert b"data: [DONE]\n\n" in response.body, request
        elif response.body:
            json.loads(response.body)
        assert response.status == 200 or not engine.adds, request
        await settle(request)
        assert served.load == 0, request
        return response.status

    async def hang_up(request):
        """Send a request and do not wait for the answer."""
        _, writer = await asyncio.open_connection("127.0.0.1", served.port)
        writer.write(as_sent(request))
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    check.hang_up = hang_up
    check.settle = settle
    return check


async def test_every_route_is_tried(served):
    assert post_routes(served) == set(KINDS)


@pytest.mark.timeout(0 if THOROUGH else 120)
@bounded(400)
@given(request=requests(KINDS))
async def test_whatever_is_sent_is_answered_and_harms_no_engine(check, request):
    status = await check(request)
    event(f"{request.path} {status}")
