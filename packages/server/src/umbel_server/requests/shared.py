"""What the bodies of chat and of plain completions have in common: types, and checks of raw fields.

The checks run on the decoded object before its fields are converted, as vLLM's "before" validators
do, so they see values as the client wrote them.  Messages are those of
vllm/entrypoints/generate/base/protocol.py and of the two protocol.py beside it.
"""

import secrets
from typing import Annotated, Literal

from msgspec import Meta, Struct

from umbel_server.errors import validation_error
from umbel_server.requests.faults import Faults
from umbel_server.requests.fields import INT64_MAX, INT64_MIN

MAX_STOP_STRINGS = 4
MAX_CACHE_SALT_CHARS = 128
CACHE_SALT_FORBIDDEN = frozenset("@/\\\0")

Int64 = Annotated[int, Meta(ge=INT64_MIN, le=INT64_MAX)]
NonNegative = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
TruncatePromptTokens = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
CacheSalt = Annotated[str, Meta(min_length=1, max_length=1024)]
Stop = str | Annotated[list[str], Meta(max_length=MAX_STOP_STRINGS)] | None
TruncationSide = Literal["left", "right"]
MultimodalPayload = Literal["tensors", "none"]


class StreamOptions(Struct, frozen=True):
    """What a stream carries besides the choices."""

    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


ExtraArgument = str | int | float | list[str | int | float]
"""A value for a custom part of the engine."""


def new_request_id() -> str:
    """Make an id for a request that brings none: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def check_logprobs_number(body: dict[str, object], field: str) -> float | None:
    """Give a field that asks for logprobs, None when it is not set; it must be a number."""
    value = body.get(field)
    if value is None or isinstance(value, (int, float)):
        return value
    raise validation_error(f"`{field}` must be an integer.", field, value)


def check_logprobs_range(field: str, value: float) -> None:
    """Refuse a number of logprobs below zero; -1 stands for all."""
    if value < 0 and value != -1:
        raise validation_error(f"`{field}` must be a positive value or -1.", field, value)


def check_prompt_logprobs(body: dict[str, object], value: float | None) -> None:
    """Check a given `prompt_logprobs`, which a stream cannot carry."""
    if value is None:
        return
    if body.get("stream") and (value > 0 or value == -1):
        raise validation_error(
            "`prompt_logprobs` are not available when `stream=True`.", "prompt_logprobs"
        )
    check_logprobs_range("prompt_logprobs", value)


def check_stream_options(body: dict[str, object]) -> None:
    """Refuse stream options without a stream."""
    if body.get("stream_options") and not body.get("stream"):
        raise validation_error(
            "Stream options can only be defined when `stream=True`.", "stream_options"
        )


def check_cache_salt(body: dict[str, object]) -> None:
    """Refuse a salt that a cache behind the engine could not keep."""
    salt = body.get("cache_salt")
    if salt is None:
        return
    if not isinstance(salt, str) or not salt:
        raise validation_error(
            "Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt"
        )
    if len(salt) > MAX_CACHE_SALT_CHARS or not CACHE_SALT_FORBIDDEN.isdisjoint(salt):
        raise validation_error(
            f"Parameter 'cache_salt' must be at most {MAX_CACHE_SALT_CHARS} characters and must not "
            "contain '@', '/', '\\\\', or NUL.",
            "cache_salt",
        )


def check_encodable(field: str, text: str | None) -> None:
    """Refuse text that goes to the engine as it is and cannot: JSON can carry lone surrogates."""
    if text is None or text.isascii():
        return
    try:
        text.encode()
    except UnicodeEncodeError:
        faults = Faults()
        faults.add("string_unicode", ("body", field), "must not contain lone surrogates", text)
        raise faults.error() from None


def apply_multimodal_alias(body: dict[str, object]) -> None:
    """Turn the deprecated `return_mm_kwargs: false` into `mm_payload: "none"`."""
    if body.get("return_mm_kwargs") is False:
        body.setdefault("mm_payload", "none")


def apply_thinking_token_budget(body: dict[str, object]) -> None:
    """Check `thinking_token_budget`, whose -1 means the same as null."""
    budget = body.get("thinking_token_budget")
    if budget is None:
        return
    if type(budget) is not int or budget < -1:
        raise validation_error(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            "thinking_token_budget",
            budget,
        )
    if budget == -1:
        body["thinking_token_budget"] = None
