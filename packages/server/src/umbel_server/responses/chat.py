"""The body of a chat completion.

Fields, order and nulls are those of vllm/entrypoints/openai/chat_completion/protocol.py.
"""

from collections.abc import Sequence

import msgspec

from umbel_chat import ChatDelta
from umbel_engine import WeightVersionSpan
from umbel_server.responses.context import (
    AnswerContext,
    TimingMetrics,
    chat_prompt_details,
    timing_metrics,
)
from umbel_server.responses.extras import (
    NOTHING,
    TransferParameters,
    array_file,
    weight_versions,
)
from umbel_server.responses.logprobs import (
    ChatLogprobs,
    PromptTokenLogprob,
    chat_logprobs,
    prompt_logprobs,
)
from umbel_server.responses.tool_calls import Parts, ToolCall, finish_reason, parts_of
from umbel_server.usage import Usage, usage_of
from umbel_text import PositionLogprobs


class Message(msgspec.Struct, frozen=True):
    """What the model said."""

    role: str
    content: str | None
    refusal: None = None
    annotations: None = None
    audio: None = None
    function_call: None = None
    tool_calls: list[ToolCall] | msgspec.UnsetType = msgspec.UNSET
    reasoning: str | None = None


class ChatChoice(msgspec.Struct, frozen=True):
    """One of the n answers."""

    index: int
    message: Message
    logprobs: ChatLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | None
    token_ids: list[int] | None
    routed_experts: str | None = None
    weight_versions: list[WeightVersionSpan] | None = None


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
    prompt_logprobs: list[dict[int, PromptTokenLogprob] | None] | None = None
    prompt_token_ids: list[int] | None = None
    prompt_text: str | None = None
    kv_transfer_params: TransferParameters | None = None
    ec_transfer_params: TransferParameters | None = None
    metrics: TimingMetrics | None = None


def chat_completion(
    context: AnswerContext,
    role: str,
    echo: str,
    deltas: Sequence[ChatDelta],
    prompt: Sequence[PositionLogprobs | None] | None = None,
) -> bytes:
    """Render the answer from the whole output of each sample, in index order.

    `echo` stands before the content of every choice.  `prompt` has the log-probabilities of the
    prompt, if they were asked for.
    """
    first = deltas[0]
    extras = first.extras or NOTHING
    body = ChatCompletion(
        context.id,
        "chat.completion",
        context.created,
        context.model,
        [_choice(context, role, echo, index, delta) for index, delta in enumerate(deltas)],
        None,
        context.fingerprint,
        usage_of(
            context.prompt_tokens,
            sum(len(delta.token_ids) for delta in deltas),
            chat_prompt_details(context, first.prefill),
            sum(delta.reasoning_tokens for delta in deltas) if context.reasoning_details else None,
        ),
        prompt_logprobs=None if prompt is None else prompt_logprobs(prompt),
        prompt_token_ids=context.prompt_token_ids[0] if context.return_token_ids else None,
        prompt_text=context.prompt_text,
        kv_transfer_params=extras.kv_transfer_params,
        ec_transfer_params=extras.ec_transfer_params,
        metrics=timing_metrics(context, first.timing),
    )
    return msgspec.json.encode(body)


def _choice(
    context: AnswerContext, role: str, echo: str, index: int, delta: ChatDelta
) -> ChatChoice:
    finish, extras = delta.finish, delta.extras or NOTHING
    logprobs = None
    if context.logprobs is not None and delta.logprobs is not None:
        logprobs = chat_logprobs(delta.logprobs, context.logprobs)
    parts = parts_of(delta.events)
    reason = None
    if finish is not None:
        reason = finish_reason(finish, bool(parts.calls), context.names_tool)
    shows_tokens = context.return_token_ids and not context.hides_token_ids
    return ChatChoice(
        index,
        message_of(context, role, echo, parts),
        logprobs,
        reason,
        finish.stop_reason if finish is not None else None,
        delta.token_ids if shows_tokens else None,
        array_file(extras.routed_experts),
        weight_versions(context, extras),
    )


def message_of(context: AnswerContext, role: str, echo: str, parts: Parts) -> Message:
    """Give the message that a sample is made of; `echo` stands before its content."""
    content = parts.content
    if content is None and (echo or context.forces_calls or not (parts.calls or parts.reasoning)):
        content = ""
    return Message(
        role,
        None if content is None else echo + content,
        tool_calls=parts.calls or msgspec.UNSET,
        reasoning=parts.reasoning,
    )
