"""What an answer looks like on the wire, byte by byte, and the usage in it."""

import re

import pytest

from umbel_engine.mock import per_child

EOS = "<|im_end|>"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

MESSAGES = [{"role": "user", "content": "x" * 12}]
"""A conversation of 31 tokens."""

PAUSED = {"engine_options": {"paused": True}}


@pytest.fixture
def cities(say):
    """Say " Paris is" and be cut off, say " London" and stop."""
    return per_child(say(" Paris", " is"), say(" London", EOS, finish="stop"))


def undated(text):
    """Put a fixed time in the place of the time of the answer, which must be one."""
    assert len(set(re.findall(r'"created":\d+', text))) == 1
    return re.sub(r'"created":\d+', '"created":1795959638', text)


def chat_event(request_id, rest):
    return (
        f'data: {{"id":"chatcmpl-{request_id}","object":"chat.completion.chunk",'
        f'"created":1795959638,"model":"smollm2",{rest}}}\n\n'
    )


def completion_event(request_id, rest):
    return (
        f'data: {{"id":"cmpl-{request_id}","object":"text_completion",'
        f'"created":1795959638,"model":"smollm2",{rest}}}\n\n'
    )


async def test_a_chat_completion_is_vllms(serve, cities):
    served = await serve(cities, enable_prompt_tokens_details=True)
    answer = await served.ask(messages=MESSAGES, n=2, request_id="b36ad8324c008d54")
    assert undated(answer.text) == (
        '{"id":"chatcmpl-b36ad8324c008d54","object":"chat.completion","created":1795959638,'
        '"model":"smollm2","choices":[{"index":0,"message":{"role":"assistant","content":" Paris is",'
        '"refusal":null,"annotations":null,"audio":null,"function_call":null,"reasoning":null},'
        '"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null,'
        '"routed_experts":null,"weight_versions":null},{"index":1,"message":{"role":"assistant",'
        '"content":" London","refusal":null,"annotations":null,"audio":null,"function_call":null,'
        '"reasoning":null},"logprobs":null,"finish_reason":"stop","stop_reason":null,'
        '"token_ids":null,"routed_experts":null,"weight_versions":null}],"service_tier":null,'
        '"system_fingerprint":"vllm-0.33.0-31548d98","usage":{"prompt_tokens":31,"total_tokens":35,'
        '"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0,'
        '"multimodal_tokens":null},"completion_tokens_details":null},"prompt_logprobs":null,'
        '"prompt_token_ids":null,"prompt_text":null,"kv_transfer_params":null,'
        '"ec_transfer_params":null,"metrics":null}'
    )


async def test_a_completion_is_vllms(serve, cities):
    served = await serve(cities, enable_prompt_tokens_details=True)
    answer = await served.complete(n=2, request_id="88f2c106284c7215")
    assert undated(answer.text) == (
        '{"id":"cmpl-88f2c106284c7215","object":"text_completion","created":1795959638,'
        '"model":"smollm2","choices":[{"index":0,"text":" Paris is","logprobs":null,'
        '"finish_reason":"length","stop_reason":null,"token_ids":null,"prompt_logprobs":null,'
        '"prompt_token_ids":null,"routed_experts":null,"weight_versions":null},{"index":1,'
        '"text":" London","logprobs":null,"finish_reason":"stop","stop_reason":null,'
        '"token_ids":null,"prompt_logprobs":null,"prompt_token_ids":null,"routed_experts":null,'
        '"weight_versions":null}],"service_tier":null,'
        '"system_fingerprint":"vllm-0.33.0-31548d98","usage":{"prompt_tokens":1,"total_tokens":5,'
        '"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":0,'
        '"created_cache_tokens":null,"multimodal_tokens":null},"completion_tokens_details":null},'
        '"kv_transfer_params":null,"ec_transfer_params":null,"metrics":null}'
    )


