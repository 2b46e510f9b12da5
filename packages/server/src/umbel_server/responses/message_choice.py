"""A choice of a generate request that asks for messages.

Fields, order and nulls are those of GenerateDerenderChoice in
vllm/entrypoints/scale_out/token_in_token_out/protocol.py.
"""

import msgspec

from umbel_chat import ChatDelta
from umbel_engine import FinishReason, WeightVersionSpan
from umbel_server.responses.chat import Message, message_of
from umbel_server.responses.context import AnswerContext
from umbel_server.responses.extras import NOTHING, array_file
from umbel_server.responses.logprobs import ChatLogprobs, chat_logprobs
from umbel_server.responses.tool_calls import finish_reason, parts_of


class MessageChoice(msgspec.Struct, frozen=True):
    """One of the n samples, as a message of a chat; hidden reasoning hides its tokens."""

    index: int
    finish_reason: FinishReason | str
    stop_reason: int | str | None
    token_ids: list[int] | None
    routed_experts: str | None
    sampling_mask: None
    weight_versions: list[WeightVersionSpan] | None
    message: Message
    logprobs: ChatLogprobs | None


def message_choice(context: AnswerContext, index: int, output: ChatDelta) -> MessageChoice:
    """Give a choice from the whole output of a sample."""
    finish, extras = output.finish, output.extras or NOTHING
    parts = parts_of(output.events)
    logprobs = None
    if context.logprobs is not None and output.logprobs is not None:
        logprobs = chat_logprobs(output.logprobs, context.logprobs)
    reason = "stop"
    if finish is not None:
        reason = finish_reason(finish, bool(parts.calls), context.names_tool)
    return MessageChoice(
        index,
        reason,
        finish.stop_reason if finish is not None else None,
        None if context.hides_token_ids else output.token_ids,
        array_file(extras.routed_experts),
        None,
        extras.weight_versions,
        message_of(context, "assistant", "", parts),
        logprobs,
    )
