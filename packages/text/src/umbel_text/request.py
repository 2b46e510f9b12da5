"""A request in text."""

import time
from typing import Literal

import msgspec

from umbel_engine import RepetitionDetection, StructuredOutputs

TruncationSide = Literal["left", "right"]


class SamplingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to sample, as a caller asks for it; None means the model's default.

    The fields and their meaning are those of vllm/sampling_params.py.  `stop` strings are matched
    here, everything else in the engine.  `logprobs` and `prompt_logprobs` are the numbers of most
    likely tokens to report with each sampled or prompt token, -1 for the whole vocabulary;
    `logprob_token_ids` are tokens to report instead.  The rows of `prompt_logprob_token_ids` are
    tokens whose log-probabilities are wanted at one prompt position each, from `prompt_logprob_start`
    + 1 on (the engine's second model runner has them).  `bad_words` never occur in an answer.
    `extra_args` goes to custom parts of the engine as it is.
    """

    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    max_tokens: int | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprob_token_ids: list[list[int]] | None = None
    prompt_logprob_start: int | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    structured_outputs: StructuredOutputs | None = None
    repetition_detection: RepetitionDetection | None = None
    thinking_token_budget: int | None = None
    watermarking: bool | None = None
    routed_experts_prompt_start: int = 0
    extra_args: dict[str, object] | None = None


class TextRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What to generate from, for every sample alike.

    `prompt` is text or token ids.  `arrival_time` is in seconds of the wall clock, now by default.
    A sample is handed over every `stream_interval` tokens, or, with None, only at its end.
    `max_tokens_name` is what the caller calls the output limit, for messages.
    `truncate_prompt_tokens` is how many tokens of a longer prompt are kept, -1 for as many as leave
    room for one more; `truncation_side` is where it is cut, None for the left with the special
    tokens of the tokenizer kept.  With `return_token_offsets` the place of each token in the text
    is found.  See `umbel_llm.GenerateRequest` for the other fields.
    """

    request_id: str
    prompt: str | list[int]
    sampling: SamplingOptions
    arrival_time: float = msgspec.field(default_factory=time.time)
    add_special_tokens: bool = True
    max_tokens_name: str = "max_tokens"
    truncate_prompt_tokens: int | None = None
    truncation_side: TruncationSide | None = None
    return_token_offsets: bool = False
    response_id: str | None = None
    stream_interval: int | None = 1
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    priority: int = 0
    session_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, object] | None = None
    trace_headers: dict[str, str] | None = None
