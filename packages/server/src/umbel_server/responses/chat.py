"""The body of a chat completion.

Fields, order and nulls are those of vllm/entrypoints/openai/chat_completion/protocol.py.
"""

from collections.abc import Sequence

import msgspec

from umbel_chat import ChatDelta
from umbel_engine import FinishReason
from umbel_server.responses.context import (
    AnswerContext,
    TimingMetrics,
    chat_prompt_details,
    timing_metrics,
)
from umbel_server.responses.logprobs import ChatLogprobs, chat_logprobs
from umbel_server.usage import Usage, usage_of


class Message(msgspec.Struct, frozen=True):
    """What the model said."""

    role: str
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    reasoning: str | None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """One of the n answers."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    routed_experts: None = None
    weight_versions: None = None


class ChatCompletion(msgspec.Struct, frozen=True):
    """The answer to a chat request that does not stream."""

    id: str
    object: str
    created: int
    model: str
    choices: list[ChatChoice]
    service_tier: None
    system_fingerprint: str | None
    usage: Usage
    prompt_logprobs: None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: None = None
    kv_transfer_params: None = None
    ec_transfer_params: None = None
    metrics: TimingMetrics | None = None


def chat_completion(
    context: AnswerContext, role: str, echo: str, deltas: Sequence[ChatDelta]
) -> bytes:
    """Render the answer from the whole output of each sample, in index order.

    `echo` stands before the content of every choice.
    """
    choices = []
    for index, delta in enumerate(deltas):
        finish = delta.finish
        logprobs = None
        if context.top_logprobs is not None and delta.logprobs is not None:
            logprobs = chat_logprobs(delta.logprobs, context.top_logprobs)
        choices.append(
            ChatChoice(
                index,
                Message(role, echo + delta.content),
                logprobs,
                finish.reason if finish is not None else None,
                finish.stop_reason if finish is not None else None,
                delta.token_ids if context.return_token_ids else None,
            )
        )
    first = deltas[0]
    body = ChatCompletion(
        context.id,
        "chat.completion",
        context.created,
        context.model,
        choices,
        None,
        context.fingerprint,
        usage_of(
            context.prompt_tokens,
            sum(len(delta.token_ids) for delta in deltas),
            chat_prompt_details(context, first.prefill),
        ),
        prompt_token_ids=context.prompt_token_ids[0] if context.return_token_ids else None,
        metrics=timing_metrics(context, first.timing),
    )
    return msgspec.json.encode(body)
