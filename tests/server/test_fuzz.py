"""Whatever is sent to a route: no 5xx, no hang, nothing left over, and no engine harmed.

What real engines make of such requests is tried in `tests/engine_real/test_decoder_fuzz.py`; here
`strict_wire` stands in for them.
"""

import asyncio
import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

from umbel_engine import RepetitionDetection
from umbel_engine.mock import sampled
from umbel_server.requests.shared import StreamOptions
from umbel_server.requests.structured import (
    JsonSchemaFormat,
    ResponseFormat,
    StructuredOutputsRequest,
)
from umbel_server.requests.tokenize import DetokenizeRequest, TokenizeChatRequest

from ..fuzzing import (
    ANY_TEXTS,
    ANYTHING,
    CHAT,
    CHAT_BODIES,
    CHAT_FIELDS,
    COMPLETION_BODIES,
    COMPLETION_FIELDS,
    COMPLETIONS,
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
    WORDS,
    Request,
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

TOKENIZE_FIELDS = {
    name: CHAT_FIELDS.get(name, ANYTHING) for name in TokenizeChatRequest.__struct_fields__
} | {"prompt": mostly(WORDS, ANY_TEXTS)}
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

MESSAGE = {"role": "user", "content": "Hello"}
PROMPT = {"prompt": "Hello"}
TOKENS = {"token_ids": [300, 301]}


class Place(NamedTuple):
    """Where values of every kind are put: fields of a body, and how a body with one is made."""

    path: str
    fields: Iterable[str]
    body: Callable[[dict[str, object]], dict[str, object]]


PLACES = {
    "chat": Place(CHAT, CHAT_FIELDS, lambda value: {"messages": [MESSAGE], **value}),
    "completions": Place(COMPLETIONS, COMPLETION_FIELDS, lambda value: PROMPT | value),
    "generate": Place(
        GENERATE, GENERATE_FIELDS, lambda value: TOKENS | {"sampling_params": {}} | value
    ),
    "sampling parameters": Place(
        GENERATE, GENERATE_SAMPLING_FIELDS, lambda value: TOKENS | {"sampling_params": value}
    ),
    "tokenize": Place("/tokenize", TOKENIZE_FIELDS, lambda value: PROMPT | value),
    "tokenize a chat": Place(
        "/tokenize", TOKENIZE_FIELDS, lambda value: {"messages": [MESSAGE]} | value
    ),
    "detokenize": Place("/detokenize", DETOKENIZE_FIELDS, lambda value: value),
    "abort": Place("/inference/v1/abort_requests", ["request_ids"], lambda value: value),
    "messages": Place(
        CHAT,
        ["role", "content", "name", "tool_calls", "reasoning_content", "tool_call_id"],
        lambda value: {"messages": [MESSAGE | value]},
    ),
    "parts of a content": Place(
        CHAT,
        ["type", "text", "image_url", "refusal"],
        lambda value: {"messages": [MESSAGE | {"content": [{"type": "text"} | value]}]},
    ),
    "structured outputs": Place(
        COMPLETIONS,
        StructuredOutputsRequest.__struct_fields__,
        lambda value: PROMPT | {"structured_outputs": value},
    ),
    "response format": Place(
        COMPLETIONS,
        ResponseFormat.__struct_fields__,
        lambda value: PROMPT | {"response_format": {"type": "structural_tag"} | value},
    ),
    "a schema": Place(
        CHAT,
        JsonSchemaFormat.__struct_fields__,
        lambda value: {
            "messages": [MESSAGE],
            "response_format": {"type": "json_schema", "json_schema": {"name": "a"} | value},
        },
    ),
    "repetition detection": Place(
        COMPLETIONS,
        RepetitionDetection.__struct_fields__,
        lambda value: (
            PROMPT | {"repetition_detection": {"max_pattern_size": 3, "min_count": 2} | value}
        ),
    ),
    "stream options": Place(
        CHAT,
        StreamOptions.__struct_fields__,
        lambda value: {"messages": [MESSAGE], "stream": True, "stream_options": value},
    ),
    "extra arguments": Place(
        COMPLETIONS,
        ["kv_transfer_params", "ec_transfer_params", "session_id", "a"],
        lambda value: PROMPT | {"vllm_xargs": value},
    ),
    "transfer parameters": Place(
        COMPLETIONS, ["a"], lambda value: PROMPT | {"kv_transfer_params": value}
    ),
    "template arguments": Place(
        CHAT,
        ["messages", "tools", "a", "chat_template", "add_generation_prompt"],
        lambda value: {"messages": [MESSAGE], "chat_template_kwargs": value},
    ),
}

DEEP_LIST = json.loads("[" * 500 + "]" * 500)
DEEP_OBJECT = json.loads('{"a":' * 500 + "1" + "}" * 500)
ODD_VALUES = [
    *(None, True, False),
    *(0, -1, -2, 1, 2, 21, 2048, 2**31, 2**63, -(2**63) - 1, 2**64, 10**4000),
    *(0.5, 1.0, -0.0, 1e308, float("nan"), float("inf"), float("-inf")),
    *("", "a", "1", "\0", "\ud800", "a" * 2000),
    *([], [None], [0], [-1], [2**64], [1.5], ["a"], [""], ["\ud800"], [[]], [{}]),
    *({}, {"a": 1}, {"1": 2}, {"\ud800": "\udfff"}, {"type": "object"}),
    *(DEEP_LIST, DEEP_OBJECT, list(range(3000)), ["a"] * 3000, {"1" * 5000: 1}),
]


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


def request_of(path, body):
    return Request(path, [JSON_TYPE], json.dumps(body).encode())


@pytest.fixture
def check(served):
    """Send requests: they must be answered, and the engine must be able to take what it gets."""
    engine = served.engine

    async def check(*requests):
        for record in (engine.adds, engine.add_frames, engine.aborts):
            record.clear()
        responses = await asyncio.gather(*(post(served.port, request) for request in requests))
        for request, response in zip(requests, responses, strict=True):
            check_response(request, response)
        await settle(requests)
        return [response.status for response in responses]

    async def settle(requests):
        """Wait until nothing is left of some requests, and look at what the engine got of them."""
        await engine.wait_idle()
        assert served.client.in_flight == 0, requests
        assert len(served.llm.in_flight) == 0, requests
        assert served.load == 0, requests
        for (payload,) in engine.add_frames:
            check_add(payload)

    return check


def check_response(request, response):
    """Check that a response is whole, and that it does not blame the server."""
    assert 200 <= response.status < 500, request
    # Within a stream, an error is an event.
    assert b'"code":5' not in response.body, request
    if b"data: " in response.body[:20]:
        assert b"data: [DONE]\n\n" in response.body, request
    elif response.body:
        json.loads(response.body)


@pytest.mark.parametrize("name", PLACES)
async def test_every_field_stands_values_of_every_kind(check, name):
    place = PLACES[name]
    for field in place.fields:
        asked = [request_of(place.path, place.body({field: value})) for value in ODD_VALUES]
        asked += [request_of(r.path, {**json.loads(r.body), "stream": True}) for r in asked[::5]]
        await check(*asked)


async def test_every_route_is_tried(served):
    assert post_routes(served) == set(KINDS)


@pytest.mark.timeout(0 if THOROUGH else 120)
@bounded(400)
@given(request=requests(KINDS))
async def test_whatever_is_sent_is_answered_and_harms_no_engine(check, request):
    (status,) = await check(request)
    event(f"{request.path} {status}")
