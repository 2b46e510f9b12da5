"""Known fields that are not served: a request that sets one is refused, never half-served.

Each row is a field and how to tell that its value asks for something.  Fields that vLLM itself
ignores (`user`, `length_penalty` without beam search, unknown ones) have no row.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from umbel_server.errors import ApiError, bad_request, validation_error
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.tokenize import TokenizeChatRequest

Test = Callable[[object], bool]


def is_given(value: object) -> bool:
    """Tell whether a value was given where the default is null."""
    return value is not None


def is_filled(value: object) -> bool:
    """Tell whether a value is true or has content; an empty one asks for nothing."""
    return bool(value)


_BOTH: Mapping[str, Test] = MappingProxyType({"use_beam_search": is_filled})

_CHAT: Mapping[str, Test] = MappingProxyType(
    {
        "tools": is_given,
        "tool_choice": lambda value: value not in (None, "none"),
        **_BOTH,
    }
)

# Here vLLM takes an empty list for none.
_TOKENIZE: Mapping[str, Test] = MappingProxyType({"tools": is_filled})


def check_chat_served(request: ChatCompletionRequest) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError."""
    _check(request, _CHAT)
    _check_media_arguments(request)


def check_tokenize_served(request: TokenizeChatRequest) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError."""
    _check(request, _TOKENIZE)
    _check_media_arguments(request)


def _check_media_arguments(request: ChatCompletionRequest | TokenizeChatRequest) -> None:
    """Give vLLM's answer without --trust-request-mm-kwargs."""
    for name, changed, value in (
        ("mm_processor_kwargs", "preprocessing", request.mm_processor_kwargs),
        ("media_io_kwargs", "media loading", request.media_io_kwargs),
    ):
        if value:
            raise validation_error(
                f"Per-request {name} are disabled by default because they can change multimodal "
                f"{changed} resource usage. Start the server with --trust-request-mm-kwargs only "
                "when clients are trusted.",
                name,
            )


def check_completion_served(request: CompletionRequest) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError."""
    _check(request, _BOTH)
    if request.suffix is not None:
        raise _suffix_fault(request)
    if request.prompt_embeds is not None:
        if request.echo:
            raise bad_request("Echo is unsupported with prompt embeds.")
        if request.prompt_logprobs is not None:
            raise bad_request("prompt_logprobs is not compatible with prompt embeds.")
    # An empty text is one all the same, an empty list is none.
    if request.prompt_embeds not in (None, []):
        raise validation_error(
            "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds"
        )


def _suffix_fault(request: CompletionRequest) -> ApiError:
    """Give vLLM's answer to a suffix for a model that fills no gaps."""
    prompt = request.prompt
    if request.echo:
        message = "Echo is unsupported with suffix."
    elif request.prompt_embeds is not None:
        message = "suffix is not supported with prompt_embeds"
    elif request.truncate_prompt_tokens is not None:
        message = "suffix is not supported with truncate_prompt_tokens"
    elif isinstance(prompt, str) or all(isinstance(part, str) for part in prompt or ()):
        message = "suffix is only supported for models with FIM completion rendering"
    else:
        message = "suffix requires text prompt input for FIM completion rendering"
    return bad_request(message, "suffix")


def _check(
    request: ChatCompletionRequest | CompletionRequest | TokenizeChatRequest,
    rows: Mapping[str, Test],
) -> None:
    for name, asks in rows.items():
        if asks(getattr(request, name)):
            raise bad_request(f"`{name}` is not supported yet.", name)
