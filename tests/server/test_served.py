"""Known fields that are not served are refused by name."""

import pytest

from umbel_server.errors import ApiError
from umbel_server.requests import (
    ChatCompletionRequest,
    check_chat_served,
    check_completion_served,
    read_chat_request,
    read_completion_request,
)

TOOL = {"type": "function", "function": {"name": "f"}}

NOT_SERVED: dict[str, object] = {
    "response_format": {"type": "json_object"},
    "structured_outputs": {"regex": "a"},
    "use_beam_search": True,
    "length_penalty": 0.5,
    "prompt_logprobs": 0,
    "logprob_token_ids": [],
    "allowed_token_ids": [1],
    "bad_words": ["a"],
    "truncate_prompt_tokens": -1,
    "truncation_side": "left",
    "thinking_token_budget": 5,
    "watermarking": True,
    "kv_transfer_params": {"a": 1},
    "ec_transfer_params": {"a": 1},
    "vllm_xargs": {"a": 1},
    "repetition_detection": {},
    "return_tokens_as_token_ids": True,
    "return_token_offsets": True,
    "return_weight_versions": True,
    "routed_experts_prompt_start": 1,
    "return_mm_kwargs": False,
    "mm_payload": "none",
    "spaces_between_special_tokens": False,
}

NOT_SERVED_IN_CHAT: dict[str, object] = {
    **NOT_SERVED,
    "tools": [TOOL],
    "reasoning_effort": "none",
    "include_reasoning": False,
    "documents": [{"text": "x"}],
    "chat_template": "{{ x }}",
    "media_io_kwargs": {"image": {}},
    "mm_processor_kwargs": {"a": 1},
    "return_prompt_text": True,
}

NOT_SERVED_IN_COMPLETIONS: dict[str, object] = {
    **NOT_SERVED,
    "suffix": "",
    "prompt_embeds": "aaaa",
}

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
    "tool_choice": None,
    "documents": [],
    "chat_template": "",
}


def check_chat(fields: dict[str, object]) -> None:
    check_chat_served(read_chat_request({"messages": [], "logprobs": True, **fields}))


def check_completion(fields: dict[str, object]) -> None:
    check_completion_served(read_completion_request({"prompt": "x", **fields}))


@pytest.mark.parametrize("field", NOT_SERVED_IN_CHAT)
def test_a_chat_field_that_is_not_served_is_refused_by_name(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_chat({field: NOT_SERVED_IN_CHAT[field]})
    error = caught.value
    assert (error.status, error.type, error.param) == (400, "BadRequestError", field)
    assert error.message == f"`{field}` is not supported yet."


@pytest.mark.parametrize("field", NOT_SERVED_IN_COMPLETIONS)
def test_a_completion_field_that_is_not_served_is_refused_by_name(field: str) -> None:
    with pytest.raises(ApiError) as caught:
        check_completion({field: NOT_SERVED_IN_COMPLETIONS[field]})
    error = caught.value
    assert (error.status, error.type, error.param) == (400, "BadRequestError", field)


def test_tools_are_refused_also_when_the_choice_is_none() -> None:
    with pytest.raises(ApiError, match="`tools` is not supported"):
        check_chat({"tools": [TOOL], "tool_choice": "none"})


def test_a_tool_choice_is_refused_on_its_own() -> None:
    with pytest.raises(ApiError, match="`tool_choice` is not supported"):
        check_chat_served(ChatCompletionRequest(messages=[], tool_choice="auto"))


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
    check_chat_served(read_chat_request({"messages": []}))
    check_completion({})


def test_the_logprobs_of_an_echoed_prompt_are_not_served_in_completions() -> None:
    check_completion({"echo": True})
    check_completion({"logprobs": 1})
    with pytest.raises(ApiError) as caught:
        check_completion({"echo": True, "logprobs": 0})
    assert caught.value.param == "echo"
    check_chat({"echo": True, "logprobs": True})
