"""Bad input gets vLLM's answer before any byte of a stream, and nothing of it reaches the engine."""

import json

import pytest

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"

VALID = {
    CHAT: {"model": "smollm2", "messages": [{"role": "user", "content": "Hello"}]},
    COMPLETIONS: {"model": "smollm2", "prompt": "Hello"},
}

BOTH = (CHAT, COMPLETIONS)
MAX_MODEL_LEN = 64
LIMIT = "This model's maximum context length is 64 tokens. However, your prompt contains"
TOO_LONG = "input tokens, which exceeds this limit even without any output tokens. Please reduce"

SUFFIX = "suffix is only supported for models with FIM completion rendering"

REFUSED = "BadRequestError"
UNREADABLE = "Bad Request"


def too_many(n):
    return (
        f"n must be at most 16384, got {n}. To increase this limit, set the "
        "VLLM_MAX_N_SEQUENCES environment variable."
    )


def refused(fields, message, param=None, paths=BOTH):
    """Describe fields that vLLM's own code refuses, in these words."""
    return [(path, fields, REFUSED, param, message) for path in paths]


def unreadable(fields, param, paths=BOTH):
    """Describe fields that cannot be read as the types they should have; pydantic words that."""
    return [(path, fields, UNREADABLE, param, "1 validation error:\n") for path in paths]


