"""Text in, text out, n times."""

from collections.abc import Callable
from typing import TypeVar

from umbel_engine import Samples, Stage
from umbel_llm import ChildStats, GenerateRequest, Llm
from umbel_text.detokenizer import left_context
from umbel_text.lowering import LoweredRequest, lower
from umbel_text.model import TextModel
from umbel_text.request import TextRequest
from umbel_text.sampling import check_greedy
from umbel_text.stage import TextDelta, TextStage

ItemT = TypeVar("ItemT")


class TextLlm:
    """Generates samples of text prompts.

    `llm` may be None where requests are only lowered, as a render server does.
    """

    def __init__(self, model: TextModel, llm: Llm | None = None) -> None:
        self.model = model
        self._llm = llm

    @property
    def generates(self) -> bool:
        """Whether there is a layer below, so that more can be done than to lower requests."""
        return self._llm is not None

    @property
    def llm(self) -> Llm:
        """The layer below; raises RuntimeError when there is none."""
        if self._llm is None:
            raise RuntimeError("this TextLlm lowers requests only; it was made without an Llm")
        return self._llm

    def lower(self, request: TextRequest, n: int = 1) -> LoweredRequest:
        """Tokenize and check a request; raises InvalidRequestError for the first fault."""
        return lower(request, n, self.model)

    def generate(self, request: TextRequest | LoweredRequest) -> Samples[TextDelta]:
        """Prepare the one sample of a request; the same as `generate_n` with n = 1."""
        return self.generate_n(request, 1)

    def generate_n(self, request: TextRequest | LoweredRequest, n: int) -> Samples[TextDelta]:
        """Prepare n samples of a request, in index order; it is tokenized once.

        Nothing is sent before the samples are entered with `async with`.  Raises
        InvalidRequestError for a fault in the request and ValueError when n is less than 1.
        """
        return self.generate_with(request, n, _itself)

    def generate_with(
        self,
        request: TextRequest | LoweredRequest,
        n: int,
        stage: Callable[[TextStage], Stage[ItemT]],
    ) -> Samples[ItemT]:
        """Prepare n samples whose items come out of stages put on top of the text stages."""
        lowered = request if isinstance(request, LoweredRequest) else self.lower(request, n)
        # One that was lowered before may have been checked for another n.
        check_greedy(lowered.sampling, n)
        sampling, tokenizer = lowered.sampling, self.model.tokenizer
        context = left_context(tokenizer, lowered.prompt_token_ids, sampling.skip_special_tokens)

        def make(stats: ChildStats) -> Stage[ItemT]:
            return stage(TextStage(sampling, tokenizer, context, stats))

        return self.llm.generate_with(_generate_request(lowered), n, make)


def _itself(stage: TextStage) -> TextStage:
    return stage


def _generate_request(lowered: LoweredRequest) -> GenerateRequest:
    request = lowered.request
    return GenerateRequest(
        request_id=request.request_id,
        prompt_token_ids=lowered.prompt_token_ids,
        sampling_params=lowered.sampling_params,
        arrival_time=request.arrival_time,
        response_id=request.response_id,
        stream_interval=request.stream_interval,
        cache_salt=request.cache_salt,
        data_parallel_rank=request.data_parallel_rank,
        priority=request.priority,
        session_id=request.session_id,
        reasoning_ended=request.reasoning_ended,
        reasoning_parser_kwargs=request.reasoning_parser_kwargs,
        trace_headers=request.trace_headers,
    )
