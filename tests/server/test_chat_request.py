"""The body of a chat completion."""

import json
import re

import pytest

from umbel_server.errors import ApiError
from umbel_server.requests import (
    ChatCompletionRequest,
    StreamOptions,
    decode_body,
    read_chat_request,
)

HI: dict[str, object] = {"role": "user", "content": "hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
USAGE = 'Correct usage: `{"type": "function", "function": {"name": "my_function"}}`'


def read(**fields: object) -> ChatCompletionRequest:
    body = json.dumps({"messages": [HI], **fields}).encode()
    return read_chat_request(decode_body(body, "application/json"))


def refusal(**fields: object) -> ApiError:
    with pytest.raises(ApiError) as caught:
        read(**fields)
    assert caught.value.status == 400
    return caught.value


def test_the_defaults_are_those_of_vllm() -> None:
    request = read()
    assert request.messages == [HI]
    assert (request.n, request.stream, request.logprobs, request.top_logprobs) == (
        1,
        False,
        False,
        0,
    )
    assert (request.max_tokens, request.max_completion_tokens) == (None, None)
    assert (request.temperature, request.top_p, request.seed) == (None, None, None)
    assert (request.stop, request.stop_token_ids, request.bad_words) == ([], [], [])
    assert (request.tool_choice, request.mm_payload) == ("none", "tensors")
    assert (request.add_generation_prompt, request.add_special_tokens) == (True, False)
    assert (request.skip_special_tokens, request.echo, request.priority) == (None, False, 0)


def test_a_request_without_an_id_gets_one_of_its_own() -> None:
    first, second = read().request_id, read().request_id
    assert re.fullmatch("[0-9a-f]{16}", first)
    assert first != second
    assert read(request_id="").request_id == ""


def test_fields_are_read_leniently() -> None:
    request = read(
        n="2", max_tokens=5.0, stream="yes", stream_options={"include_usage": 1}, logprobs="true"
    )
    assert (request.n, request.max_tokens, request.stream) == (2, 5, True)
    assert request.stream_options == StreamOptions(include_usage=True)
    assert request.logprobs is True


@pytest.mark.parametrize(
    "field",
    [
        "n",
        "stream",
        "stop",
        "tools",
        "tool_choice",
        "repetition_penalty",
        "response_format",
        "max_completion_tokens",
        "model",
        "temperature",
        "cache_salt",
        "thinking_token_budget",
    ],
)
def test_null_is_accepted(field: str) -> None:
    assert getattr(read(**{field: None}), field) is None


def test_null_top_logprobs_are_none_at_all() -> None:
    assert read(top_logprobs=None).top_logprobs == 0


@pytest.mark.parametrize(
    "field",
    [
        "bad_words",
        "min_tokens",
        "length_penalty",
        "include_stop_str_in_output",
        "echo",
        "add_special_tokens",
        "request_id",
        "priority",
        "use_beam_search",
        "mm_payload",
    ],
)
def test_null_is_refused(field: str) -> None:
    error = refusal(**{field: None})
    assert (error.type, error.param) == ("Bad Request", f"body.{field}")


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": "two"}, "body.n"),
        ({"n": 1.5}, "body.n"),
        ({"n": True}, "body.n"),
        ({"seed": 2**63}, "body.seed"),
        ({"seed": -(2**63) - 1}, "body.seed"),
        ({"priority": 2**63}, "body.priority"),
        ({"logprobs": 5}, "body.logprobs"),
        ({"stop": ["a"] * 5}, "body.stop"),
        ({"logit_bias": {"7": "x"}}, "body.logit_bias.7"),
        ({"truncation_side": "up"}, "body.truncation_side"),
        ({"truncate_prompt_tokens": -2}, "body.truncate_prompt_tokens"),
        ({"routed_experts_prompt_start": -1}, "body.routed_experts_prompt_start"),
        ({"stream_interval": 0}, "body.stream_interval"),
        ({"stream": True, "stream_options": 5}, "body.stream_options"),
        ({"reasoning_effort": "huge"}, "body.reasoning_effort"),
        ({"response_format": {}}, "body.response_format.type"),
        ({"response_format": {"type": "x"}}, "body.response_format.type"),
        ({"tools": [5]}, "body.tools.0"),
        ({"tools": [{}]}, "body.tools.0.function"),
        ({"tools": [{"type": "custom", "custom": {"name": "a"}}]}, "body.tools.0.type"),
        ({"documents": [{"a": 1}]}, "body.documents.0.a"),
        ({"prompt_logprobs": 1.5}, "body.prompt_logprobs"),
        ({"n": "x", "max_tokens": "y", "echo": "z"}, "body.max_tokens"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(fields: dict[str, object], param: str) -> None:
    error = refusal(**fields)
    assert (error.type, error.param) == ("Bad Request", param)


def test_messages_are_required() -> None:
    with pytest.raises(ApiError) as caught:
        read_chat_request({})
    assert (caught.value.type, caught.value.param) == ("Bad Request", "body.messages")


@pytest.mark.parametrize(("messages", "name"), [(None, "NoneType"), (5, "int"), (True, "bool")])
def test_messages_that_cannot_be_walked_through_are_refused_first(
    messages: object, name: str
) -> None:
    error = refusal(messages=messages, n="x", tools=[])
    assert (error.type, error.param) == ("BadRequestError", None)
    assert error.message == f"'{name}' object is not iterable"


@pytest.mark.parametrize("messages", ["abc", {}, {"a": 1}])
def test_messages_must_be_a_list(messages: object) -> None:
    error = refusal(messages=messages)
    assert (error.type, error.param) == ("Bad Request", "body.messages")


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (5, ""),
        ("a", ""),
        (None, ""),
        ({}, ".content"),
        ({"content": "x"}, ".role"),
        ({"role": 5, "content": "x"}, ".role"),
        ({"role": "user", "content": None}, ".content"),
        ({"role": "system", "content": None}, ".content"),
        ({"role": "zebra", "content": None}, ".content"),
        ({"role": "user", "content": 5}, ".content"),
        ({"role": "function", "content": None}, ".content"),
        ({"role": "user", "content": "x", "name": 5}, ".role"),
        ({"role": "developer", "content": "x", "name": 5}, ".name"),
    ],
)
def test_a_malformed_message_is_refused_where_vllm_says(message: object, field: str) -> None:
    error = refusal(messages=[HI, message])
    assert error.type == "Bad Request"
    assert error.param == f"body.messages.1.ChatCompletionDeveloperMessageParam{field}"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "zebra", "content": "x"},
        {"role": "assistant", "content": None},
        {"role": "assistant"},
        {"role": "function", "content": None, "name": "f"},
        {"role": "user", "content": [{"type": "text", "text": "x"}]},
        {"role": "user", "content": []},
    ],
)
def test_messages_are_handed_on_as_they_are(message: dict[str, object]) -> None:
    assert read(messages=[message]).messages == [message]


