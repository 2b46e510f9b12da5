"""The body of a completion.

Fields, order and nulls are those of vllm/entrypoints/openai/completion/protocol.py.
"""

from collections.abc import Sequence

import msgspec

from umbel_engine import FinishReason
from umbel_server.responses.context import (
    AnswerContext,
    TimingMetrics,
    completion_prompt_details,
    timing_metrics,
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
    prompt_logprobs: None
    prompt_token_ids: list[int] | None
    routed_experts: None = None
    weight_versions: None = None


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
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    metrics: TimingMetrics | None = None


def completion(
    context: AnswerContext,
    echoes: Sequence[str] | None,
    prompt_only: bool,
    deltas: Sequence[TextDelta],
) -> bytes:
    """Render the answer from the whole output of each sample, prompt by prompt.

    `echoes` has the text that stands before the choices of each prompt, or is None.  With
    `prompt_only` nothing but that shows: the engine had to generate a token that nobody asked for.
    """
    choices = []
    for index, delta in enumerate(deltas):
        prompt = index // context.n
        finish = delta.finish
        logprobs = None
        if context.top_logprobs is not None and delta.logprobs is not None:
            writer = CompletionLogprobsWriter()
            logprobs = writer.feed(delta.logprobs, context.top_logprobs)
        choices.append(
            CompletionChoice(
                index,
                (echoes[prompt] if echoes else "") + ("" if prompt_only else delta.text),
                logprobs,
                finish.reason if finish is not None else None,
                finish.stop_reason if finish is not None else None,
                delta.token_ids if context.return_token_ids else None,
                None,
                context.prompt_token_ids[prompt] if context.return_token_ids else None,
            )
        )
    body = Completion(
        context.id,
        "text_completion",
        context.created,
        context.model,
        choices,
        None,
        context.fingerprint,
        usage_of(
            context.prompt_tokens,
            sum(len(delta.token_ids) for delta in deltas),
            completion_prompt_details(context, deltas[0].prefill),
        ),
        metrics=timing_metrics(context, deltas[0].timing),
    )
    return msgspec.json.encode(body)
