"""The body of a plain completion."""

import json

import pytest

from umbel_server.errors import ApiError
from umbel_server.requests import CompletionRequest, decode_body, read_completion_request


def read(**fields: object) -> CompletionRequest:
    body = json.dumps({"prompt": "hi", **fields}).encode()
    return read_completion_request(decode_body(body, "application/json"))


def refusal(**fields: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def test_the_defaults_are_those_of_vllm() -> None:
    request = read()
    assert (request.prompt, request.n, request.max_tokens, request.logprobs) == ("hi", 1, 16, None)
    assert (request.echo, request.suffix, request.add_special_tokens) == (False, None, True)
    assert (request.stop, request.stop_token_ids, request.bad_words) == ([], [], [])


def test_null_max_tokens_are_sixteen() -> None:
    assert read(max_tokens=None).max_tokens == 16


def test_null_n_is_refused_unlike_in_chat() -> None:
    error = refusal(n=None)
    assert (error.type, error.param) == ("Bad Request", "body.n")
    assert "'int_type'" in error.message


@pytest.mark.parametrize(
    "prompt", ["a", ["a", "b"], [1, 2, 3], [[1], [2, 3]], [[]], [""], [], [1] * 2000, [2**70]]
)
def test_a_prompt_is_text_or_token_ids_or_a_list_of_either(prompt: object) -> None:
    assert read(prompt=prompt).prompt == prompt


@pytest.mark.parametrize(
    ("prompt", "param", "count"),
    [
        (["a", 1], "body.prompt.0", 5),
        ([1, "a"], "body.prompt.1", 5),
        ([[1], ["a"]], "body.prompt.0", 6),
        ([-1], "body.prompt.0", 4),
        ([[-1]], "body.prompt.0", 4),
        ([1.5], "body.prompt.0", 4),
        ([None], "body.prompt.0", 4),
        ([True], "body.prompt.0", 4),
        (5, "body.prompt", 4),
        ({}, "body.prompt", 4),
    ],
)
def test_other_prompts_are_refused(prompt: object, param: str, count: int) -> None:
    error = refusal(prompt=prompt)
    assert (error.type, error.param) == ("Bad Request", param)
    assert error.message.startswith(f"{count} validation errors:\n")


@pytest.mark.parametrize(
    "fields", [{"prompt": ""}, {"prompt": None}, {"prompt": "", "prompt_embeds": []}]
)
def test_an_empty_prompt_is_refused(fields: dict[str, object]) -> None:
    error = refusal(**fields)
    assert (error.type, error.param) == ("BadRequestError", "prompt")
    assert error.message == (
        "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)"
    )


def test_a_missing_prompt_is_refused_like_an_empty_one() -> None:
    with pytest.raises(ApiError, match="Either prompt or prompt_embeds"):
        read_completion_request({})


@pytest.mark.parametrize("name", ["prompt", "prompt_embeds"])
def test_too_many_prompts_are_refused(name: str) -> None:
    error = refusal(**{name: ["a"] * 1025, "n": "x"})
    assert (error.type, error.param) == ("BadRequestError", name)
    assert error.message == (
        f"{name} list length 1025 exceeds the maximum allowed count of 1024. To increase this "
        "limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable. "
        f"(parameter={name})"
    )


def test_the_number_of_prompts_is_the_servers_choice() -> None:
    read_completion_request({"prompt": ["a", "b"]}, max_prompts=2)
    with pytest.raises(ApiError, match="list length 3 exceeds"):
        read_completion_request({"prompt": ["a", "b", "c"]}, max_prompts=2)


CHECKS: list[tuple[dict[str, object], str, str]] = [
    (
        {"stream_options": {"include_usage": True}},
        "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
        "stream_options",
    ),
    (
        {"logprob_token_ids": [1], "use_beam_search": True},
        "`logprob_token_ids` is not supported with beam search. (parameter=logprob_token_ids)",
        "logprob_token_ids",
    ),
    (
        {"echo": True, "logprobs": 1, "use_beam_search": True},
        "`echo` with `logprobs` is not supported with beam search because beam search does not "
        "compute prompt logprobs. (parameter=echo)",
        "echo",
    ),
    (
        {"logprob_token_ids": [1], "echo": True, "max_tokens": 0, "logprobs": 1},
        "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no "
        "output tokens are generated. (parameter=logprob_token_ids)",
        "logprob_token_ids",
    ),
    (
        {"logprob_token_ids": [1]},
        "when using `logprob_token_ids`, `logprobs` must be set. (parameter=logprob_token_ids)",
        "logprob_token_ids",
    ),
    (
        {"logprobs": "x"},
        "`logprobs` must be an integer. (parameter=logprobs, value=x)",
        "logprobs",
    ),
    (
        {"logprobs": -2},
        "`logprobs` must be a positive value or -1. (parameter=logprobs, value=-2)",
        "logprobs",
    ),
    (
        {"prompt_logprobs": 1, "stream": True},
        "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
        "prompt_logprobs",
    ),
    (
        {"structured_outputs": {"json": "{}", "choice": ["a"]}},
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice'). (parameter=structured_outputs)",
        "structured_outputs",
    ),
    (
        {"response_format": {"type": "json_schema"}},
        "When response_format type is 'json_schema', the 'json_schema' field must be provided. "
        "(parameter=response_format)",
        "response_format",
    ),
    (
        {"cache_salt": 5},
        "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
        "cache_salt",
    ),
    (
        {"thinking_token_budget": "5"},
        "`thinking_token_budget` must be a non-negative integer or -1 for unlimited. "
        "(parameter=thinking_token_budget, value=5)",
        "thinking_token_budget",
    ),
]


@pytest.mark.parametrize(("fields", "message", "param"), CHECKS)
def test_checks_of_the_raw_body_come_first_and_say_what_vllm_says(
    fields: dict[str, object], message: str, param: str
) -> None:
    error = refusal(**{"n": "x", "temperature": [], **fields})
    assert (error.type, error.message, error.param) == ("BadRequestError", message, param)


def test_checks_come_in_the_order_of_vllms_validators() -> None:
    broken: list[tuple[str, dict[str, object]]] = [
        ("prompt_embeds list length", {"prompt_embeds": ["a"] * 1025}),
        ("Either prompt", {"prompt": "", "prompt_embeds": None}),
        ("Stream options", {"prompt": "x", "stream_options": {"include_usage": True}}),
        ("`logprobs` must be an integer", {"logprobs": "x"}),
        ("You can only use one kind", {"structured_outputs": {"json": "{}", "regex": "a"}}),
        ("When response_format", {"response_format": {"type": "json_schema"}}),
        ("Parameter 'cache_salt'", {"cache_salt": ""}),
        ("`thinking_token_budget`", {"thinking_token_budget": -2}),
        ("1 validation error", {"n": "x"}),
    ]
    for index, (beginning, _) in enumerate(broken):
        fields: dict[str, object] = {}
        for _, more in reversed(broken[index:]):
            fields |= more
        assert refusal(**fields).message.startswith(beginning)


def test_faults_are_listed_in_the_order_of_the_fields_of_a_completion() -> None:
    error = refusal(n="x", max_tokens="y", echo="z")
    assert error.param == "body.echo"
    places = [line.split("'loc': '")[1].split("'")[0] for line in error.message.split("\n")[1:]]
    assert places == ["body.echo", "body.max_tokens", "body.n"]


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e400"])
def test_a_temperature_that_is_not_finite_is_left_for_sampling_to_refuse(value: str) -> None:
    body = f'{{"prompt": "x", "temperature": {value}}}'.encode()
    request = read_completion_request(decode_body(body, "application/json"))
    assert repr(request.temperature) in ("nan", "inf")


def test_a_lone_surrogate_is_left_for_the_tokenizer_to_refuse() -> None:
    body = b'{"prompt": "\\ud800"}'
    assert read_completion_request(decode_body(body, "application/json")).prompt == "\ud800"