CHAT_STREAM = (
    '"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,'
    '"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null',
    '"choices":[{"index":1,"delta":{"role":"assistant","content":""},"logprobs":null,'
    '"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null',
    '"choices":[{"index":0,"delta":{"content":" Paris"},"logprobs":null,"finish_reason":null,'
    '"token_ids":null}],"kv_transfer_params":null',
    '"choices":[{"index":1,"delta":{"content":" London"},"logprobs":null,"finish_reason":null,'
    '"token_ids":null}],"kv_transfer_params":null',
    '"choices":[{"index":0,"delta":{"content":" is"},"logprobs":null,"finish_reason":"length",'
    '"stop_reason":null,"token_ids":null,"weight_versions":null}],"kv_transfer_params":null',
    '"choices":[{"index":1,"delta":{"content":""},"logprobs":null,"finish_reason":"stop",'
    '"stop_reason":null,"token_ids":null,"weight_versions":null}],"kv_transfer_params":null',
)


async def test_a_streamed_chat_completion_is_vllms(serve, unhurried, cities):
    served = await serve(cities, enable_prompt_tokens_details=True, **PAUSED)
    request_id = "9ea737352f0b7355"
    client = await unhurried(
        served,
        CHAT,
        [4, 2],
        adds=2,
        messages=MESSAGES,
        n=2,
        request_id=request_id,
        stream_options={"include_usage": True},
    )
    usage = (
        '"choices":[],"usage":{"prompt_tokens":31,"total_tokens":35,"completion_tokens":4,'
        '"prompt_tokens_details":{"cached_tokens":0,"created_cache_tokens":0}},'
        '"system_fingerprint":"vllm-0.33.0-31548d98"'
    )
    events = [chat_event(request_id, rest) for rest in (*CHAT_STREAM, usage)]
    assert undated(client.text) == "".join(events) + "data: [DONE]\n\n"
    head = client.head.lower()
    assert head.startswith("http/1.1 200 ok\r\n")
    assert "\r\ncontent-type: text/event-stream; charset=utf-8\r\n" in head
    assert "\r\ntransfer-encoding: chunked" in head
    assert "cache-control" not in head


async def test_without_usage_the_last_chunk_of_a_chat_choice_has_the_fingerprint(
    serve, unhurried, cities
):
    served = await serve(cities, **PAUSED)
    client = await unhurried(served, CHAT, [4, 2], adds=2, messages=MESSAGES, n=2, request_id="x")
    plain = "}],"
    marked = '}],"system_fingerprint":"vllm-0.33.0-31548d98",'
    rests = [*CHAT_STREAM[:4], *(rest.replace(plain, marked) for rest in CHAT_STREAM[4:])]
    events = [chat_event("x", rest) for rest in rests]
    assert undated(client.text) == "".join(events) + "data: [DONE]\n\n"


async def test_a_streamed_completion_of_two_prompts_is_vllms(serve, unhurried, cities):
    served = await serve(cities, **PAUSED)
    request_id = "b410bc390b359844"
    client = await unhurried(
        served,
        COMPLETIONS,
        [4, 4],
        adds=4,
        prompt=["Hello", "Hello"],
        n=2,
        request_id=request_id,
        return_token_ids=True,
        stream_options={"include_usage": True},
    )

    def choice(index, text, finish, prompt, token_id):
        return (
            f'"choices":[{{"index":{index},"text":"{text}","logprobs":null,'
            f'"finish_reason":{finish},"stop_reason":null,"prompt_token_ids":{prompt},'
            f'"token_ids":[{token_id}],"weight_versions":null}}],"kv_transfer_params":null'
        )

    usage = (
        '"choices":[],"usage":{"prompt_tokens":2,"total_tokens":10,"completion_tokens":8},'
        '"system_fingerprint":"vllm-0.33.0-31548d98"'
    )
    rests = [
        choice(0, " Paris", "null", "[6004]", 7042),
        choice(1, " London", "null", "[6004]", 7043),
        choice(2, " Paris", "null", "[6004]", 7042),
        choice(3, " London", "null", "[6004]", 7043),
        choice(0, " is", '"length"', "null", 314),
        choice(1, "", '"stop"', "null", 2),
        choice(2, " is", '"length"', "null", 314),
        choice(3, "", '"stop"', "null", 2),
        usage,
    ]
    events = [completion_event(request_id, rest) for rest in rests]
    assert undated(client.text) == "".join(events) + "data: [DONE]\n\n"


