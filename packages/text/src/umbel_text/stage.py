"""From tokens to text, as they arrive."""

import msgspec

from umbel_engine import (
    EngineCoreOutput,
    EngineRequestError,
    Extras,
    Finish,
    Logprobs,
    PrefillStats,
    Step,
    TokenStage,
)
from umbel_engine.messages import finish_of
from umbel_llm import ChildStats, RequestTiming
from umbel_text.detokenizer import Detokenizer, LeftContext
from umbel_text.logprobs import LogprobsDecoder, PositionLogprobs
from umbel_text.sampling import ResolvedSampling
from umbel_text.stop import StopMatcher
from umbel_text.tokenizer import Tokenizer


class TextDelta(msgspec.Struct, frozen=True):
    """What a sample brought since the last hand-over, in text.

    `text` may lag behind `token_ids`: an incomplete character and what may become a stop string
    are held back.  `logprobs` has one entry per token when they were asked for.  `prompt_logprobs`
    and `prefill` come once; siblings have the same prompt, so `decode_prompt_logprobs` is left to
    whoever reads them.  `finish`, `extras` and `timing` come with the last delta.
    """

    text: str
    token_ids: list[int]
    logprobs: list[PositionLogprobs] | None = None
    prompt_logprobs: Logprobs | None = None
    prefill: PrefillStats | None = None
    extras: Extras | None = None
    finish: Finish | None = None
    timing: RequestTiming | None = None


REFUSED = "validation_error"
"""The engine's code for what is the request's fault (vllm/v1/core/sched/scheduler.py)."""

CONSTRAINT_REFUSED = "Invalid structured outputs: the engine could not compile the constraint."


class TextStage:
    """Decodes a sample and looks for its stop strings at every step.

    The rules are those of vllm/v1/engine/detokenizer.py: the token that ended the sample shows in
    the token ids but not in the text, and tokens after a stop string do not show at all.
    """

    __slots__ = (
        "_detokenizer",
        "_finish",
        "_include_stop",
        "_is_constrained",
        "_logprobs",
        "_stats",
        "_stop",
        "_text",
        "_tokens",
    )

    def __init__(
        self,
        sampling: ResolvedSampling,
        tokenizer: Tokenizer,
        context: LeftContext,
        stats: ChildStats,
    ) -> None:
        self._tokens = TokenStage()
        self._detokenizer = Detokenizer(tokenizer, context, sampling.spaces_between_special_tokens)
        self._include_stop = sampling.include_stop_str_in_output
        self._is_constrained = sampling.structured_outputs is not None
        self._stop: StopMatcher | None = None
        if sampling.stop:
            self._stop = StopMatcher(sampling.stop, self._include_stop, sampling.min_tokens)
        self._logprobs: LogprobsDecoder | None = None
        if sampling.num_logprobs is not None:
            self._logprobs = LogprobsDecoder(tokenizer, sampling.num_logprobs)
        self._stats = stats
        self._text: list[str] = []
        self._finish: Finish | None = None

    def feed(self, output: EngineCoreOutput, step: Step) -> Finish | None:
        """Decode an output; see `umbel_engine.Stage`."""
        finish = finish_of(output)
        token_ids = output.new_token_ids
        shown = len(token_ids)
        if finish is not None and finish.reason == "stop" and shown and not self._include_stop:
            shown -= 1
        kept = len(token_ids)
        for index in range(shown):
            text = self._detokenizer.feed(token_ids[index])
            if self._stop is not None:
                text, stop = self._stop.feed(text)
                if stop is not None:
                    finish = Finish("stop", stop)
                    kept = index + 1
                    self._text.append(text)
                    break
            self._text.append(text)
        self._tokens.add(output, step, kept)
        if finish is not None:
            if finish.error is not None and output.error is None and self._was_refused():
                finish = Finish("error", error=EngineRequestError(CONSTRAINT_REFUSED, REFUSED))
            self._end(finish)
        return finish

    def _was_refused(self) -> bool:
        """Say whether the constraint is the likely cause of an error that the engine left unsaid.

        An engine of 0.32 ends a request so whose constraint does not compile; 0.33 says it.
        """
        return self._is_constrained and self._tokens.count == 0

    def end(self, finish: Finish) -> None:
        """End the sample from this side; see `umbel_engine.Stage`."""
        self._end(finish)

    def _end(self, finish: Finish) -> None:
        self._finish = finish
        if self._stop is not None:
            self._text.append(self._stop.finish())

    def take(self) -> TextDelta:
        """Give what is pending and begin anew."""
        tokens = self._tokens.collect(self._finish)
        logprobs: list[PositionLogprobs] | None = None
        if self._logprobs is not None:
            if tokens.logprobs is not None:
                logprobs = self._logprobs.feed(tokens.logprobs)
            elif not tokens.token_ids:
                logprobs = []
        delta = TextDelta(
            "".join(self._text),
            tokens.token_ids,
            logprobs,
            tokens.prompt_logprobs,
            tokens.prefill,
            tokens.extras,
            self._finish,
            self._stats.timing(self._tokens.count) if self._finish is not None else None,
        )
        self._text = []
        return delta
