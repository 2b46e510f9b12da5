"""The same requests to vLLM's own Python server and to umbel: the answers must be the same.

Both run the same engine with the same settings on the same model, and the requests are seeded, so
texts, token ids, log-probabilities, finish reasons and usage are equal, not just alike.  What may
differ is listed in the tables below, with reasons.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

# The first test waits for both servers to load the model.
pytestmark = pytest.mark.timeout(600)

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

OWN_VALUES = {"id", "created", "system_fingerprint"}
"""Every server makes these up for itself; they must be there, in the same place and of one type."""

NEW_IN_0_33 = {"weight_versions"}
"""The engine package is of 0.32; umbel answers as the Python server of 0.33 does."""

NEW_IN_STREAMS_OF_0_33 = {"weight_versions", "kv_transfer_params"}
"""In 0.32, the second one is in answers that do not stream only."""

MESSAGE_OF_0_32 = {
    # 0.33 names the parameter, as umbel does.
    "no-prompts": ("You must pass at least one prompt", None),
}

TOLERANCE = 0.0005
"""How far log-probabilities may be apart: they are compared to three digits."""

AT_ONCE = 8
"""How many requests a server gets at once; which ones meet in a batch must not matter."""

QUESTION = [{"role": "user", "content": "Why is the sky blue?"}]
TALK = [
    {"role": "system", "content": "You answer in one short sentence."},
    {"role": "user", "content": [{"type": "text", "text": "I am Ann."}]},
    {"role": "assistant", "content": "Hello Ann."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "Who"}, {"type": "text", "text": "am I?"}],
    },
]
FULL_STOP, COMMA = 30, 28


class Case(NamedTuple):
    """A request that is answered."""

    name: str
    path: str
    body: dict[str, object]


def chat(name, messages=QUESTION, **fields):
    return Case(name, CHAT, {"messages": messages, "seed": 7, "max_tokens": 12, **fields})


def complete(name, prompt="The capital of France is", **fields):
    return Case(name, COMPLETIONS, {"prompt": prompt, "seed": 11, "max_tokens": 10, **fields})


USAGE = {"include_usage": True}

REPEATED = {"max_pattern_size": 4, "min_pattern_size": 1, "min_count": 3}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {
        "name": "answer",
        "schema": {
            "type": "object",
            "properties": {"answer": {"type": "string", "maxLength": 20}},
            "required": ["answer"],
        },
    },
}

CASES = [
    chat("greedy", temperature=0, max_tokens=24),
    chat("two", n=2, temperature=0.8),
    chat("three-streamed", n=3, temperature=1.2, stream=True, stream_options=USAGE),
    chat("four-narrowed", n=4, top_p=0.9, top_k=40, min_p=0.05, return_token_ids=True),
    chat(
        "four-narrowed-streamed",
        n=4,
        top_p=0.8,
        top_k=-1,
        min_p=0.1,
        return_token_ids=True,
        stream=True,
    ),
    chat(
        "penalties",
        n=2,
        presence_penalty=0.7,
        frequency_penalty=-0.4,
        repetition_penalty=1.3,
        max_tokens=24,
    ),
    chat("stop-strings", n=3, stop=[" the", "cause"], max_tokens=32, return_token_ids=True),
    chat(
        "stop-strings-shown-streamed",
        n=3,
        stop=[" the", "cause"],
        include_stop_str_in_output=True,
        max_tokens=32,
        stream=True,
        stream_options=USAGE,
    ),
    chat("stop-strings-held-back", n=2, stop="never ever said", stream=True, max_tokens=8),
    chat("logprobs", n=2, logprobs=True, top_logprobs=3, max_tokens=6),
    chat("logprobs-streamed", n=2, logprobs=True, top_logprobs=2, max_tokens=6, stream=True),
    chat("logprobs-of-nothing-else", logprobs=True, max_tokens=5),
    chat("past-the-end", n=3, ignore_eos=True, min_tokens=8, max_completion_tokens=16),
    chat(
        "at-least",
        [{"role": "user", "content": "Say yes."}],
        n=2,
        min_tokens=10,
        max_tokens=20,
        return_token_ids=True,
    ),
    chat("to-the-end", [{"role": "user", "content": "Say yes."}], n=4, max_tokens=64),
    chat(
        "special-tokens-shown",
        [{"role": "user", "content": "Say yes."}],
        skip_special_tokens=False,
        ignore_eos=True,
        max_tokens=40,
        temperature=0.3,
        return_token_ids=True,
    ),
    chat("logit-bias", n=2, logit_bias={"28": 6, str(FULL_STOP): -100, "198": 101.5}),
    chat("conversation", TALK, n=2, stream=True, stream_options=USAGE, temperature=0.5),
    chat(
        "conversation-continued",
        [*QUESTION, {"role": "assistant", "content": "Because"}],
        n=2,
        continue_final_message=True,
        add_generation_prompt=False,
        echo=True,
    ),
    chat(
        "conversation-continued-streamed",
        [*QUESTION, {"role": "assistant", "content": "Because"}],
        n=2,
        continue_final_message=True,
        add_generation_prompt=False,
        echo=True,
        stream=True,
    ),
    chat(
        "running-usage",
        n=2,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
    ),
    chat("negative-seed", n=2, seed=-9),
    chat("read-leniently", n="2", temperature="0.7", max_tokens=8.0, stream="false"),
    chat(
        "characters-of-several-tokens",
        [{"role": "user", "content": "Repeat: \U0001f389\U0001f98a 日本語 naïve"}],
        n=2,
        temperature=1.5,
        max_tokens=32,
        stream=True,
        return_token_ids=True,
    ),
    complete("greedy", temperature=0, logprobs=2),
    complete("four", n=4, logprobs=0),
    complete("two-streamed", n=2, logprobs=1, stream=True, stream_options=USAGE),
    complete("prompts", ["Once upon a time", "1, 2, 3,"], n=2, return_token_ids=True),
    complete(
        "prompts-streamed",
        ["Once upon a time", "1, 2, 3,"],
        n=2,
        stream=True,
        stream_options=USAGE,
        return_token_ids=True,
    ),
    complete("token-ids", [504, 3575, 282, 4649, 314], n=3, return_token_ids=True),
    complete("lists-of-token-ids", [[504, 3575], [282, 4649, 314]], n=2, echo=True),
    complete("echo", n=2, echo=True),
    complete("echo-streamed", n=2, echo=True, stream=True),
    complete("echo-alone", n=2, echo=True, max_tokens=0),
    complete("stop-tokens", n=4, stop_token_ids=[FULL_STOP, COMMA, FULL_STOP], max_tokens=40),
    complete("interval", n=2, stream=True, stream_interval=4, max_tokens=11),
    complete("biases", n=2, logit_bias={str(token_id): -2 for token_id in range(0, 2048, 2)}),
    complete("stop-tokens-later", min_tokens=5, stop_token_ids=list(range(20, 147)), n=2),
    chat("prompt-logprobs", n=2, prompt_logprobs=2, max_tokens=4),
    chat("named-tokens", n=2, logprobs=True, logprob_token_ids=[FULL_STOP, COMMA], max_tokens=5),
    chat("token-names", n=2, logprobs=True, top_logprobs=1, return_tokens_as_token_ids=True),
    chat("bad-words", n=2, bad_words=["blue", "sky", " light"], max_tokens=24),
    chat("cut-on-the-left", n=2, truncate_prompt_tokens=12, return_token_ids=True),
    chat(
        "cut-on-the-right",
        n=2,
        truncate_prompt_tokens=12,
        truncation_side="right",
        return_token_ids=True,
    ),
    chat("repetition", n=2, max_tokens=64, temperature=0.3, repetition_detection=REPEATED),
    chat("schema", n=2, response_format=SCHEMA, max_tokens=40),
    chat("object", n=2, response_format={"type": "json_object"}, max_tokens=24, stream=True),
    complete("choice", n=3, structured_outputs={"choice": [" Paris", " Rome"]}),
    complete("regex", n=2, structured_outputs={"regex": " [A-Z][a-z]{2,5}"}, stream=True),
    complete("grammar", n=2, structured_outputs={"grammar": 'root ::= " " ("yes" | "no")'}),
    complete("allowed", n=3, allowed_token_ids=[FULL_STOP, COMMA, 504], return_token_ids=True),
    complete("prompt-logprobs", ["Once upon a time", "1, 2"], n=2, prompt_logprobs=1),
    complete("echo-with-logprobs", n=2, echo=True, logprobs=2),
    complete("echo-with-logprobs-streamed", n=2, echo=True, logprobs=1, stream=True),
    complete("echo-alone-with-logprobs", n=2, echo=True, logprobs=0, max_tokens=0),
    complete("named-tokens", n=2, logprobs=1, logprob_token_ids=[FULL_STOP, COMMA]),
    complete("token-names", n=2, logprobs=2, return_tokens_as_token_ids=True, stream=True),
    complete("no-special-tokens", n=2, add_special_tokens=False, temperature=0.005),
]


def key_of(case):
    return f"{case.path.split('/')[2]}-{case.name}"


def content_of(case):
    """Give path, body and headers as they go out."""
    if isinstance(case, Refusal):
        return case.path, case.content, case.headers
    return case.path, json.dumps(case.body).encode(), JSON_TYPE


class Refusal(NamedTuple):
    """A request that is refused; `content` goes out as it is."""

    name: str
    path: str
    content: bytes
    headers: dict[str, str]


def refusal(case, headers=None):
    content = json.dumps(case.body).encode()
    return Refusal(case.name, case.path, content, {**JSON_TYPE, **(headers or {})})


JSON_TYPE = {"Content-Type": "application/json"}

REFUSALS = [
    refusal(chat("zero", n=0)),
    refusal(chat("minus-one", n=-1)),
    refusal(chat("word-for-n", n="two")),
    refusal(chat("fraction-for-n", n=1.5)),
    refusal(chat("over-the-limit", n=16385)),
    refusal(chat("huge-n", n=2**63)),
    refusal(complete("zero", n=0)),
    refusal(complete("null-n", n=None)),
    refusal(chat("greedy-two", n=2, temperature=0)),
    refusal(chat("greedy-two-streamed", n=2, temperature=0, stream=True)),
    refusal(complete("greedy-two", n=2, temperature=0.0)),
    refusal(chat("unknown-model", model="nobody")),
    refusal(chat("hot", temperature=2.5)),
    refusal(chat("not-a-temperature", temperature=float("nan"))),
    refusal(chat("endless-temperature", temperature=float("inf"), stream=True)),
    refusal(chat("top-p", top_p=0)),
    refusal(chat("top-k", top_k=-2)),
    refusal(chat("min-p", min_p=1.5)),
    refusal(chat("presence", presence_penalty=2.1)),
    refusal(chat("repetition", repetition_penalty=0)),
    refusal(chat("nothing-to-say", max_tokens=0)),
    refusal(chat("more-than-fits", max_completion_tokens=4000)),
    refusal(chat("least-over-most", min_tokens=13)),
    refusal(chat("empty-stop", stop=[""])),
    refusal(chat("five-stops", stop=["a", "b", "c", "d", "e"])),
    refusal(chat("bias-for-a-word", logit_bias={"word": 1})),
    refusal(chat("bias-for-no-token", logit_bias={"49152": 1})),
    refusal(chat("stop-token", stop_token_ids=[1, 50000])),
    refusal(chat("huge-seed", seed=2**63)),
    refusal(chat("many-logprobs", logprobs=True, top_logprobs=21)),
    refusal(chat("rivals-without-logprobs", top_logprobs=2)),
    refusal(chat("stream-options", stream_options=USAGE)),
    refusal(chat("both-ends", continue_final_message=True, add_generation_prompt=True)),
    refusal(chat("no-messages", [])),
    refusal(chat("null-messages", None)),
    refusal(chat("salt", cache_salt="a/b")),
    refusal(chat("too-long", [{"role": "user", "content": "long " * 3000}])),
    refusal(chat("rank", seed=1), {"X-data-parallel-rank": "5"}),
    refusal(complete("no-prompts", [])),
    refusal(complete("no-prompt", None)),
    refusal(complete("empty-prompt", "")),
    refusal(complete("prompt-of-no-tokens", [[]])),
    refusal(complete("mixed-prompts", ["a", 1])),
    refusal(complete("token", [49152])),
    refusal(complete("negative-token", [-1])),
    refusal(complete("too-long", "long " * 3000)),
    refusal(complete("too-many-tokens", [5] * 2100)),
    refusal(complete("no-room", [5] * 2048)),
    refusal(complete("many-characters", "a" * 400000)),
    refusal(complete("many-logprobs", logprobs=30)),
    refusal(complete("negative-logprobs", logprobs=-2)),
    refusal(complete("interval", stream=True, stream_interval=0)),
    refusal(complete("half-a-character", "\ud800")),
    refusal(complete("salt-of-half-a-character", cache_salt="\ud800")),
    Refusal("cut", CHAT, b'{"messages": [', JSON_TYPE),
    Refusal("nothing", CHAT, b"", JSON_TYPE),
    Refusal("list", COMPLETIONS, b"[1]", JSON_TYPE),
    Refusal("more", COMPLETIONS, b'{"prompt": "a"} b', JSON_TYPE),
    Refusal("text", CHAT, b'{"messages": []}', {"Content-Type": "text/plain"}),
]

REFUSED_WITHIN_A_STREAM = [
    # vLLM finds these after it has promised a stream: status 200, and the error is an event.  umbel
    # sends nothing before the first token, so they get the status that they have without a stream.
    refusal(chat("many-logprobs", logprobs=True, top_logprobs=21, stream=True)),
    refusal(chat("bias-for-no-token", logit_bias={"49152": 1}, stream=True)),
    refusal(complete("stop-token", stop_token_ids=[50000], stream=True)),
    refusal(complete("token", [49152], stream=True)),
    refusal(complete("prompt-of-no-tokens", [[]], stream=True)),
    refusal(complete("rank", stream=True), {"X-data-parallel-rank": "5"}),
]


@pytest.fixture(scope="module")
def asked(request, servers):
    """Send the requests of all tests that run to both servers; gives the answers by test."""
    with (
        ThreadPoolExecutor(AT_ONCE) as to_vllm,
        ThreadPoolExecutor(AT_ONCE) as to_umbel,
    ):
        pending = {}
        for item in request.session.items:
            if item.parent is request.node:
                arguments = content_of(item.callspec.params["case"])
                pending[item.name] = (
                    to_vllm.submit(servers.vllm, *arguments),
                    to_umbel.submit(servers.umbel, *arguments),
                )
        yield pending
        for executor in (to_vllm, to_umbel):
            executor.shutdown(cancel_futures=True)


@pytest.fixture
def answers(asked, request):
    """What vLLM's server and umbel answered to the request of this test."""
    return [answer.result() for answer in asked[request.node.name]]


