"""The body of a completion.

Fields, order and nulls are those of vllm/entrypoints/openai/completion/protocol.py.
"""

from collections.abc import Sequence

import msgspec

from umbel_engine import FinishReason, WeightVersionSpan
from umbel_server.responses.context import (
    AnswerContext,
    TimingMetrics,
    completion_prompt_details,
    timing_metrics,
)
from umbel_server.responses.echo import Echo
from umbel_server.responses.extras import (
    NOTHING,
    TransferParameters,
    array_file,
    weight_versions,
)
from umbel_server.responses.logprobs import CompletionLogprobs, CompletionLogprobsWriter
from umbel_server.usage import Usage, usage_of
from umbel_text import TextDelta


class CompletionChoice(msgspec.Struct, frozen=True):
    """One of the n answers to one of the prompts."""

    index: int
    text: str
    logprobs: CompletionLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    prompt_logprobs: msgspec.Raw
    prompt_token_ids: list[int] | None
    routed_experts: str | None = None
    weight_versions: list[WeightVersionSpan] | None = None


class Completion(msgspec.Struct, frozen=True):
    """The answer to a completion request that does not stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[CompletionChoice]
    service_tier: None
    system_fingerprint: str | None
    usage: Usage
    kv_transfer_params: TransferParameters | None = None
    ec_transfer_params: TransferParameters | None = None
    metrics: TimingMetrics | None = None


def completion(
    context: AnswerContext,
    echo: Echo,
    deltas: Sequence[TextDelta],
    generated: int,
) -> bytes:
    """Render the answer from the whole output of each sample, prompt by prompt.

    `generated` counts the tokens of all samples, which may be more than these.
    """
    for index in range(0, len(deltas), context.n):
        echo.see(index // context.n, deltas[index].prompt_logprobs)
    first = deltas[0]
    extras = first.extras or NOTHING
    body = Completion(
        context.id,
        "text_completion",
        context.created,
        context.model,
        [_choice(context, echo, index, delta) for index, delta in enumerate(deltas)],
        None,
        context.fingerprint,
        usage_of(
            context.prompt_tokens, generated, completion_prompt_details(context, first.prefill)
        ),
        extras.kv_transfer_params,
        extras.ec_transfer_params,
        timing_metrics(context, first.timing),
    )
    return msgspec.json.encode(body)


def _choice(context: AnswerContext, echo: Echo, index: int, delta: TextDelta) -> CompletionChoice:
    prompt = index // context.n
    finish, extras = delta.finish, delta.extras or NOTHING
    logprobs = None
    if context.logprobs is not None and delta.logprobs is not None:
        writer = CompletionLogprobsWriter(context.logprobs)
        positions = [] if echo.prompt_only else delta.logprobs
        logprobs = writer.feed([*echo.positions(prompt), *positions], echo.first_token(prompt))
    return CompletionChoice(
        index,
        echo.text(prompt) + ("" if echo.prompt_only else delta.text),
        logprobs,
        finish.reason if finish is not None else None,
        finish.stop_reason if finish is not None else None,
        delta.token_ids if context.return_token_ids else None,
        echo.prompt_logprobs(prompt),
        context.prompt_token_ids[prompt] if context.return_token_ids else None,
        array_file(extras.routed_experts),
        weight_versions(context, extras),
    )
