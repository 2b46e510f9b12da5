"""Known fields that are not served: a request that sets one is refused, never half-served.

Fields that vLLM itself ignores (`user`, `length_penalty` without beam search, unknown ones) are
ignored here, too.
"""

from umbel_server.errors import ApiError, bad_request, validation_error
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.tokenize import TokenizeChatRequest


def check_chat_served(request: ChatCompletionRequest, calls_tools: bool) -> None:
    """Refuse a request that sets a field that is not served; raises ApiError.

    `calls_tools` says whether it is known how the model writes calls.
    """
    _check_beam_search(request)
    if not calls_tools:
        _check_tool_choice(request)
    check_media_arguments(request)


def _check_tool_choice(request: ChatCompletionRequest) -> None:
    """Give vLLM's answer without a tool parser (vllm/renderers/online_renderer.py)."""
    choice = request.tool_choice
    if choice is None or choice == "none":
        return
    if choice == "auto":
        raise bad_request(
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
        )
    named = '"required"' if choice == "required" else f'function "{choice.function.name}"'
    raise bad_request(f"tool_choice={named} requires --tool-call-parser to be set")


def check_media_arguments(request: ChatCompletionRequest | TokenizeChatRequest) -> None:
    """Give vLLM's answer without --trust-request-mm-kwargs; raises ApiError."""
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
    _check_beam_search(request)
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


def _check_beam_search(request: ChatCompletionRequest | CompletionRequest) -> None:
    if request.use_beam_search:
        raise bad_request("`use_beam_search` is not supported yet.", "use_beam_search")
