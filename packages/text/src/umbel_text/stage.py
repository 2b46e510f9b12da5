"""From tokens to text, as they arrive."""

from collections.abc import Container, Sequence

import msgspec

from umbel_engine import (
    EngineCoreOutput,
    EngineRequestError,
    Extras,
    Finish,
    Logprobs,
    PrefillStats,
    Step,
    TokenBuffer,
)
from umbel_engine.messages import finish_of
from umbel_llm import ChildStats, RequestTiming
from umbel_text.detokenizer import Detokenizer, LeftContext
from umbel_text.logprobs import LogprobsDecoder, PositionLogprobs
from umbel_text.sampling import ResolvedSampling
from umbel_text.stop import StopMatcher
from umbel_text.tokenizer import Tokenizer
from umbel_text.watched import Piece, WatchedTokens


class TextDelta(msgspec.Struct, frozen=True):
    """What a sample brought since the last hand-over, in text.

    `text` may lag behind `token_ids`: an incomplete character and what may become a stop string
    are held back.  `logprobs` has one entry per token when they were asked for.  `prompt_logprobs`
    and `prefill` come once; siblings have the same prompt, so `decode_prompt_logprobs` is left to
    whoever reads them.  `finish`, `extras` and `timing` come with the last delta.  Where watched
    tokens are among them, `pieces` is text and tokens once more, cut where such tokens end.
    """

    text: str
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: Logprobs | None = None
    prefill: PrefillStats | None = None
    extras: Extras | None = None
    finish: Finish | None = None
    timing: RequestTiming | None = None
    pieces: list[Piece] | None = None


REFUSED = "validation_error"
"""The engine's code for what is the request's fault (vllm/v1/core/sched/scheduler.py)."""

CONSTRAINT_REFUSED = "Invalid structured outputs: the engine could not compile the constraint."


class TextStage(TokenBuffer):
    """Decodes a sample and looks for its stop strings at every step.

    The rules are those of vllm/v1/engine/detokenizer.py: the token that ended the sample shows in
    the token ids but not in the text, and tokens after a stop string do not show at all.
    """

    __slots__ = (
        "_blamed",
        "_detokenizer",
        "_finish",
        "_include_stop",
        "_is_constrained",
        "_logprobs_decoder",
        "_stats",
        "_stop",
        "_text",
        "_watched",
    )

    def __init__(
        self,
        sampling: ResolvedSampling,
        tokenizer: Tokenizer,
        context: LeftContext,
        stats: ChildStats,
    ) -> None:
        super().__init__()
        self._detokenizer = Detokenizer(tokenizer, context, sampling.spaces_between_special_tokens)
        self._include_stop = sampling.include_stop_str_in_output
        self._is_constrained = sampling.structured_outputs is not None
        self._stop: StopMatcher | None = None
        if sampling.stop:
            self._stop = StopMatcher(sampling.stop, self._include_stop, sampling.min_tokens)
        self._logprobs_decoder: LogprobsDecoder | None = None
        if sampling.num_logprobs is not None:
            self._logprobs_decoder = LogprobsDecoder(tokenizer, sampling.num_logprobs)
        self._stats = stats
        self._text: list[str] = []
        self._finish: Finish | None = None
        self._watched: WatchedTokens | None = None
        self._blamed: str | None = None

    def watch(self, token_ids: Container[int]) -> None:
        """Cut the text where these tokens end, from the first token on."""
        self._watched = WatchedTokens(token_ids)

    def blame(self, parameter: str) -> None:
        """Say which field of the request its constraint was made of."""
        self._blamed = parameter

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None:
        """Decode an output; see `umbel_engine.Stage`."""
        finish = finish_of(output) if output.finish_reason is not None else None
        token_ids = output.new_token_ids
        kept = len(token_ids)
        if finish is not None and finish.reason == "stop" and not self._include_stop:
            token_ids = token_ids[:-1]
        if self._stop is None:
            if self._watched is None:
                for token_id in token_ids:
                    self._text.append(self._detokenizer.feed(token_id))
            else:
                for count, token_id in enumerate(token_ids, self.count + 1):
                    self._text.append(self._decode(self._watched, token_id, count))
        elif (match := self._search(self._stop, token_ids)) is not None:
            kept, stop = match
            finish = Finish("stop", stop)
        self.add(output, step, kept)
        if finish is not None:
            if finish.error is not None and self._is_constrained:
                finish = self._refusal(finish, output.error is None)
            self._end(finish)
        return finish

    def _decode(self, watched: WatchedTokens, token_id: int, count: int) -> str:
        text = self._detokenizer.feed(token_id)
        watched.note(token_id, text, count)
        return text

    def _search(self, matcher: StopMatcher, token_ids: Sequence[int]) -> tuple[int, str] | None:
        """Decode tokens up to the first stop string; gives how many those are, and the string."""
        for index, token_id in enumerate(token_ids):
            if self._watched is None:
                decoded = self._detokenizer.feed(token_id)
            else:
                decoded = self._decode(self._watched, token_id, self.count + index + 1)
            text, stop = matcher.feed(decoded)
            self._text.append(text)
            if stop is not None:
                return index + 1, stop
        return None

    def _refusal(self, finish: Finish, is_unsaid: bool) -> Finish:
        """Give an error as one of the constraint, if that is its cause.

        An engine of 0.32 ends a request without a word whose constraint does not compile; 0.33 says
        it.
        """
        error = finish.error
        if is_unsaid and self.count == 0:
            error = EngineRequestError(CONSTRAINT_REFUSED, REFUSED)
        if isinstance(error, EngineRequestError) and error.code == REFUSED:
            error = EngineRequestError(str(error), REFUSED, error.retryable, self._blamed)
        return Finish("error", error=error)

    def end(self, finish: Finish) -> None:
        """End the sample from this side; see `umbel_engine.Stage`."""
        self._end(finish)

    def _end(self, finish: Finish) -> None:
        self._finish = finish
        if self._stop is not None:
            self._text.append(self._stop.finish())

    def take(self) -> TextDelta:
        """Give what is pending and begin anew."""
        finish = self._finish
        tokens = self.collect(finish)
        logprobs: list[PositionLogprobs] | None = None
        if self._logprobs_decoder is not None:
            if tokens.logprobs is not None:
                logprobs = self._logprobs_decoder.feed(tokens.logprobs)
            elif not tokens.token_ids:
                logprobs = []
        text = self._text[0] if len(self._text) == 1 else "".join(self._text)
        self._text.clear()
        pieces: list[Piece] | None = None
        if self._watched is not None:
            pieces = self._watched.cut(text, tokens.token_ids, finish is not None)
        return TextDelta(
            text,
            tokens.token_ids,
            logprobs,
            tokens.prompt_logprobs,
            tokens.prefill,
            tokens.extras,
            finish,
            self._stats.timing(self.count) if finish is not None else None,
            pieces,
        )
