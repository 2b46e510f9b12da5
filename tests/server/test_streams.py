"""What a stream looks like on the wire, and how it behaves when its client is slow."""

import asyncio
import itertools
import json
import re

import numpy as np
import pytest

from umbel_engine import Logprobs
from umbel_engine.mock import MockStep, child_index, per_child, sampled, tokens
from umbel_engine.wire import RequestFault

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


async def in_steps(served, adds, asking):
    """Let the engine begin when it has all requests, so that they go in step."""
    task = asyncio.ensure_future(asking)
    await served.engine.wait_adds(adds)
    served.engine.resume()
    return await task


# The samples of vLLM's server, byte by byte.


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
    answer = await in_steps(
        served,
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


# Logprobs.


@pytest.fixture
def with_logprobs(token):
    """Say " Paris" with a rival, and stop."""
    ids = np.array([[7042, 10]], np.int64)
    values = np.array([[-0.5, -0.6]], np.float32)
    logprobs = Logprobs(ids, values, np.array([1]))
    return lambda request: [MockStep(token_ids=[7042], logprobs=logprobs, finish="length")]


CHAT_LOGPROBS = (
    '{"content":[{"token":" Paris","logprob":-0.5,"bytes":[32,80,97,114,105,115],'
    '"top_logprobs":[{"token":" Paris","logprob":-0.5,"bytes":[32,80,97,114,105,115]}]}]}'
)
COMPLETION_LOGPROBS = (
    '{"text_offset":[0],"token_logprobs":[-0.5],"tokens":[" Paris"],'
    '"top_logprobs":[{" Paris":-0.5,"<issue_closed>":-0.6000000238418579}]}'
)


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_logprobs_are_vllms(serve, with_logprobs, stream):
    served = await serve(with_logprobs)
    chat = await served.ask(n=2, logprobs=True, top_logprobs=1, stream=stream)
    assert chat.text.count(f'"logprobs":{CHAT_LOGPROBS},"finish_reason":"length"') == 2
    completion = await served.complete(n=2, logprobs=1, stream=stream)
    found = completion.text.count(f'"logprobs":{COMPLETION_LOGPROBS},"finish_reason":"length"')
    assert found == 2
    assert {add.sampling_params.logprobs for add in served.engine.adds} == {1}


async def test_logprobs_without_rivals(serve, with_logprobs):
    served = await serve(with_logprobs)
    answer = await served.ask(logprobs=True)
    (entry,) = answer.json()["choices"][0]["logprobs"]["content"]
    assert entry["top_logprobs"] == []
    answer = await served.complete(logprobs=0)
    assert answer.json()["choices"][0]["logprobs"]["top_logprobs"] == [{" Paris": -0.5}]


async def test_text_offsets_run_on_over_the_chunks_of_a_choice(serve):
    served = await serve()
    body = {"n": 2, "seed": 7, "max_tokens": 6, "logprobs": 1}
    whole = (await served.complete(**body)).json()["choices"]
    events = (await served.complete(**body, stream=True)).events
    for index in range(2):
        chunks = [e["choices"][0] for e in events if e["choices"][0]["index"] == index]
        for field, values in whole[index]["logprobs"].items():
            assert [value for chunk in chunks for value in chunk["logprobs"][field]] == values


# Token ids and echo.


async def test_token_ids_are_returned_when_they_are_asked_for(serve, say, token):
    served = await serve(lambda request: say("hi", EOS, finish="stop"))
    whole = (await served.ask(return_token_ids=True)).json()
    prompt = served.engine.adds[0].prompt_token_ids
    ids = [token("hi"), token(EOS)]
    assert whole["prompt_token_ids"] == prompt
    assert whole["choices"][0]["token_ids"] == ids
    events = (await served.ask(return_token_ids=True, stream=True, n=2)).events
    assert [event["prompt_token_ids"] for event in events[:2]] == [prompt, prompt]
    for index in range(2):
        found = [e["choices"][0] for e in events[2:] if e["choices"][0]["index"] == index]
        assert [token_id for choice in found for token_id in choice["token_ids"]] == ids
    (choice,) = (await served.complete(prompt=[6004], return_token_ids=True)).json()["choices"]
    assert (choice["prompt_token_ids"], choice["token_ids"]) == ([6004], ids)


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


@pytest.mark.parametrize("prompt", ["Hello", [6004]], ids=["text", "token-ids"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_a_completion_echoes_its_prompt_before_every_choice(
    serve, say, texts_of, prompt, stream
):
    served = await serve(lambda request: say("hi", "yo"))
    answer = await served.complete(prompt=prompt, echo=True, n=2, stream=stream)
    events = answer.events if stream else [answer.json()]
    assert texts_of(events) == {0: "Hellohiyo", 1: "Hellohiyo"}
    if stream:
        seen = set()
        for event in events:
            choice = event["choices"][0]
            expected = None if choice["index"] in seen else [6004]
            assert choice["prompt_token_ids"] == expected
            seen.add(choice["index"])


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_echo_without_new_tokens_gives_the_prompts_alone(serve, say, texts_of, stream):
    served = await serve(lambda request: say("hi"))
    usage = {"stream_options": {"include_usage": True}} if stream else {}
    answer = await served.complete(
        prompt=["Hello", "yo"], echo=True, max_tokens=0, n=2, stream=stream, **usage
    )
    events = answer.events if stream else [answer.json()]
    assert texts_of(events) == {0: "Hello", 1: "Hello", 2: "yo", 3: "yo"}
    finishes = {c["index"]: c["finish_reason"] for e in events for c in e["choices"]}
    assert finishes == dict.fromkeys(range(4), "length")
    # The engine has to generate one; it is counted and not shown.
    assert events[-1]["usage"]["completion_tokens"] == 4
    assert {add.sampling_params.max_tokens for add in served.engine.adds} == {1}


async def test_returned_token_ids_stand_for_an_echoed_prompt(serve, say):
    served = await serve(lambda request: say("hi"))
    (choice,) = (await served.complete(echo=True, return_token_ids=True)).json()["choices"]
    assert (choice["text"], choice["prompt_token_ids"]) == ("hi", [6004])


# Stops, intervals, and what has no text of its own.


async def test_what_may_become_a_stop_string_is_held_back(serve, unhurried, say):
    served = await serve(lambda request: say(" Paris", " is", " the", finish=None), **PAUSED)
    client = await unhurried(served, CHAT, [2, 1], messages=MESSAGES, stop=[" is"])
    _, first, last, done, _ = client.text.split("\n\n")
    assert '"delta":{"content":" Par"}' in first
    assert (
        '"delta":{"content":"is"},"logprobs":null,"finish_reason":"stop","stop_reason":" is"'
    ) in last
    assert done == "data: [DONE]"
    # The engine does not look for stop strings: it has to be told.
    (add,) = served.engine.adds
    assert await served.engine.wait_aborts() == [[add.request_id]]


async def test_a_stop_string_ends_its_sample_alone(serve, say):
    served = await serve(per_child(say(" Paris", " is", " the"), say("hi", "yo", "hi")))
    choices = (await served.complete(n=2, stop=" is")).json()["choices"]
    shown = [(c["text"], c["finish_reason"], c["stop_reason"]) for c in choices]
    assert shown == [(" Paris", "stop", " is"), ("hiyohi", "length", None)]


async def test_text_that_is_held_back_sends_an_empty_chunk(serve, unhurried, say):
    served = await serve(lambda request: say("hi", "yo"), **PAUSED)
    client = await unhurried(served, COMPLETIONS, [1, 1], prompt="Hello", stop=["hi!!!"])
    assert '"text":""' in client.text.split("\n\n")[0]
    assert '"text":"hiyo"' in client.text.split("\n\n")[1]


async def test_a_character_of_two_tokens_comes_whole(serve, say, tokenizer):
    ids = tokenizer.encode("\u00e8", add_special_tokens=False).ids
    assert len(ids) == 2
    served = await serve(lambda request: tokens(*ids))
    answer = await served.ask(stream=True)
    assert '"content":"\u00e8"' in answer.text
    assert "\ufffd" not in answer.text


async def test_a_stop_token_is_reported_by_its_id(serve, unhurried, say):
    served = await serve(lambda request: say("hi", "yo", finish="stop", stop_reason=301), **PAUSED)
    client = await unhurried(served, CHAT, [2, 1], messages=MESSAGES, stop_token_ids=[301])
    assert '"content":""},"logprobs":null,"finish_reason":"stop","stop_reason":301' in client.text
    assert served.engine.adds[0].sampling_params.stop_token_ids == [301]


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS], ids=["chat", "completions"])
async def test_a_stream_interval_gathers_tokens(serve, unhurried, say, path):
    served = await serve(lambda request: say(*"abcdefghijkl"), **PAUSED)
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": "Hello"}
    roles = 1 if path == CHAT else 0
    steps = [roles + 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 1]
    client = await unhurried(served, path, steps, stream_interval=5, **prompt)
    texts = re.findall(r'"(?:text|content)":"([a-z]+)"', client.text)
    assert texts == ["a", "bcdef", "ghijk", "l"]


async def test_the_choices_of_prompts_are_numbered_prompt_by_prompt(serve, say, texts_of):
    def script(request):
        prompt = {6004: "hi", 301: "yo"}[request.prompt_token_ids[0]]
        return say(prompt, "abc"[child_index(request)])

    served = await serve(script)
    body = {"prompt": ["Hello", "yo"], "n": 3, "seed": 7}
    expected = {0: "hia", 1: "hib", 2: "hic", 3: "yoa", 4: "yob", 5: "yoc"}
    whole = (await served.complete(**body)).json()
    assert [choice["index"] for choice in whole["choices"]] == list(range(6))
    assert texts_of([whole]) == expected
    assert texts_of((await served.complete(**body, stream=True)).events) == expected
    seeds = [add.sampling_params.seed for add in served.engine.adds]
    assert seeds == [7, 8, 9] * 4


async def test_samples_that_are_ready_together_are_written_together(serve, unhurried, say):
    served = await serve(lambda request: say("hi", "hi", "hi"), **PAUSED)
    client = await unhurried(served, CHAT, [16, 8, 8], adds=8, messages=MESSAGES, n=8)
    counts = [chunk.count(b"\n\n") for chunk in client.chunks]
    assert counts == [16, 8, 9]


# Errors.


@pytest.mark.parametrize(
    ("fault", "chat", "completion"),
    [
        (
            RequestFault("Generation is paused.", retryable=True),
            '{"error":{"message":"Generation is paused.","type":"InternalServerError",'
            '"param":null,"code":503}}',
            '{"error": {"message": "Generation is paused.", "type": "ServiceUnavailableError", '
            '"param": null, "code": 503}}',
        ),
        (
            RequestFault("a fault in the engine"),
            '{"error":{"message":"a fault in the engine","type":"InternalServerError",'
            '"param":null,"code":500}}',
            '{"error": {"message": "a fault in the engine", "type": "InternalServerError", '
            '"param": null, "code": 500}}',
        ),
        (
            None,
            '{"error":{"message":"Internal server error","type":"InternalServerError",'
            '"param":null,"code":500}}',
            '{"error": {"message": "Internal server error", "type": "InternalServerError", '
            '"param": null, "code": 500}}',
        ),
    ],
    ids=["retryable", "fault", "no-fault-object"],
)
async def test_an_engine_error_in_mid_stream_becomes_the_last_event(
    serve, unhurried, token, fault, chat, completion
):
    def script(request):
        return [MockStep(token_ids=[token("hi")]), MockStep(finish="error", error=fault)]

    served = await serve(script, **PAUSED)
    client = await unhurried(served, CHAT, [2, 2], messages=MESSAGES)
    assert client.text.endswith(f"}}\n\ndata: {chat}\n\ndata: [DONE]\n\n")
    client = await unhurried(served, COMPLETIONS, [1, 2], adds=2, prompt="Hello")
    assert client.text.endswith(f"}}\n\ndata: {completion}\n\ndata: [DONE]\n\n")


async def test_an_error_as_first_output_gives_the_connection_back(serve, token):
    served = await serve(lambda request: [MockStep(error=RequestFault("no"))])
    client = await served.raw(CHAT, messages=MESSAGES, stream=True)
    received = await client.until(b'"code":500}}')
    assert received.startswith(b"HTTP/1.1 500 Internal Server Error\r\n")
    await client.post(CHAT, messages=MESSAGES, n=0)
    await client.until(b'"code":400}}')


# Connections.


async def test_a_client_of_http_1_0_gets_a_body_without_chunks(serve, say):
    served = await serve(lambda request: say("hi", "yo"))
    client = await served.raw()
    await client.post(COMPLETIONS, version="1.0", prompt="Hello", stream=True)
    received = await client.rest()
    head, _, body = received.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert body.startswith(b'data: {"id":"cmpl-')
    assert body.endswith(b"data: [DONE]\n\n")


async def test_a_connection_is_used_again_after_a_stream(serve, say):
    served = await serve(lambda request: say("hi", "yo"))
    client = await served.raw(CHAT, messages=MESSAGES, stream=True, n=2)
    await client.until(b"\r\n0\r\n\r\n")
    for _ in range(2):
        client.received = b""
        await client.post(COMPLETIONS, prompt="Hello", stream=True)
        await client.until(b"\r\n0\r\n\r\n")
        assert client.text.endswith("data: [DONE]\n\n")


async def test_4096_samples_are_streamed(serve, say, texts_of):
    n = 4096
    served = await serve(lambda request: say("hi", "yo"))
    answer = await served.ask(n=n, stream=True, stream_options={"include_usage": True})
    *events, usage = answer.events
    roles = [event["choices"][0]["delta"].get("role") for event in events]
    assert roles[:n] == ["assistant"] * n
    assert [event["choices"][0]["index"] for event in events[:n]] == list(range(n))
    assert texts_of(events) == dict.fromkeys(range(n), "hiyo")
    assert usage["usage"]["completion_tokens"] == 2 * n


SMALL_BUFFERS = 4096

MUCH = {"messages": MESSAGES, "max_tokens": 200, "logprobs": True, "top_logprobs": 20}
"""A request whose answer is several times what server and client buffer, however it is cut."""


async def test_a_slow_reader_gets_everything_later_and_holds_nobody_up(
    serve, texts_of, handler_cancellation
):
    served = await serve(
        sampled(range(20, 120)),
        send_buffer=SMALL_BUFFERS,
        handler_cancellation=handler_cancellation,
        **PAUSED,
    )
    slow = await served.raw(CHAT, SMALL_BUFFERS, **MUCH, stream=True, n=2)
    await served.engine.wait_adds(2)
    asked = asyncio.ensure_future(served.ask(**MUCH, stream=True, n=2))
    await served.engine.wait_adds(4)
    for _ in range(MUCH["max_tokens"]):
        await served.step()
    other = await asked
    # By now all has arrived for the slow one too, and waits as one item per sample.
    assert served.client.in_flight == 0
    assert served.load == 1
    await slow.until(b"\r\n0\r\n\r\n")
    events = parse_chunks(slow)
    assert texts_of(events) == texts_of(other.events)
    assert logprobs_of(events) == logprobs_of(other.events)
    assert [e["choices"][0]["finish_reason"] for e in events[-2:]] == ["length", "length"]
    # Much less than an event for each of the 400 tokens.
    assert len(events) < MUCH["max_tokens"] < len(other.events)


def parse_chunks(client):
    *events, done, end = client.text.split("\n\n")
    assert (done, end) == ("data: [DONE]", "")
    return [json.loads(event.removeprefix("data: ")) for event in events]


def logprobs_of(events):
    """Put the logprobs of every choice together."""
    found = {}
    for choice in (choice for event in events for choice in event["choices"]):
        if choice["logprobs"] is not None:
            found.setdefault(choice["index"], []).extend(choice["logprobs"]["content"])
    return found


async def test_a_slow_reader_that_goes_away_is_noticed(serve, handler_cancellation):
    script = sampled(range(20, 120))

    def endless(request):
        steps = script(request)
        return steps if "bystander" in request.request_id else itertools.islice(steps, 199)

    served = await serve(
        endless, send_buffer=SMALL_BUFFERS, handler_cancellation=handler_cancellation, **PAUSED
    )
    slow = await served.raw(CHAT, SMALL_BUFFERS, **MUCH, stream=True, n=2)
    adds = await served.engine.wait_adds(2)
    await in_steps(served, 3, served.ask(**MUCH, request_id="bystander"))
    assert served.client.in_flight == 2
    slow.close()
    assert await served.engine.wait_aborts() == [[add.request_id for add in adds]]
