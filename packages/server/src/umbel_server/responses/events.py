"""What the events of chat answers and of completions have in common."""

from functools import lru_cache

import msgspec

from umbel_server.responses.context import AnswerContext, TimingMetrics
from umbel_server.usage import CompletionTokensDetails, PromptTokensDetails

DONE = b"data: [DONE]\n\n"

KEPT_OPENINGS = 1024
"""How many choices have the start of theirs kept, from one answer to the next."""

encode = msgspec.json.encode


class UsageEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """The usage of a streamed answer; fields without a value are left out."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: "Details | None" = None
    completion_tokens_details: CompletionTokensDetails | None = None


class Details(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where prompt tokens came from, without what is not known."""

    cached_tokens: int | None = None
    created_cache_tokens: int | None = None


class Timing(msgspec.Struct, frozen=True, omit_defaults=True):
    """The timing of a request, without what is not known."""

    time_to_first_token_ms: float | None = None
    generation_time_ms: float | None = None
    queue_time_ms: float | None = None
    mean_itl_ms: float | None = None
    tokens_per_second: float | None = None


def events_head(context: AnswerContext, kind: str) -> bytes:
    """Give the start that every event of an answer has."""
    return b'data: {"id":%b,"object":%b,"created":%d,"model":%b,' % (
        encode(context.id),
        encode(kind),
        context.created,
        encode(context.model),
    )


@lru_cache(KEPT_OPENINGS)
def choice_opening(index: int, field: bytes) -> bytes:
    """Give the start of an event's choice, up to the value of its first field.

    Answers share these bytes, which so stay in the processor's caches.
    """
    return b'"choices":[{"index":%d,%b' % (index, field)


def plain_usage(prompt_tokens: int, generated: int, more: bytes = b"") -> bytes:
    """Give the usage field of an event in mid-stream, with its leading comma."""
    usage = b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d%b}'
    return usage % (prompt_tokens, prompt_tokens + generated, generated, more)


def usage_event(
    head: bytes,
    context: AnswerContext,
    generated: int,
    details: PromptTokensDetails | None,
    metrics: TimingMetrics | None,
    reasoning_tokens: int | None = None,
) -> bytes:
    """Give the event that has no choices and the usage of all of them."""
    usage = UsageEvent(
        context.prompt_tokens,
        context.prompt_tokens + generated,
        generated,
        Details(details.cached_tokens, details.created_cache_tokens) if details else None,
        None if reasoning_tokens is None else CompletionTokensDetails(reasoning_tokens),
    )
    fields = [b'"choices":[],"usage":%b' % encode(usage)]
    if context.fingerprint is not None:
        fields.append(b'"system_fingerprint":%b' % encode(context.fingerprint))
    if metrics is not None:
        timing = Timing(*msgspec.structs.astuple(metrics)[:5])
        fields.append(b'"metrics":%b' % encode(timing))
    return b"%b%b}\n\n" % (head, b",".join(fields))