TABLE = [
    # n
    *refused({"n": 0}, "n must be at least 1, got 0."),
    *refused({"n": -1}, "n must be at least 1, got -1."),
    *refused({"n": 16385}, too_many(16385)),
    *refused({"n": 2**63}, too_many(2**63)),
    *refused({"n": 10**30}, too_many(10**30)),
    *refused({"n": 2, "temperature": 0}, "n must be 1 when using greedy sampling, got 2."),
    *unreadable({"n": "two"}, "body.n"),
    *unreadable({"n": 1.5}, "body.n"),
    *unreadable({"n": float("inf")}, "body.n"),
    *unreadable({"n": [2]}, "body.n"),
    *unreadable({"n": None}, "body.n", [COMPLETIONS]),
    # The prompt.
    *refused(
        {"prompt": ""},
        "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
        "prompt",
        [COMPLETIONS],
    ),
    *refused(
        {"prompt": None},
        "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)",
        "prompt",
        [COMPLETIONS],
    ),
    *refused(
        {"prompt": []},
        "You must pass at least one prompt (parameter=prompt)",
        "prompt",
        [COMPLETIONS],
    ),
    *refused({"prompt": [""]}, "The decoder prompt cannot be empty", None, [COMPLETIONS]),
    *refused({"prompt": [[]]}, "The decoder prompt cannot be empty", None, [COMPLETIONS]),
    *refused({"prompt": ["Hello", ""]}, "The decoder prompt cannot be empty", None, [COMPLETIONS]),
    *refused(
        {"prompt": ["Hello"] * 1025},
        "prompt list length 1025 exceeds the maximum allowed count of 1024. To increase this "
        "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable. (parameter=prompt)",
        "prompt",
        [COMPLETIONS],
    ),
    *refused({"prompt": [49152]}, "Token id 49152 is out of vocabulary", None, [COMPLETIONS]),
    *refused({"prompt": [2**70]}, f"Token id {2**70} is out of vocabulary", None, [COMPLETIONS]),
    *refused(
        {"prompt": [[1, 2], [3, 50000]]},
        "Token id 50000 is out of vocabulary",
        None,
        [COMPLETIONS],
    ),
    *refused(
        {"prompt": "x" * 100},
        f"{LIMIT} at least 65 {TOO_LONG} the length of the input prompt. "
        "(parameter=input_tokens, value=65)",
        "input_tokens",
        [COMPLETIONS],
    ),
    *refused(
        {"prompt": [1] * 100},
        f"{LIMIT} 100 {TOO_LONG} the length of the input prompt. "
        "(parameter=input_tokens, value=100)",
        "input_tokens",
        [COMPLETIONS],
    ),
    *refused(
        {"messages": [{"role": "user", "content": "x" * 100}]},
        f"{LIMIT} at least 65 {TOO_LONG} the length of the input prompt. "
        "(parameter=input_tokens, value=65)",
        "input_tokens",
        [CHAT],
    ),
    *refused(
        {"prompt": "x" * 10000},
        f"{LIMIT} 10000 characters (more than 896 characters, which is the upper bound for 64 "
        "input tokens). Please reduce the length of the input prompt. "
        "(parameter=input_text, value=10000)",
        "input_text",
        [COMPLETIONS],
    ),
    *refused(
        {"prompt": [1] * 64},
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
        "max_tokens",
        [COMPLETIONS],
    ),
    *refused(
        {"messages": []},
        "Cannot apply chat template to an empty conversation. Provide at least one message.",
        None,
        [CHAT],
    ),
    *refused({"messages": None}, "'NoneType' object is not iterable", None, [CHAT]),
    *unreadable({"messages": "Hello"}, "body.messages", [CHAT]),
    *refused(
        {
            "messages": [
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}],
                }
            ]
        },
        "smollm2 is not a multimodal model",
        None,
        [CHAT],
    ),
    # Sampling parameters.
    *refused(
        {"temperature": float("nan")},
        "temperature must be a finite number, got nan. (parameter=temperature, value=nan)",
        "temperature",
    ),
    *refused(
        {"temperature": -1},
        "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)",
        "temperature",
    ),
    *refused(
        {"temperature": 3},
        "temperature must be in [0, 2], got 3.0. (parameter=temperature, value=3.0)",
        "temperature",
    ),
    *unreadable({"temperature": "hot"}, "body.temperature"),
    *refused(
        {"top_p": 0}, "top_p must be in (0, 1], got 0.0. (parameter=top_p, value=0.0)", "top_p"
    ),
    *refused(
        {"top_p": float("nan")},
        "top_p must be in (0, 1], got nan. (parameter=top_p, value=nan)",
        "top_p",
    ),
    *refused({"top_k": -2}, "top_k must be 0 (disable), or at least 1, got -2."),
    *refused({"min_p": 2}, "min_p must be in [0, 1], got 2.0."),
    *refused({"presence_penalty": 3}, "presence_penalty must be in [-2, 2], got 3.0."),
    *refused({"frequency_penalty": -3}, "frequency_penalty must be in [-2, 2], got -3.0."),
    *refused({"repetition_penalty": 0}, "repetition_penalty must be greater than zero, got 0.0."),
    *refused(
        {"repetition_penalty": float("inf")},
        "repetition_penalty must be a finite number, got inf.",
    ),
    *unreadable({"seed": 2**63}, "body.seed"),
    *unreadable({"seed": 0.5}, "body.seed"),
    # Lengths.
    *refused(
        {"max_tokens": 0},
        "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)",
        "max_tokens",
    ),
    *refused(
        {"max_tokens": 65},
        "max_tokens=65 cannot be greater than max_model_len=64. Please request fewer output "
        "tokens. (parameter=max_tokens, value=65)",
        "max_tokens",
    ),
    *refused(
        {"max_completion_tokens": 65},
        "max_completion_tokens=65 cannot be greater than max_model_len=64. Please request fewer "
        "output tokens. (parameter=max_completion_tokens, value=65)",
        "max_completion_tokens",
        [CHAT],
    ),
    *refused({"min_tokens": -1}, "min_tokens must be greater than or equal to 0, got -1."),
    *refused(
        {"max_tokens": 3, "min_tokens": 4},
        "min_tokens must be less than or equal to max_tokens=3, got 4.",
    ),
    *unreadable({"max_tokens": "many"}, "body.max_tokens"),
    *unreadable({"stream_interval": 0}, "body.stream_interval"),
    # Stops and biases.
    *refused({"stop": ["a", ""]}, "stop cannot contain an empty string."),
    *refused(
        {"stop_token_ids": [1, 49152]},
        "token_id(s) [49152] in stop_token_ids contain out-of-vocab token ids. Vocabulary size: "
        "49152 (parameter=stop_token_ids, value=[49152])",
        "stop_token_ids",
    ),
    *refused(
        {"logit_bias": {"a": 1, "5": 1}},
        "logit_bias contains key(s) that cannot be converted to integer token IDs: ['a'] "
        "(parameter=logit_bias, value=['a'])",
        "logit_bias",
    ),
    *refused(
        {"logit_bias": {"49152": 1}},
        "token_id(s) [49152] in logit_bias contain out-of-vocab token ids. Vocabulary size: 49152 "
        "(parameter=logit_bias, value=[49152])",
        "logit_bias",
    ),
    *unreadable({"logit_bias": [1]}, "body.logit_bias"),
    # Logprobs.
    *refused(
        {"logprobs": -2},
        "`logprobs` must be a positive value or -1. (parameter=logprobs, value=-2)",
        "logprobs",
        [COMPLETIONS],
    ),
    *refused(
        {"logprobs": 21},
        "Requested sample logprobs of 21, which is greater than max allowed: 20 "
        "(parameter=logprobs, value=21)",
        "logprobs",
        [COMPLETIONS],
    ),
    *refused(
        {"logprobs": True, "top_logprobs": 21},
        "Requested sample logprobs of 21, which is greater than max allowed: 20 "
        "(parameter=logprobs, value=21)",
        "logprobs",
        [CHAT],
    ),
    *refused(
        {"logprobs": True, "top_logprobs": -1},
        "Requested sample logprobs of 49152, which is greater than max allowed: 20 "
        "(parameter=logprobs, value=49152)",
        "logprobs",
        [CHAT],
    ),
    *refused(
        {"top_logprobs": 2},
        "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)",
        "top_logprobs",
        [CHAT],
    ),
    # Fields that are known and not served.
    *refused(
        {"use_beam_search": True}, "`use_beam_search` is not supported yet.", "use_beam_search"
    ),
    *refused(
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        None,
        [CHAT],
    ),
    *refused({"suffix": "x"}, SUFFIX, "suffix", [COMPLETIONS]),
    # Several at once: the order in which vLLM looks.
    *refused({"n": 0, "temperature": 5}, "n must be at least 1, got 0."),
    *refused({"n": 16385, "max_tokens": 0}, too_many(16385)),
    *refused(
        {"n": 2, "temperature": 0, "top_p": 2},
        "top_p must be in (0, 1], got 2.0. (parameter=top_p, value=2.0)",
        "top_p",
    ),
    *refused(
        {"temperature": -1, "presence_penalty": 9}, "presence_penalty must be in [-2, 2], got 9.0."
    ),
    *unreadable({"n": "two", "model": "gpt"}, "body.n"),
]


