"""Known fields that are not served yet: a request that sets one is refused, never half-served.

Each row is a field and how to tell that its value asks for something.  Serving a field means
deleting its row.  Fields that vLLM itself ignores (`user`, `parallel_tool_calls`, unknown ones)
have no row.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from umbel_server.errors import bad_request
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.shared import ResponseFormat

Test = Callable[[object], bool]


def is_given(value: object) -> bool:
    """Tell whether a value was given where the default is null."""
    return value is not None


def is_filled(value: object) -> bool:
    """Tell whether a value is true or has content; an empty one asks for nothing."""
    return bool(value)


def is_off(value: object) -> bool:
    """Tell whether a switch that is on by default was turned off."""
    return value is False


def is_constrained(value: object) -> bool:
    """Tell whether a response format asks for more than text."""
    return isinstance(value, ResponseFormat) and value.type != "text"


def differs_from(default: object) -> Test:
    """Give the test for a field with a default that is neither null nor empty."""
    return lambda value: value != default


_BOTH: Mapping[str, Test] = MappingProxyType(
    {
        "response_format": is_constrained,
        "thinking_token_budget": is_given,
        "use_beam_search": is_filled,
        "watermarking": is_filled,
        "length_penalty": differs_from(1.0),
        "spaces_between_special_tokens": is_off,
        "truncate_prompt_tokens": is_given,
        "truncation_side": is_given,
        "prompt_logprobs": is_given,
        "logprob_token_ids": is_given,
        "allowed_token_ids": is_given,
        "bad_words": is_filled,
        "structured_outputs": is_given,
        "return_tokens_as_token_ids": is_filled,
        "return_weight_versions": is_filled,
        "routed_experts_prompt_start": differs_from(0),
        "return_token_offsets": is_filled,
        "return_mm_kwargs": is_given,
        "mm_payload": differs_from("tensors"),
        "kv_transfer_params": is_filled,
        "ec_transfer_params": is_filled,
        "vllm_xargs": is_filled,
        "repetition_detection": is_given,
    }
)

_CHAT: Mapping[str, Test] = MappingProxyType(
    {
        "tools": is_given,
        "tool_choice": lambda value: value not in (None, "none"),
        "reasoning_effort": is_given,
        "include_reasoning": is_off,
        "documents": is_filled,
        "chat_template": is_filled,
        "media_io_kwargs": is_filled,
        "mm_processor_kwargs": is_filled,
        "return_prompt_text": is_filled,
        **_BOTH,
    }
)

_COMPLETION: Mapping[str, Test] = MappingProxyType(
    {
        "suffix": is_given,
        "prompt_embeds": is_filled,
        **_BOTH,
    }
)


def check_chat_served(request: ChatCompletionRequest) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError."""
    _check(request, _CHAT)


def check_completion_served(request: CompletionRequest) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError."""
    _check(request, _COMPLETION)
    # The logprobs of an echoed prompt are prompt logprobs.
    if request.echo and request.logprobs is not None:
        raise bad_request("`echo` together with `logprobs` is not supported yet.", "echo")


def _check(request: ChatCompletionRequest | CompletionRequest, rows: Mapping[str, Test]) -> None:
    for name, asks in rows.items():
        if asks(getattr(request, name)):
            raise bad_request(f"`{name}` is not supported yet.", name)
