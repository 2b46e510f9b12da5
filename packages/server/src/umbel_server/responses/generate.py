"""The body of an answer in tokens.

Fields, order and nulls are those of vllm/entrypoints/scale_out/token_in_token_out/protocol.py.
"""

from collections.abc import Iterable, Sequence

import msgspec

from umbel_chat import ChatDelta
from umbel_engine import FinishReason, Logprobs, TokenDelta, WeightVersionSpan
from umbel_server.responses.context import AnswerContext, completion_prompt_details
from umbel_server.responses.extras import NOTHING, TransferParameters, array_file
from umbel_server.responses.logprobs import LOWEST, ChatLogprobs, Display, chat_logprobs
from umbel_server.responses.message_choice import MessageChoice, message_choice
from umbel_server.usage import Usage, usage_of
from umbel_text import PositionLogprobs, TextDelta, Tokenizer, decode_prompt_logprobs

TokenOutput = TokenDelta | TextDelta
"""What a sample brings; text only where stop strings are looked for in it."""


class GenerateLogprob(msgspec.Struct, frozen=True):
    """One token at one position; the rank counts from 1, None where there is none."""

    token_id: int
    logprob: float
    rank: int | None


class SampledLogprob(msgspec.Struct, frozen=True):
    """The token of one position, and with it the most likely ones, itself first."""

    token_id: int
    logprob: float
    rank: int | None
    top_logprobs: list[GenerateLogprob]


class GenerateLogprobs(msgspec.Struct, frozen=True):
    """The log-probabilities of a choice, one entry per token."""

    content: list[SampledLogprob]


class PromptLogprob(msgspec.Struct, frozen=True):
    """One of the tokens of a prompt position, with its text if that was wanted."""

    logprob: float
    rank: int | None
    decoded_token: str | None


PromptLogprobs = list[dict[int, PromptLogprob] | None]
"""The positions of a prompt by token id; nothing was predicted for the first."""


class GenerateChoice(msgspec.Struct, frozen=True):
    """One of the n samples."""

    index: int
    finish_reason: FinishReason
    stop_reason: int | str | None
    token_ids: list[int]
    routed_experts: str | None
    sampling_mask: None
    weight_versions: list[WeightVersionSpan] | None
    logprobs: GenerateLogprobs | None


class TextChoice(msgspec.Struct, frozen=True):
    """One of the n samples, with its text."""

    index: int
    finish_reason: FinishReason
    stop_reason: int | str | None
    token_ids: list[int]
    routed_experts: str | None
    sampling_mask: None
    weight_versions: list[WeightVersionSpan] | None
    text: str
    logprobs: ChatLogprobs | None


Choice = GenerateChoice | TextChoice | MessageChoice


class GenerateAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a generate request that does not stream; `created` is in seconds."""

    request_id: str
    model: str
    created: int
    usage: Usage
    prompt_logprobs: PromptLogprobs | None
    prompt_token_id_logprobs: str | None
    prompt_token_ids: list[int] | None
    mm_placeholders: None = None
    metrics: None = None
    kv_transfer_params: TransferParameters | None
    ec_transfer_params: TransferParameters | None
    output_mode: str
    choices: list[Choice]


def generate_answer(
    context: AnswerContext,
    output_mode: str,
    outputs: Sequence[TokenOutput | ChatDelta],
    prompt_logprobs: PromptLogprobs | None,
) -> bytes:
    """Render the answer from the whole output of each sample.

    `output_mode` is "tokens", "text" where the outputs have one, or "derender" for messages.
    """
    first = outputs[0]
    extras = first.extras or NOTHING
    generated = sum(len(output.token_ids) for output in outputs)
    details = completion_prompt_details(context, first.prefill)
    answer = GenerateAnswer(
        request_id=context.id,
        model=context.model,
        created=context.created,
        usage=usage_of(context.prompt_tokens, generated, details),
        prompt_logprobs=prompt_logprobs,
        prompt_token_id_logprobs=array_file(extras.prompt_token_id_logprobs),
        prompt_token_ids=context.prompt_token_ids[0] if context.return_token_ids else None,
        kv_transfer_params=extras.kv_transfer_params,
        ec_transfer_params=extras.ec_transfer_params,
        output_mode=output_mode,
        choices=[
            _choice(context, output_mode, index, output) for index, output in enumerate(outputs)
        ],
    )
    return msgspec.json.encode(answer)


def _choice(
    context: AnswerContext, output_mode: str, index: int, output: TokenOutput | ChatDelta
) -> Choice:
    if isinstance(output, ChatDelta):
        return message_choice(context, index, output)
    finish, extras = output.finish, output.extras or NOTHING
    shared = (
        index,
        finish.reason if finish is not None else "stop",
        finish.stop_reason if finish is not None else None,
        output.token_ids,
        array_file(extras.routed_experts),
        None,
        extras.weight_versions,
    )
    # Stop strings are looked for in a text that nobody wants.
    if output_mode == "tokens" or isinstance(output, TokenDelta):
        return GenerateChoice(*shared, choice_logprobs(context, output))
    return TextChoice(*shared, output.text, text_logprobs(context, output))


def text_logprobs(context: AnswerContext, output: TextDelta) -> ChatLogprobs | None:
    """Give the log-probabilities that an output brought, as those of a chat."""
    if context.logprobs is None or output.logprobs is None:
        return None
    return chat_logprobs(output.logprobs, Display(-1))


def choice_logprobs(context: AnswerContext, output: TokenOutput) -> GenerateLogprobs | None:
    """Give the log-probabilities that an output brought, None where they are not shown."""
    if context.logprobs is None:
        return None
    rows: Iterable[list[GenerateLogprob]]
    if output.logprobs is None:
        if output.token_ids:
            return None
        rows = ()
    elif isinstance(output.logprobs, Logprobs):
        rows = _rows(output.logprobs, context.logprobs.top)
    else:
        rows = map(_row_of_text, output.logprobs)
    return GenerateLogprobs(
        [SampledLogprob(row[0].token_id, row[0].logprob, row[0].rank, row) for row in rows]
    )


def prompt_logprobs_of(
    logprobs: Logprobs | None, number: int, tokenizer: Tokenizer | None
) -> PromptLogprobs:
    """Give the log-probabilities of a whole prompt, with text if there is a tokenizer for it.

    `number` is how many tokens were asked for besides that of the prompt, -1 for all.
    """
    result: PromptLogprobs = [None]
    if tokenizer is not None:
        for position in decode_prompt_logprobs(tokenizer, logprobs, number)[1:]:
            result.append(
                {
                    entry.token_id: PromptLogprob(_finite(entry.logprob), entry.rank, entry.text)
                    for entry in position or ()
                }
            )
    elif logprobs is not None:
        for row in _rows(logprobs, number):
            result.append(
                {entry.token_id: PromptLogprob(entry.logprob, entry.rank, None) for entry in row}
            )
    return result


def _rows(logprobs: Logprobs, top: int) -> Iterable[list[GenerateLogprob]]:
    """Give the tokens of each position, each once: its own, then the `top` most likely, -1 for all.

    A step of the engine may bring more than this request has asked for.
    """
    rows: Iterable[tuple[list[int], list[float], int]] = zip(
        logprobs.token_ids.tolist(),
        logprobs.logprobs.tolist(),
        logprobs.ranks.tolist(),
        strict=True,
    )
    for token_ids, values, own_rank in rows:
        # A token that is also among the most likely keeps its place and gets the rank of the second
        # entry, as in vllm/logprobs.py.
        entries: dict[int, GenerateLogprob] = {}
        count = len(token_ids) if top == -1 else min(len(token_ids), top + 1)
        for index in range(count):
            # The engine's rank of a token without a probability is 0, which is none.
            rank = index or own_rank or None
            token_id = token_ids[index]
            entries[token_id] = GenerateLogprob(token_id, _finite(values[index]), rank)
        yield list(entries.values())


def _row_of_text(position: PositionLogprobs) -> list[GenerateLogprob]:
    return [
        GenerateLogprob(entry.token_id, _finite(entry.logprob), entry.rank or None)
        for entry in position
    ]


def _finite(logprob: float) -> float:
    """Give what stands for a log-probability in JSON, which knows neither infinity nor NaN."""
    return logprob if logprob > LOWEST else LOWEST