async def test_without_usage_the_last_chunk_of_a_completion_has_the_fingerprint(
    serve, unhurried, say
):
    served = await serve(lambda request: say("hi", "yo"), **PAUSED)
    client = await unhurried(served, COMPLETIONS, [1, 1], prompt="Hello", request_id="x")
    plain = (
        '"choices":[{"index":0,"text":"hi","logprobs":null,"finish_reason":null,'
        '"stop_reason":null,"prompt_token_ids":null,"token_ids":null,"weight_versions":null}],'
        '"kv_transfer_params":null'
    )
    last = (
        '"choices":[{"index":0,"text":"yo","logprobs":null,"finish_reason":"length",'
        '"stop_reason":null,"prompt_token_ids":null,"token_ids":null,"weight_versions":null}],'
        '"system_fingerprint":"vllm-0.33.0-31548d98","kv_transfer_params":null'
    )
    events = completion_event("x", plain) + completion_event("x", last)
    assert undated(client.text) == events + "data: [DONE]\n\n"


async def test_continuous_usage_of_a_chat_counts_each_choice_by_itself(serve, unhurried, cities):
    served = await serve(cities, **PAUSED)
    client = await unhurried(
        served,
        CHAT,
        [4, 2],
        adds=2,
        messages=MESSAGES,
        n=2,
        request_id="x",
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    )

    def usage(generated):
        return (
            f'"usage":{{"prompt_tokens":31,"total_tokens":{31 + generated},'
            f'"completion_tokens":{generated},"completion_tokens_details":null}},'
        )

    rests = [
        rest.replace("}],", "}]," + usage(count))
        for rest, count in zip(CHAT_STREAM, (0, 0, 1, 1, 2, 2), strict=True)
    ]
    total = (
        '"choices":[],"usage":{"prompt_tokens":31,"total_tokens":35,"completion_tokens":4},'
        '"system_fingerprint":"vllm-0.33.0-31548d98"'
    )
    events = [chat_event("x", rest) for rest in (*rests, total)]
    assert undated(client.text) == "".join(events) + "data: [DONE]\n\n"


async def test_continuous_usage_of_a_completion_counts_each_choice_by_itself(serve, cities):
    served = await serve(cities, **PAUSED)
    answer = await served.in_steps(
        4,
        served.complete(
            prompt=["Hello", "xxx"],
            n=2,
            stream=True,
            stream_options={"include_usage": True, "continuous_usage_stats": True},
        ),
    )
    *events, last = answer.events
    final = {}
    for event in events:
        assert list(event["usage"]) == ["prompt_tokens", "total_tokens", "completion_tokens"]
        final[event["choices"][0]["index"]] = tuple(event["usage"].values())
    assert final == {0: (1, 3, 2), 1: (1, 3, 2), 2: (3, 5, 2), 3: (3, 5, 2)}
    assert tuple(last["usage"].values()) == (4, 12, 8)


async def test_continuous_usage_alone_does_nothing(serve, cities):
    served = await serve(cities)
    for answer in (
        await served.ask(n=2, stream=True, stream_options={"continuous_usage_stats": True}),
        await served.complete(n=2, stream=True, stream_options={"continuous_usage_stats": True}),
    ):
        assert not any("usage" in event for event in answer.events)


async def test_usage_can_be_forced_on_every_stream(serve, cities):
    served = await serve(cities, enable_force_include_usage=True)
    for options in (None, {"include_usage": False}):
        answer = await served.ask(n=2, stream=True, stream_options=options)
        assert all("usage" in event for event in answer.events)
        assert answer.events[-1]["choices"] == []


async def test_a_chat_that_goes_on_with_the_last_message_echoes_it(serve, unhurried, say):
    served = await serve(lambda request: say("hi"), **PAUSED)
    body = {
        "messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "Hello"}],
        "echo": True,
        "add_generation_prompt": False,
        "continue_final_message": True,
        "n": 2,
        "request_id": "x",
    }
    client = await unhurried(served, CHAT, [6], adds=2, **body)
    assert client.text.count('"delta":{"role":"assistant","content":""}') == 2
    echoes = [
        f'"choices":[{{"index":{index},"delta":{{"content":"Hello"}},"logprobs":null,'
        '"finish_reason":null}]'
        for index in range(2)
    ]
    assert chat_event("x", echoes[0]) + chat_event("x", echoes[1]) in undated(client.text)
    served.engine.resume()
    choices = (await served.ask(**body)).json()["choices"]
    assert [choice["message"]["content"] for choice in choices] == ["Hellohi"] * 2
