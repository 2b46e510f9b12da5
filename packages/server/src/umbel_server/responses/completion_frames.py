"""The events of a streamed completion.

Fields, order and nulls are those of vllm/entrypoints/openai/completion/serving.py.
"""

from collections.abc import Sequence

import msgspec

from umbel_engine import PrefillStats
from umbel_llm import RequestTiming
from umbel_server.responses.context import (
    AnswerContext,
    completion_prompt_details,
    timing_metrics,
)
from umbel_server.responses.errors import completion_failure
from umbel_server.responses.events import DONE, events_head, plain_usage, usage_event
from umbel_server.responses.logprobs import CompletionLogprobsWriter
from umbel_text import TextDelta

encode = msgspec.json.encode


class CompletionFrames:
    """Renders one streamed answer; see `umbel_server.writer.Frames`.

    `echoes` has the text that stands before the choices of each prompt, or is None.  With
    `prompt_only` nothing but that shows.
    """

    def __init__(
        self, context: AnswerContext, echoes: Sequence[str] | None, prompt_only: bool
    ) -> None:
        count = context.n * len(context.prompt_token_ids)
        self._context = context
        self._echoes = echoes
        self._prompt_only = prompt_only
        self._head = events_head(context, "text_completion")
        self._openings = [
            self._head + b'"choices":[{"index":%d,"text":' % index for index in range(count)
        ]
        self._introduced = [False] * count
        self._generated = [0] * count
        self._logprobs = [CompletionLogprobsWriter() for _ in range(count)]
        self._prefill: PrefillStats | None = None
        self._timing: RequestTiming | None = None
        self._plain_end = (
            b',"logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,'
            b'"token_ids":null,"weight_versions":null}],"kv_transfer_params":null}\n\n'
        )
        # What makes an event more than its text.
        self._plain = not (
            context.return_token_ids
            or context.continuous_usage
            or context.top_logprobs is not None
            or echoes is not None
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
            return self._openings[position] + encode(item.text) + self._plain_end
        return self._event(position, item)

    def _event(self, position: int, item: TextDelta) -> bytes:
        context = self._context
        prompt = context.prompt_token_ids[position // context.n]
        text, prompt_token_ids = "" if self._prompt_only else item.text, b"null"
        if not self._introduced[position]:
            self._introduced[position] = True
            if self._echoes is not None:
                text = self._echoes[position // context.n] + text
            if self._echoes is not None or context.return_token_ids:
                prompt_token_ids = encode(prompt)
        logprobs = b"null"
        if context.top_logprobs is not None and item.logprobs is not None:
            writer = self._logprobs[position]
            logprobs = encode(writer.feed(item.logprobs, context.top_logprobs))
        finish = item.finish
        usage = fingerprint = b""
        if context.continuous_usage:
            usage = plain_usage(len(prompt), self._generated[position])
        if finish is not None and not context.include_usage and context.fingerprint is not None:
            fingerprint = b',"system_fingerprint":%b' % encode(context.fingerprint)
        return (
            b'%b%b,"logprobs":%b,"finish_reason":%b,"stop_reason":%b,"prompt_token_ids":%b,'
            b'"token_ids":%b,"weight_versions":null}]%b%b,"kv_transfer_params":null}\n\n'
        ) % (
            self._openings[position],
            encode(text),
            logprobs,
            encode(finish.reason) if finish is not None else b"null",
            encode(finish.stop_reason) if finish is not None else b"null",
            prompt_token_ids,
            encode(item.token_ids) if context.return_token_ids else b"null",
            usage,
            fingerprint,
        )

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