def name_of(case):
    path, fields, *_ = case
    kind = "chat" if path == CHAT else "completions"
    shown = ",".join(f"{name}={json.dumps(value)[:24]}" for name, value in fields.items())
    return f"{kind}-{shown}"


@pytest.fixture(params=[False, True], ids=["whole", "stream"])
def stream(request):
    return request.param


async def check_plain_error(served, answer, status, kind, param):
    assert answer.status == status
    assert answer.headers["Content-Type"].split(";")[0] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.error
    assert (error["type"], error["param"], error["code"]) == (kind, param, status)
    # A request that is served comes after all that could have reached the engine.
    assert (await served.complete(prompt="Hello", max_tokens=1)).status == 200
    assert len(served.engine.adds) == 1
    return error["message"]


@pytest.mark.parametrize("case", TABLE, ids=name_of)
async def test_bad_fields(serve, stream, case):
    path, fields, kind, param, message = case
    served = await serve(max_model_len=MAX_MODEL_LEN)
    answer = await served.post(path, **{**VALID[path], **fields, "stream": stream})
    given = await check_plain_error(served, answer, 400, kind, param)
    if kind == UNREADABLE:
        assert given.startswith(message)
    else:
        assert given == message


@pytest.mark.parametrize("path", BOTH)
async def test_more_stops_than_allowed(serve, stream, path):
    served = await serve()
    answer = await served.post(path, **VALID[path], stop=list("abcde"), stream=stream)
    message = await check_plain_error(served, answer, 400, UNREADABLE, "body.stop")
    assert message.startswith("2 validation errors:\n")
    assert "'max_length': 4, 'actual_length': 5" in message


@pytest.mark.parametrize("path", BOTH)
async def test_an_unknown_model(serve, stream, path):
    served = await serve(served_model_names=("smollm2", "small"))
    answer = await served.post(path, **{**VALID[path], "model": "gpt", "n": 0, "stream": stream})
    message = await check_plain_error(served, answer, 404, "NotFoundError", "model")
    assert message == "The model `gpt` does not exist. Valid aliases: smollm2, small."


