"""The events of a streamed completion.

Fields, order and nulls are those of vllm/entrypoints/openai/completion/serving.py.
"""

import msgspec

from umbel_engine import PrefillStats
from umbel_llm import RequestTiming
from umbel_server.responses.context import (
    AnswerContext,
    completion_prompt_details,
    timing_metrics,
)
from umbel_server.responses.echo import Echo
from umbel_server.responses.errors import completion_failure
from umbel_server.responses.events import (
    DONE,
    choice_opening,
    events_head,
    plain_usage,
    usage_event,
)
from umbel_server.responses.extras import NOTHING, weight_versions
from umbel_server.responses.logprobs import CompletionLogprobsWriter
from umbel_text import TextDelta

encode = msgspec.json.encode

PLAIN_END = (
    b',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
    b'"token_ids":null,"weight_versions":null}],"kv_transfer_params":null}\n\n'
)


class CompletionFrames:
    """Renders one streamed answer; see `umbel_server.writer.Frames`."""

    def __init__(self, context: AnswerContext, echo: Echo) -> None:
        count = context.n * len(context.prompt_token_ids)
        self._context = context
        self._echo = echo
        self._head = events_head(context, "text_completion")
        self._choices = [choice_opening(index, b'"text":') for index in range(count)]
        self._introduced = [False] * count
        self._generated = [0] * count
        self._logprobs: list[CompletionLogprobsWriter] = []
        if context.logprobs is not None:
            self._logprobs = [CompletionLogprobsWriter(context.logprobs) for _ in range(count)]
        self._prefill: PrefillStats | None = None
        self._timing: RequestTiming | None = None
        # What makes an event more than its text.
        self._plain = not (
            context.return_token_ids
            or context.continuous_usage
            or context.logprobs is not None
            or echo.is_on
        )

    def begin(self) -> bytes:
        """Give nothing: a completion begins with its first text."""
        return b""

    def item(self, position: int, item: TextDelta) -> bytes:
        """Give the event of a delta; there is none before the choice's first token."""
        finish = item.finish
        if self._prefill is None:
            self._prefill = item.prefill
        if finish is not None:
            self._timing = item.timing
        count = len(item.token_ids)
        if finish is None and not count and not item.text and not self._generated[position]:
            return b""
        self._generated[position] += count
        if self._plain and finish is None:
            parts = (self._head, self._choices[position], encode(item.text), PLAIN_END)
            return b"".join(parts)
        return self._event(position, item)

    def _event(self, position: int, item: TextDelta) -> bytes:
        context, echo = self._context, self._echo
        prompt = position // context.n
        is_first = not self._introduced[position]
        self._introduced[position] = True
        text, prompt_token_ids = item.text, b"null"
        if is_first and echo.is_on:
            text = echo.text(prompt) + ("" if echo.prompt_only else text)
        if is_first and (echo.is_on or context.return_token_ids):
            prompt_token_ids = encode(context.prompt_token_ids[prompt])
        finish, extras = item.finish, item.extras or NOTHING
        usage = fingerprint = b""
        if context.continuous_usage:
            usage = plain_usage(len(context.prompt_token_ids[prompt]), self._generated[position])
        if finish is not None and not context.include_usage and context.fingerprint is not None:
            fingerprint = b',"system_fingerprint":%b' % encode(context.fingerprint)
        return (
            b'%b%b%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b,'
            b'"token_ids":%b,"weight_versions":%b}]%b%b,"kv_transfer_params":%b}\n\n'
        ) % (
            self._head,
            self._choices[position],
            encode(text),
            self._logprobs_field(position, item, is_first),
            encode(finish.reason) if finish is not None else b"null",
            encode(finish.stop_reason) if finish is not None else b"null",
            prompt_token_ids,
            encode(item.token_ids) if context.return_token_ids else b"null",
            encode(weight_versions(context, extras)),
            usage,
            fingerprint,
            encode(extras.kv_transfer_params),
        )

    def _logprobs_field(self, position: int, item: TextDelta, is_first: bool) -> bytes:
        if not self._logprobs or item.logprobs is None:
            return b"null"
        echo, writer = self._echo, self._logprobs[position]
        if not (is_first and echo.is_on):
            return encode(writer.feed(item.logprobs))
        prompt = position // self._context.n
        echo.see(prompt, item.prompt_logprobs)
        positions = [] if echo.prompt_only else item.logprobs
        return encode(writer.feed([*echo.positions(prompt), *positions], echo.first_token(prompt)))

    def end(self) -> bytes:
        """Give the usage of the whole answer, if it was asked for, and the end."""
        context = self._context
        if not context.include_usage:
            return DONE
        details = completion_prompt_details(context, self._prefill)
        metrics = timing_metrics(context, self._timing)
        return usage_event(self._head, context, sum(self._generated), details, metrics) + DONE

    def failure(self, error: Exception) -> bytes:
        """Give the error in place of the rest, and the end."""
        return completion_failure(error) + DONE