@pytest.mark.parametrize("case", CASES, ids=key_of)
def test_both_servers_give_the_same_answer(case, answers):
    assert [answer.status for answer in answers] == [200, 200], answers
    expected, given = (answer.body for answer in answers)
    if case.body.get("stream") is True:
        assert_equal(case, kinds_of_events(expected), kinds_of_events(given))
        expected, given = assembled(expected), assembled(given)
    assert_equal(case, comparable(expected), comparable(given))


@pytest.mark.parametrize("case", REFUSALS, ids=key_of)
def test_both_servers_refuse_a_bad_request_alike(case, answers):
    expected, given = answers
    assert expected.status == (404 if case.name == "unknown-model" else 400), expected.body
    assert_equal(case, expected.status, given.status)
    assert_equal_errors(case, expected.body["error"], given.body["error"])


@pytest.mark.parametrize("case", REFUSED_WITHIN_A_STREAM, ids=key_of)
def test_what_vllm_refuses_within_a_stream_gets_its_status(case, answers):
    expected, given = answers
    assert [expected.status, given.status] == [200, 400]
    [event] = expected.body
    assert_equal_errors(case, event["error"], given.body["error"])


def assert_equal_errors(case, expected, given):
    assert list(expected) == list(given) == ["message", "type", "param", "code"]
    if case.name in MESSAGE_OF_0_32:
        message, param = MESSAGE_OF_0_32[case.name]
        assert (expected["message"], expected["param"]) == (message, param)
        expected = {**expected, "message": given["message"], "param": given["param"]}
    if expected["type"] == "Bad Request":
        # These are pydantic's words or those of a JSON parser, which umbel does not repeat.
        expected = {**expected, "message": given["message"]}
    assert_equal(case, expected, given)


