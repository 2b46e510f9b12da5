"""The events of a streamed chat completion.

Events are assembled from parts rendered once per answer; per event only the text, and what was
asked for beyond it, is encoded.  Fields, order and nulls are those of
vllm/entrypoints/openai/chat_completion/serving.py.
"""

import msgspec

from umbel_chat import ChatDelta
from umbel_engine import Finish, PrefillStats
from umbel_llm import RequestTiming
from umbel_server.responses.chat_deltas import ChoiceDeltas
from umbel_server.responses.context import AnswerContext, chat_prompt_details, timing_metrics
from umbel_server.responses.errors import chat_failure
from umbel_server.responses.events import (
    DONE,
    choice_opening,
    events_head,
    plain_usage,
    usage_event,
)
from umbel_server.responses.extras import NOTHING, weight_versions
from umbel_server.responses.logprobs import chat_logprobs
from umbel_server.responses.tool_calls import finish_reason

encode = msgspec.json.encode

NO_CONTENT = b'"content":""'

NO_REASON = b'"finish_reason":null,'

PLAIN_END = (
    b'},"logprobs":null,"finish_reason":null,"token_ids":null}],"kv_transfer_params":null}\n\n'
)


class ChatFrames:
    """Renders one streamed answer; see `umbel_server.writer.Frames`."""

    __slots__ = (
        "_choices",
        "_context",
        "_deltas",
        "_echo",
        "_generated",
        "_head",
        "_plain",
        "_prefill",
        "_reasoning",
        "_role",
        "_shows_tokens",
        "_timing",
    )

    def __init__(self, context: AnswerContext, role: str, echo: str, n: int) -> None:
        self._context = context
        self._role = role
        self._echo = echo
        self._head = events_head(context, "chat.completion.chunk")
        self._choices = [choice_opening(index, b'"delta":{') for index in range(n)]
        self._deltas = [ChoiceDeltas() for _ in range(n)]
        self._generated = [0] * n
        self._reasoning = [0] * n
        self._prefill: PrefillStats | None = None
        self._timing: RequestTiming | None = None
        wants_tokens = context.return_token_ids or context.logprobs is not None
        self._shows_tokens = wants_tokens and not context.hides_token_ids
        # What makes an event more than its text.
        self._plain = not (self._shows_tokens or context.continuous_usage)

    def begin(self) -> bytes:
        """Give the role of every choice, in index order, then what they echo."""
        context = self._context
        usage = self._usage_field(0, 0)
        ids = encode(context.prompt_token_ids[0]) if context.return_token_ids else b"null"
        end = b'"logprobs":null,"finish_reason":null}]%b' % usage
        role = b'"role":%b,"content":""},%b,"prompt_token_ids":%b,"prompt_text":%b}\n\n'
        tail = role % (encode(self._role), end, ids, encode(context.prompt_text))
        frames = [self._head + choice + tail for choice in self._choices]
        if self._echo:
            tail = b'"content":%b},%b}\n\n' % (encode(self._echo), end)
            frames += [self._head + choice + tail for choice in self._choices]
        return b"".join(frames)

    def item(self, position: int, item: ChatDelta) -> bytes:
        """Give the event of a delta; there is none before the choice's first token."""
        finish = item.finish
        if self._prefill is None:
            self._prefill = item.prefill
        count = len(item.token_ids)
        self._reasoning[position] = item.reasoning_tokens
        if finish is None:
            return self._middle(position, item, count)
        self._generated[position] += count
        self._timing = item.timing
        deltas = self._deltas[position]
        calls = deltas.calls
        delta = deltas.render(item.events)
        if deltas.calls == calls:
            return self._end(position, item, finish, delta)
        # openai's client misses the end of a call that begins in the event with the finish reason.
        beginning = self._event(position, item, delta, NO_REASON)
        rest = msgspec.structs.replace(item, token_ids=[], logprobs=None)
        return beginning + self._end(position, rest, finish, b"")

    def _end(self, position: int, item: ChatDelta, finish: Finish, delta: bytes) -> bytes:
        """Give the event that tells why a choice ended."""
        has_calls = self._deltas[position].calls > 0
        reason = finish_reason(finish, has_calls, self._context.names_tool)
        reasons = b'"finish_reason":%b,"stop_reason":%b,' % (
            encode(reason),
            encode(finish.stop_reason),
        )
        if not delta and not self._context.is_parsed and self._generated[position]:
            delta = NO_CONTENT
        fingerprint = b""
        if not self._context.include_usage and self._context.fingerprint is not None:
            fingerprint = b',"system_fingerprint":%b' % encode(self._context.fingerprint)
        extras = item.extras or NOTHING
        versions = b',"weight_versions":%b' % encode(weight_versions(self._context, extras))
        transfer = encode(extras.kv_transfer_params)
        return self._event(position, item, delta, reasons, versions, fingerprint, transfer)

    def _middle(self, position: int, item: ChatDelta, count: int) -> bytes:
        """Give the event of a delta that is not the last one."""
        delta = self._deltas[position].render(item.events)
        if not delta:
            if not count and not self._generated[position]:
                return b""
            if not self._context.is_parsed:
                delta = NO_CONTENT
            elif not self._shows_tokens:
                # The parser waits for more, or what it found is not shown.
                self._generated[position] += count
                return b""
        self._generated[position] += count
        if self._plain:
            return b"".join((self._head, self._choices[position], delta, PLAIN_END))
        return self._event(position, item, delta, NO_REASON)

    def _event(
        self,
        position: int,
        item: ChatDelta,
        delta: bytes,
        reason: bytes,
        versions: bytes = b"",
        fingerprint: bytes = b"",
        transfer: bytes = b"null",
    ) -> bytes:
        context = self._context
        logprobs = token_ids = b"null"
        if self._shows_tokens:
            if context.logprobs is not None and item.logprobs is not None:
                logprobs = encode(chat_logprobs(item.logprobs, context.logprobs))
            if context.return_token_ids:
                token_ids = encode(item.token_ids)
        return b'%b%b%b},"logprobs":%b,%b"token_ids":%b%b}]%b%b,%b%b}\n\n' % (
            self._head,
            self._choices[position],
            delta,
            logprobs,
            reason,
            token_ids,
            versions,
            self._usage_field(self._generated[position], self._reasoning[position]),
            fingerprint,
            b'"kv_transfer_params":',
            transfer,
        )

    def _usage_field(self, generated: int, reasoning: int) -> bytes:
        if not self._context.continuous_usage:
            return b""
        details = b',"completion_tokens_details":null'
        if self._context.reasoning_details:
            details = b',"completion_tokens_details":{"reasoning_tokens":%d}' % reasoning
        return plain_usage(self._context.prompt_tokens, generated, details)

    def end(self) -> bytes:
        """Give the usage of the whole answer, if it was asked for, and the end."""
        context = self._context
        if not context.include_usage:
            return DONE
        details = chat_prompt_details(context, self._prefill)
        metrics = timing_metrics(context, self._timing)
        reasoning = sum(self._reasoning) if context.reasoning_details else None
        generated = sum(self._generated)
        return usage_event(self._head, context, generated, details, metrics, reasoning) + DONE

    def failure(self, error: Exception) -> bytes:
        """Give the error in place of the rest, and the end."""
        return chat_failure(error) + DONE
