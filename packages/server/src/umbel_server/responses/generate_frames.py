"""The events of a streamed answer in tokens.

Fields, order and nulls are those of vllm/entrypoints/scale_out/token_in_token_out/serving.py.
"""

import msgspec

from umbel_engine import PrefillStats, TokenDelta
from umbel_server.responses.context import AnswerContext, completion_prompt_details
from umbel_server.responses.errors import completion_failure
from umbel_server.responses.events import DONE, Details, UsageEvent
from umbel_server.responses.extras import NOTHING, array_file
from umbel_server.responses.generate import (
    GenerateLogprobs,
    TokenOutput,
    choice_logprobs,
    text_logprobs,
)
from umbel_server.responses.logprobs import ChatLogprobs
from umbel_server.usage import usage_of

encode = msgspec.json.encode

PLAIN_MIDDLE = b',"routed_experts":null,"sampling_mask":null,"weight_versions":null'
PLAIN_END = b',"logprobs":null}]}\n\n'


class GenerateFrames:
    """Renders one streamed answer; see `umbel_server.writer.Frames`.

    With `text`, outputs have a text, and it is shown.
    """

    def __init__(self, context: AnswerContext, text: bool = False) -> None:
        self._context = context
        self._mode = b"text" if text else b"tokens"
        self._text = text
        self._head = b'data: {"request_id":%b,"usage":' % encode(context.id)
        self._choices = [
            b',"output_mode":"%b","choices":[{"index":%d,"finish_reason":' % (self._mode, index)
            for index in range(context.n)
        ]
        self._plain_heads = [
            b'%bnull%bnull,"stop_reason":null,"token_ids":' % (self._head, choice)
            for choice in self._choices
        ]
        self._generated = [0] * context.n
        self._prefill: PrefillStats | None = None
        self._owes_prompt = context.return_token_ids
        self._plain = not context.continuous_usage and context.logprobs is None

    def begin(self) -> bytes:
        """Give nothing: the answer begins with its first tokens."""
        return b""

    def item(self, position: int, item: TokenOutput) -> bytes:
        """Give the event of an output; one without tokens has none unless it is the last."""
        if self._prefill is None:
            self._prefill = item.prefill
        if item.finish is None and not item.token_ids:
            return b""
        self._generated[position] += len(item.token_ids)
        if self._plain and item.finish is None and not self._owes_prompt:
            return b"%b%b%b%b%b" % (
                self._plain_heads[position],
                encode(item.token_ids),
                PLAIN_MIDDLE,
                self._text_field(item),
                PLAIN_END,
            )
        return self._event(position, item)

    def _event(self, position: int, item: TokenOutput) -> bytes:
        context, finish = self._context, item.finish
        extras = item.extras or NOTHING
        usage, prompt = b"null", b""
        if context.continuous_usage:
            usage = encode(usage_of(context.prompt_tokens, self._generated[position]))
        if self._owes_prompt:
            self._owes_prompt = False
            prompt = b',"prompt_token_ids":%b' % encode(context.prompt_token_ids[0])
        return (
            b'%b%b%b%b%b,"stop_reason":%b,"token_ids":%b,"routed_experts":%b,"sampling_mask":null,'
            b'"weight_versions":%b%b,"logprobs":%b}]}\n\n'
        ) % (
            self._head,
            usage,
            prompt,
            self._choices[position],
            encode(finish.reason) if finish is not None else b"null",
            encode(finish.stop_reason) if finish is not None else b"null",
            encode(item.token_ids),
            encode(array_file(extras.routed_experts)),
            encode(extras.weight_versions),
            self._text_field(item),
            encode(self._logprobs(item)),
        )

    def _text_field(self, item: TokenOutput) -> bytes:
        if not self._text or isinstance(item, TokenDelta):
            return b""
        return b',"text":%b' % encode(item.text)

    def _logprobs(self, item: TokenOutput) -> GenerateLogprobs | ChatLogprobs | None:
        if not self._text or isinstance(item, TokenDelta):
            return choice_logprobs(self._context, item)
        return text_logprobs(self._context, item)

    def end(self) -> bytes:
        """Give the usage of the whole answer, if it was asked for, and the end."""
        context = self._context
        if not context.include_usage:
            return DONE
        generated = sum(self._generated)
        details = completion_prompt_details(context, self._prefill)
        usage = UsageEvent(
            context.prompt_tokens,
            context.prompt_tokens + generated,
            generated,
            Details(details.cached_tokens) if details is not None else None,
        )
        event = b'%b%b,"output_mode":"%b","choices":[]}\n\n'
        return event % (self._head, encode(usage), self._mode) + DONE

    def failure(self, error: Exception) -> bytes:
        """Give the error in place of the rest, and the end."""
        return completion_failure(error) + DONE