def assert_equal(case, expected, given):
    """Fail with the request and with every field in which the answers differ."""
    found = list(differences(expected, given, "answer"))
    if found:
        path, content, headers = content_of(case)
        pytest.fail("\n".join([f"{path} {headers} {content[:2000]}", *found]), pytrace=False)


def differences(expected, given, at):
    """Describe where two JSON values differ; objects must have their keys in the same order."""
    if isinstance(expected, dict) and isinstance(given, dict):
        if list(expected) != list(given):
            yield f"  {at}: vLLM has the keys {list(expected)}, umbel {list(given)}"
        for key in expected.keys() & given.keys():
            yield from differences(expected[key], given[key], f"{at}.{key}")
    elif isinstance(expected, list) and isinstance(given, list) and len(expected) == len(given):
        for index, pair in enumerate(zip(expected, given, strict=True)):
            yield from differences(*pair, f"{at}[{index}]")
    elif not is_same(expected, given):
        yield f"  {at}:\n    vLLM  {expected!r}\n    umbel {given!r}"


def is_same(expected, given):
    if isinstance(expected, float) and isinstance(given, float):
        return abs(expected - given) <= TOLERANCE
    return type(expected) is type(given) and expected == given


def comparable(value, key=None):
    """Hide what a server makes up, and leave out what only one of them has."""
    if isinstance(value, dict):
        return {
            name: comparable(item, name) for name, item in value.items() if name not in NEW_IN_0_33
        }
    if isinstance(value, list):
        return [comparable(item) for item in value]
    return type(value).__name__ if key in OWN_VALUES else value


