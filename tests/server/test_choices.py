"""What choices carry beside their text, and where their text ends."""

import re

import numpy as np
import pytest

from umbel_engine import Logprobs
from umbel_engine.mock import MockStep, child_index, per_child, tokens

EOS = "<|im_end|>"
CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

MESSAGES = [{"role": "user", "content": "x" * 12}]
"""A conversation of 31 tokens."""

PAUSED = {"engine_options": {"paused": True}}


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