def test_no_messages_are_left_for_the_template_to_refuse() -> None:
    assert read(messages=[]).messages == []


def test_reasoning_content_becomes_reasoning() -> None:
    old = {"role": "assistant", "content": "x", "reasoning_content": "why"}
    assert read(messages=[old]).messages == [
        {"role": "assistant", "content": "x", "reasoning": "why"}
    ]
    both = {**old, "reasoning": "because"}
    assert read(messages=[both]).messages[0]["reasoning"] == "because"


def test_tool_calls_must_be_a_list() -> None:
    error = refusal(messages=[{"role": "assistant", "tool_calls": 5}])
    assert (error.type, error.message) == ("BadRequestError", "'int' object is not iterable")
    assert refusal(messages=[{"role": "assistant", "tool_calls": "ab"}]).type == "Bad Request"


CHECKS: list[tuple[dict[str, object], str, str | None]] = [
    (
        {"continue_final_message": True, "add_generation_prompt": True},
        "Cannot set both `continue_final_message` and `add_generation_prompt` to True.",
        None,
    ),
    (
        {"tools": []},
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely. (parameter=tools)",
        "tools",
    ),
    (
        {"tools": [], "tool_choice": "none"},
        "`tools` must not be an empty array. Either provide at least one tool or omit the field "
        "entirely. (parameter=tools)",
        "tools",
    ),
    (
        {"tool_choice": "auto"},
        "When using `tool_choice`, `tools` must be set. (parameter=tool_choice)",
        "tool_choice",
    ),
    (
        {"tool_choice": "x", "tools": [TOOL]},
        'Invalid value for `tool_choice`: x! Only named tools, "none", "auto" or "required" are '
        "supported. (parameter=tool_choice)",
        "tool_choice",
    ),
    (
        {"tool_choice": {}, "tools": [TOOL]},
        f"Invalid value for `function`: `None` in `tool_choice`! {USAGE} "
        "(parameter=tool_choice.function)",
        "tool_choice.function",
    ),
    (
        {"tool_choice": {"function": {}}, "tools": [TOOL]},
        f"Expected field `name` in `function` in `tool_choice`! {USAGE} "
        "(parameter=tool_choice.function.name)",
        "tool_choice.function.name",
    ),
    (
        {"tool_choice": {"function": {"name": 5}}, "tools": [TOOL]},
        f"Invalid `name` in `function`: `5` in `tool_choice`! {USAGE} "
        "(parameter=tool_choice.function.name)",
        "tool_choice.function.name",
    ),
    (
        {"tool_choice": {"function": {"name": "g"}}, "tools": [TOOL]},
        "The tool specified in `tool_choice` does not match any of the specified `tools` "
        "(parameter=tool_choice)",
        "tool_choice",
    ),
    (
        {"structured_outputs": {"json": "{}", "regex": "a"}},
        "You can only use one kind of constraints for structured outputs ('json', 'regex' or "
        "'choice').",
        None,
    ),
    (
        {"structured_outputs": {"regex": "a"}, "tool_choice": None},
        "You can only either use constraints for structured outputs or tools, not both.",
        None,
    ),
    (
        {"logprob_token_ids": [1], "use_beam_search": True},
        "`logprob_token_ids` is not supported with beam search. (parameter=logprob_token_ids)",
        "logprob_token_ids",
    ),
    (
        {"logprob_token_ids": [1]},
        "when using `logprob_token_ids`, `logprobs` must be set to true. "
        "(parameter=logprob_token_ids)",
        "logprob_token_ids",
    ),
    (
        {"prompt_logprobs": "x"},
        "`prompt_logprobs` must be an integer. (parameter=prompt_logprobs, value=x)",
        "prompt_logprobs",
    ),
    (
        {"top_logprobs": []},
        "`top_logprobs` must be an integer. (parameter=top_logprobs, value=[])",
        "top_logprobs",
    ),
    (
        {"prompt_logprobs": -1, "stream": True},
        "`prompt_logprobs` are not available when `stream=True`. (parameter=prompt_logprobs)",
        "prompt_logprobs",
    ),
    (
        {"prompt_logprobs": -2},
        "`prompt_logprobs` must be a positive value or -1. (parameter=prompt_logprobs, value=-2)",
        "prompt_logprobs",
    ),
    (
        {"top_logprobs": -2},
        "`top_logprobs` must be a positive value or -1. (parameter=top_logprobs, value=-2)",
        "top_logprobs",
    ),
    (
        {"top_logprobs": 1},
        "when using `top_logprobs`, `logprobs` must be set to true. (parameter=top_logprobs)",
        "top_logprobs",
    ),
    (
        {"stream_options": {"include_usage": True}},
        "Stream options can only be defined when `stream=True`. (parameter=stream_options)",
        "stream_options",
    ),
    (
        {"response_format": {"type": "json_schema"}},
        "When response_format type is 'json_schema', the 'json_schema' field must be provided. "
        "(parameter=response_format)",
        "response_format",
    ),
    (
        {"cache_salt": ""},
        "Parameter 'cache_salt' must be a non-empty string if provided. (parameter=cache_salt)",
        "cache_salt",
    ),
    (
        {"cache_salt": "a@b"},
        "Parameter 'cache_salt' must be at most 128 characters and must not contain '@', '/', "
        "'\\\\', or NUL. (parameter=cache_salt)",
        "cache_salt",
    ),
    (
        {"thinking_token_budget": True},
        "`thinking_token_budget` must be a non-negative integer or -1 for unlimited. "
        "(parameter=thinking_token_budget, value=True)",
        "thinking_token_budget",
    ),
]