def kinds_of_events(events):
    """Give the kinds of events that a stream has, each as the keys of its objects in order.

    How many there are of a kind, and in which order, depends on what comes together.
    """
    kinds = set()
    for event in events:
        objects = [event, *event["choices"], event.get("usage") or {}]
        objects += [choice["delta"] for choice in event["choices"] if "delta" in choice]
        last = any(choice["finish_reason"] for choice in event["choices"])
        keys = (
            ",".join(key for key in item if key not in NEW_IN_STREAMS_OF_0_33) for item in objects
        )
        kinds.add(" | ".join([*keys, "last" if last else "not last"]))
    return sorted(kinds)


def assembled(events):
    """Put a stream together: what each choice said, and what was said once."""
    whole = {"choices": {}}
    for event in events:
        event = dict(event)
        choices = event.pop("choices")
        usage = event.pop("usage", None)
        event.pop("kv_transfer_params", None)
        whole |= {key: item for key, item in event.items() if item is not None}
        if not choices:
            whole["usage"] = usage
        for choice in choices:
            add(whole["choices"].setdefault(str(choice["index"]), {"text": ""}), choice, usage)
    whole["choices"] = dict(sorted(whole["choices"].items()))
    return dict(sorted(whole.items()))


def add(total, choice, usage):
    delta = choice.get("delta", {})
    total["text"] += choice.get("text", "") + (delta.get("content") or "")
    if usage is not None:
        total["usage"] = usage
    if "role" in delta:
        total["role"] = delta["role"]
    for key in ("finish_reason", "stop_reason", "prompt_token_ids"):
        if choice.get(key) is not None:
            total[key] = choice[key]
    if choice.get("token_ids") is not None:
        total.setdefault("token_ids", []).extend(choice["token_ids"])
    for key, items in (choice.get("logprobs") or {}).items():
        total.setdefault("logprobs", {}).setdefault(key, []).extend(items)