@pytest.mark.parametrize("path", BOTH)
async def test_stream_options_without_a_stream(serve, path):
    served = await serve()
    body = {**VALID[path], "n": 0, "stream_options": {"include_usage": True}}
    answer = await served.post(path, **body)
    message = await check_plain_error(served, answer, 400, REFUSED, "stream_options")
    assert message == (
        "Stream options can only be defined when `stream=True`. (parameter=stream_options)"
    )


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b"{", "body.1"),
        (b'{"n": 2', "body.7"),
        (b"{'n': 2}", "body.1"),
        (b'{"n": 2} x', "body.9"),
        (b"hello", "body.0"),
        (b"", "body"),
        (b"null", "body"),
        (b"[]", "body"),
    ],
)
async def test_a_body_that_is_no_json_object(serve, path, body, param):
    served = await serve()
    headers = {"Content-Type": "application/json"}
    answer = await served.get(path, "POST", data=body, headers=headers)
    message = await check_plain_error(served, answer, 400, UNREADABLE, param)
    assert message.startswith("1 validation error:\n")


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("body", [b"\xff\xfe\xfa", b'{"a": "\xff"}', b"[" * 100_000])
async def test_a_body_that_cannot_be_decoded(serve, path, body):
    served = await serve()
    headers = {"Content-Type": "application/json"}
    answer = await served.get(path, "POST", data=body, headers=headers)
    await check_plain_error(served, answer, 400, UNREADABLE, None)


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("content_type", ["text/plain", "application/x-www-form-urlencoded", ""])
async def test_a_wrong_content_type_is_judged_before_the_body(serve, path, content_type):
    served = await serve()
    headers = {"Content-Type": content_type}
    answer = await served.get(path, "POST", data=b"{", headers=headers)
    message = await check_plain_error(served, answer, 400, UNREADABLE, None)
    assert message == (
        "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
    )


async def test_a_prompt_with_half_a_character(serve, stream):
    served = await serve()
    body = {"model": "smollm2", "prompt": "\ud800", "stream": stream}
    answer = await served.post(COMPLETIONS, **body)
    message = await check_plain_error(served, answer, 400, REFUSED, None)
    assert message == (
        "TextEncodeInput must be Union[TextInputSequence, Tuple[InputSequence, InputSequence]]"
    )


@pytest.mark.parametrize("path", BOTH)
async def test_a_rank_that_no_engine_has(serve, stream, path):
    served = await serve()
    headers = {"X-data-parallel-rank": "5"}
    answer = await served.post(path, headers, **VALID[path], stream=stream)
    message = await check_plain_error(served, answer, 400, REFUSED, None)
    assert message == "data_parallel_rank 5 is out of range [0, 1)."


@pytest.mark.parametrize("path", BOTH)
async def test_greedy_by_default_is_greedy(serve, stream, path):
    served = await serve(override={"temperature": 0})
    answer = await served.post(path, **VALID[path], n=2, stream=stream)
    message = await check_plain_error(served, answer, 400, REFUSED, None)
    assert message == "n must be 1 when using greedy sampling, got 2."


@pytest.mark.parametrize("path", BOTH)
async def test_paths_in_a_message_are_not_shown(serve, path):
    served = await serve()
    answer = await served.post(path, **{**VALID[path], "model": "/home/user/model"})
    message = await check_plain_error(served, answer, 404, "NotFoundError", "model")
    assert message == "The model `<path>` does not exist. Valid aliases: smollm2."


@pytest.mark.parametrize(
    "fields",
    [
        {"n": "2"},
        {"n": 2.0},
        {"seed": -(2**63)},
        {"temperature": "0.5"},
        {"top_k": 2**40},
        {"logit_bias": {"5": 1e300}},
        {"ignore_eos": "yes"},
        {"user": {"anything": 1}, "unknown": None},
        {"priority": -(2**63)},
    ],
    ids=str,
)
async def test_lax_values_are_taken(serve, fields, stream):
    served = await serve()
    if "user" in fields:
        fields = {**fields, "user": "me"}
    answer = await served.complete(**fields, stream=stream, max_tokens=1)
    assert answer.status == 200