@pytest.mark.parametrize(("fields", "message", "param"), CHECKS)
def test_checks_of_the_raw_body_say_what_vllm_says(
    fields: dict[str, object], message: str, param: str | None
) -> None:
    error = refusal(**fields)
    assert (error.type, error.message, error.param) == ("BadRequestError", message, param)


@pytest.mark.parametrize(("fields", "message", "param"), CHECKS)
def test_checks_of_the_raw_body_come_before_the_types_of_the_fields(
    fields: dict[str, object], message: str, param: str | None
) -> None:
    assert refusal(**{"n": "x", "max_tokens": [], **fields}).message == message


def test_checks_come_in_the_order_of_vllms_validators() -> None:
    broken: list[tuple[str, dict[str, object]]] = [
        ("Cannot set both", {"continue_final_message": True, "add_generation_prompt": True}),
        ("When using `tool_choice`", {"tool_choice": "auto"}),
        ("You can only use one kind", {"structured_outputs": {"json": "{}", "regex": "a"}}),
        ("`top_logprobs` must be an integer", {"top_logprobs": "x"}),
        ("Stream options", {"stream_options": {"include_usage": True}}),
        ("When response_format", {"response_format": {"type": "json_schema"}}),
        ("Parameter 'cache_salt'", {"cache_salt": ""}),
        ("`thinking_token_budget`", {"thinking_token_budget": -2}),
        ("1 validation error", {"n": "x"}),
    ]
    for index, (beginning, _) in enumerate(broken):
        fields: dict[str, object] = {}
        for _, more in broken[index:]:
            fields |= more
        assert refusal(**fields).message.startswith(beginning)


@pytest.mark.parametrize(
    "fields",
    [
        {"stream_options": {}},
        {"stream": "false", "stream_options": {"include_usage": True}},
        {"prompt_logprobs": 0, "stream": True},
        {"logprobs": True, "top_logprobs": -1},
        {"continue_final_message": True},
        {"tools": [TOOL], "tool_choice": None},
        {"tools": [TOOL], "tool_choice": TOOL},
        {"cache_salt": "a" * 128},
        {"best_of": 3, "guided_json": {}},
    ],
)
def test_what_vllm_lets_pass_is_let_pass(fields: dict[str, object]) -> None:
    read(**fields)


def test_tools_without_a_choice_mean_auto() -> None:
    assert read(tools=[TOOL]).tool_choice == "auto"


def test_an_unlimited_thinking_budget_is_none() -> None:
    assert read(thinking_token_budget=-1).thinking_token_budget is None


def test_the_deprecated_name_of_the_multimodal_payload_is_understood() -> None:
    assert read(return_mm_kwargs=False).mm_payload == "none"
    assert read(return_mm_kwargs=False, mm_payload="tensors").mm_payload == "tensors"
    assert read(return_mm_kwargs=True).mm_payload == "tensors"
