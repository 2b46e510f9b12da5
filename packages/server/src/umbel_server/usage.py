"""Counting the tokens of a response."""

import msgspec


class PromptTokensDetails(msgspec.Struct, frozen=True):
    """Where prompt tokens came from; None where the kind of request does not tell."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None
    multimodal_tokens: int | None = None


class CompletionTokensDetails(msgspec.Struct, frozen=True):
    """What generated tokens were for."""

    reasoning_tokens: int = 0


class Usage(msgspec.Struct, frozen=True):
    """The tokens of a response: the prompt once, what was generated summed over its choices."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails | None = None
    completion_tokens_details: CompletionTokensDetails | None = None


def usage_of(
    prompt_tokens: int,
    completion_tokens: int,
    details: PromptTokensDetails | None = None,
    reasoning_tokens: int | None = None,
) -> Usage:
    """Add up a usage; without a number of reasoning tokens nothing is said of them."""
    completion_details = None
    if reasoning_tokens is not None:
        completion_details = CompletionTokensDetails(reasoning_tokens)
    return Usage(
        prompt_tokens,
        prompt_tokens + completion_tokens,
        completion_tokens,
        details,
        completion_details,
    )
