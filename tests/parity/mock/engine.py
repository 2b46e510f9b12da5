"""What the mock engine says in a row of the table, the same to either server."""

from typing import NamedTuple

import msgspec
import numpy as np

from umbel_engine.messages import Logprobs
from umbel_engine.mock import DEFAULT_READY, MockEngine, MockStep, child_index
from umbel_engine.mock_script import made_up_scores
from umbel_engine.wire import PrefillStats, RequestFault

from .model import MARKERS, MESSAGE_END, build_tokenizer

MAX_MODEL_LEN = 512

CANDIDATES = range(300, 308)
"""The tokens that stand in log-probabilities, next to the sampled one, most likely first."""

READY = msgspec.structs.replace(DEFAULT_READY, max_model_len=MAX_MODEL_LEN)

_tokenizer = build_tokenizer(MARKERS)


class Answer(NamedTuple):
    """What the engine says to one sample: token ids by step, then an end unless one came before.

    An end comes before where the engine's rules make one: at the sample's max_tokens, its
    end-of-sequence or a stop token.  `logprobs` False leaves them out although asked for.
    """

    steps: tuple[tuple[int, ...], ...]
    finish: str | None = "length"
    stop_reason: int | str | None = None
    error: RequestFault | None = None
    kv_transfer_params: dict[str, object] | None = None
    cached_tokens: int = 0
    impossible: bool = False
    hidden: bool = False

    def script(self, request):
        """Give the steps for a request."""
        steps = list(self._steps(request))
        if not steps or steps[-1].reason is None:
            end = {"finish": self.finish, "stop_reason": self.stop_reason, "error": self.error}
            if self.error is not None or not steps:
                steps.append(MockStep(**end))
            else:
                steps[-1] = msgspec.structs.replace(steps[-1], **end)
        steps[-1] = msgspec.structs.replace(steps[-1], kv_transfer_params=self.kv_transfer_params)
        count = len(request.prompt_token_ids or ())
        steps[0] = msgspec.structs.replace(
            steps[0],
            prefill=PrefillStats(
                count, count - self.cached_tokens, self.cached_tokens, self.cached_tokens
            ),
            prompt_logprobs=self._prompt_logprobs(request),
            prompt_token_id_logprobs=made_up_scores(request.sampling_params),
        )
        return steps

    def _steps(self, request):
        params = request.sampling_params
        count = 0
        for step in self.steps:
            said, finish, stop_reason = [], None, None
            for token_id in step:
                said.append(token_id)
                count += 1
                finish, stop_reason = end_of(token_id, count, params)
                if finish is not None:
                    break
            yield MockStep(
                token_ids=said,
                logprobs=self._logprobs(said, params),
                finish=finish,
                stop_reason=stop_reason,
            )
            if finish is not None:
                return

    def _logprobs(self, token_ids, params):
        if self.hidden or (params.logprobs is None and params.logprob_token_ids is None):
            return None
        if params.logprob_token_ids is not None:
            rows = [[token_id, *params.logprob_token_ids] for token_id in token_ids]
            return self._table(rows, token_ids, len(params.logprob_token_ids))
        return self._best(token_ids, params.logprobs)

    def _prompt_logprobs(self, request):
        count = request.sampling_params.prompt_logprobs
        if count is None or self.hidden:
            return None
        return self._best(request.prompt_token_ids[1:], count)

    def _best(self, token_ids, count):
        if count < 0:
            count = len(CANDIDATES)
        rows = [[token_id, *best(token_id)[:count]] for token_id in token_ids]
        return self._table(rows, token_ids, count)

    def _table(self, rows, token_ids, count):
        shape = len(rows), count + 1
        values = [[logprob(token_id, row[0]) for token_id in row] for row in rows]
        values = np.array(values, np.float32).reshape(shape)
        if self.impossible:
            values[:, -1] = -np.inf
        ids = np.array(rows, np.int64).reshape(shape)
        return Logprobs(ids, values, np.array([rank(item) for item in token_ids], np.int64))


def rank(token_id):
    """Give the rank of a token where it is sampled, from 1 on."""
    return token_id % 3 + 1


def best(sampled):
    """Give the most likely tokens of a position, the best first; the sampled one among them."""
    others = [item for item in CANDIDATES if item != sampled]
    others.insert(rank(sampled) - 1, sampled)
    return others


def logprob(token_id, sampled):
    """Give the log-probability of a token at the position of a sampled one."""
    ranked = best(sampled)
    place = ranked.index(token_id) if token_id in ranked else len(ranked) + token_id % 5
    return -0.1 - 0.7 * place


def end_of(token_id, count, params):
    """Tell whether the engine ends a sample with this token (vllm/v1/core/sched/utils.py)."""
    if count >= params.min_tokens:
        if token_id == params.eos_token_id:
            return "stop", None
        if token_id in params.stop_token_ids:
            return "stop", token_id
    # The engine's default, which vLLM does not send.
    limit = 16 if params.max_tokens is None else params.max_tokens
    return ("length", None) if count == limit else (None, None)


def token_id_of(token):
    """Give the id of a token, which is an id already or a text that is one token."""
    if isinstance(token, int):
        return token
    (token_id,) = _tokenizer.encode(token, add_special_tokens=False).ids
    return token_id


def ids_of(text):
    """Give the token ids of a text."""
    return _tokenizer.encode(text, add_special_tokens=False).ids


def say(*steps, **rest):
    """Write an answer; a step is a token or a tuple of tokens, given by text or id."""
    return Answer(
        tuple(
            tuple(map(token_id_of, step if isinstance(step, tuple) else (step,))) for step in steps
        ),
        **rest,
    )


def end(*steps, **rest):
    """Write an answer that ends with the end-of-sequence token."""
    return say(*steps, MESSAGE_END, **rest)


def spell(text, **rest):
    """Write an answer that says a text token by token."""
    return say(*ids_of(text), **rest)


FALLBACK = say(*["."] * 8)


class ScriptedEngine(MockEngine):
    """An engine that steps when told to and answers by the number of the sample."""

    def __init__(self, timeout=20):
        super().__init__(
            ready=READY, paused=True, timeout=timeout, utilities={"reset_mm_cache": lambda: None}
        )
        self.weight_version = None

    def answer(self, answers, n):
        """Answer the requests that come now: one answer per sample, beginning anew at the end."""
        answers = answers or (FALLBACK,)

        def script(request):
            number = prompt_index(request) * n + child_index(request)
            return answers[number % len(answers)].script(request)

        self.script = script

    def _send_message(self, client_index, message, frames=()):
        message = msgspec.structs.replace(message, weight_version=self.weight_version)
        super()._send_message(client_index, message, frames)


def prompt_index(request):
    """Give the index of a prompt in its list, read from the id; 0 in a chat."""
    external = request.external_req_id or ""
    return int(external.rpartition("-")[2]) if external.startswith("cmpl-") else 0
