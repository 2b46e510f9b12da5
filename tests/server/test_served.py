"""Known fields that are not served are refused by name."""

import pytest

from umbel_server.errors import ApiError
from umbel_server.requests import (
    check_chat_served,
    check_completion_served,
    read_chat_request,
    read_completion_request,
)

TOOL = {"type": "function", "function": {"name": "f"}}

NOT_SERVED: dict[str, object] = {"use_beam_search": True}

NAMED = {"type": "function", "function": {"name": "f"}}

SERVED: dict[str, object] = {
    "model": "m",
    "n": 3,
    "seed": 7,
    "stop": ["a"],
    "temperature": 0.5,
    "top_p": 0.5,
    "top_k": 5,
    "min_p": 0.1,
    "presence_penalty": 1,
    "frequency_penalty": 1,
    "repetition_penalty": 2,
    "max_tokens": 5,
    "min_tokens": 1,
    "logit_bias": {"1": 2},
    "ignore_eos": True,
    "return_token_ids": True,
    "echo": True,
    "stream": True,
    "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    "stream_interval": 4,
    "stop_token_ids": [5],
    "include_stop_str_in_output": True,
    "skip_special_tokens": False,
    "add_special_tokens": True,
    "request_id": "r",
    "session_id": "s",
    "priority": 3,
    "cache_salt": "salt",
    "user": "u",
    "best_of": 3,
    "response_format": {"type": "text"},
    "thinking_token_budget": -1,
    "kv_transfer_params": {},
    "return_token_offsets": None,
    "return_tokens_as_token_ids": False,
    "watermarking": False,
    "mm_payload": "tensors",
}

SERVED_IN_CHAT: dict[str, object] = {
    **SERVED,
    "logprobs": True,
    "top_logprobs": 3,
    "max_completion_tokens": 5,
    "continue_final_message": True,
    "add_generation_prompt": False,
    "chat_template_kwargs": {"a": 1},
    "parallel_tool_calls": False,
    "tools": [TOOL],
    "tool_choice": None,
    "documents": [],
    "chat_template": "",
}


def check_chat(fields: dict[str, object], calls_tools: bool = True) -> None:
    body = {"messages": [], "logprobs": True, **fields}
    check_chat_served(read_chat_request(body), calls_tools)


def check_completion(fields: dict[str, object]) -> None:
    check_completion_served(read_completion_request({"prompt": "x", **fields}))


@pytest.mark.parametrize("field", NOT_SERVED)
def test_a_chat_field_that_is_not_served_is_refused_by_name(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_chat({field: NOT_SERVED[field]})
    error = caught.value
    assert (error.status, error.type, error.param) == (400, "BadRequestError", field)
    assert error.message == f"`{field}` is not supported yet."


@pytest.mark.parametrize("field", NOT_SERVED)
def test_a_completion_field_that_is_not_served_is_refused_by_name(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_completion({field: NOT_SERVED[field]})
    error = caught.value
    assert (error.status, error.type, error.param) == (400, "BadRequestError", field)


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        ("auto", '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser'),
        ("required", 'tool_choice="required" requires --tool-call-parser to be set'),
        (NAMED, 'tool_choice=function "f" requires --tool-call-parser to be set'),
    ],
)
def test_tools_are_not_called_where_nothing_reads_the_calls(choice: object, message: str) -> None:
    fields = {"tools": [TOOL], "tool_choice": choice}
    with pytest.raises(ApiError) as caught:
        check_chat(fields, calls_tools=False)
    assert caught.value.message.startswith(message)
    check_chat(fields)


@pytest.mark.parametrize("choice", [None, "none"])
def test_tools_that_are_not_called_are_served_by_every_model(choice: object) -> None:
    check_chat({"tools": [TOOL], "tool_choice": choice}, calls_tools=False)


@pytest.mark.parametrize("field", SERVED_IN_CHAT)
def test_a_served_chat_field_passes(field: str) -> None:
    check_chat({"stream": True, field: SERVED_IN_CHAT[field]})


@pytest.mark.parametrize("field", SERVED)
def test_a_served_completion_field_passes(field: str) -> None:
    check_completion({"stream": True, field: SERVED[field]})


def test_all_that_is_served_passes_together() -> None:
    check_chat(SERVED_IN_CHAT)
    check_completion(SERVED)


def test_bare_requests_pass() -> None:
    check_chat_served(read_chat_request({"messages": []}), False)
    check_completion({})


@pytest.mark.parametrize("field", ["media_io_kwargs", "mm_processor_kwargs"])
def test_what_changes_the_cost_of_media_is_refused_as_untrusted(field: str) -> None:
    with pytest.raises(ApiError, match=f"Per-request {field} are disabled by default") as caught:
        check_chat({field: {"image": {}}})
    assert (caught.value.status, caught.value.param) == (400, field)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"suffix": "x"}, "suffix is only supported for models with FIM completion rendering"),
        ({"suffix": "", "prompt": ["a"]}, "suffix is only supported for models with FIM"),
        ({"suffix": "x", "prompt": [1]}, "suffix requires text prompt input for FIM"),
        ({"suffix": "x", "echo": True}, "Echo is unsupported with suffix."),
        ({"suffix": "x", "prompt_embeds": "a"}, "suffix is not supported with prompt_embeds"),
        (
            {"suffix": "x", "truncate_prompt_tokens": 5},
            "suffix is not supported with truncate_prompt_tokens",
        ),
    ],
)
def test_a_suffix_is_refused_in_the_words_of_vllm(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ApiError, match=message) as caught:
        check_completion(fields)
    assert (caught.value.status, caught.value.param) == (400, "suffix")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({}, "You must set `--enable-prompt-embeds` to input `prompt_embeds`."),
        ({"echo": True}, "Echo is unsupported with prompt embeds."),
        ({"prompt_logprobs": 1}, "prompt_logprobs is not compatible with prompt embeds."),
    ],
)
def test_prompt_embeddings_are_refused(fields: dict[str, object], message: str) -> None:
    with pytest.raises(ApiError, match=message):
        check_completion({"prompt_embeds": "aaaa", **fields})
