"""From a request in text to a request in tokens, checked against the model.

Stages and messages follow vllm/renderers/params.py and vllm/v1/engine/input_processor.py.  An
engine's input thread dies on an ADD that it cannot validate, so whatever passes here must be
acceptable there.
"""

import msgspec

from umbel_engine import SamplingParams
from umbel_engine.tensors import token_id_rows
from umbel_text.bad_words import tokenize_bad_words
from umbel_text.errors import InvalidRequestError
from umbel_text.model import TextModel
from umbel_text.prompt_scores import check_scored_rows
from umbel_text.request import TextRequest
from umbel_text.sampling import (
    ResolvedSampling,
    check_greedy,
    check_thinking,
    check_vocabulary,
    resolve,
    resolve_max_tokens,
)
from umbel_text.structured_outputs import check_structured_outputs
from umbel_text.truncation import check_truncation, tokenize

TOP_K_LIMIT = 2**31 - 1
"""The engine keeps top_k in 32 bits; anything beyond the vocabulary means all of it."""

MAX_STOP_TOKENS = 128
"""What a GPU's sampler has room for where min_tokens puts stop tokens off.

vLLM does not check it, and its engine dies of more (vllm/v1/worker/gpu/sample/logit_bias.py).
"""


class LoweredRequest(msgspec.Struct, frozen=True):
    """A checked request in tokens, with what its output needs to become text again.

    `token_offsets` has the place of each prompt token in the text, in characters, if it was asked
    for and the prompt was text.
    """

    request: TextRequest
    prompt_token_ids: list[int]
    sampling: ResolvedSampling
    sampling_params: SamplingParams
    token_offsets: list[tuple[int, int]] | None = None


def check_max_tokens(request: TextRequest, max_model_len: int) -> None:
    """Refuse an output limit that no prompt could leave room for."""
    wanted = request.sampling.max_tokens
    if wanted is not None and wanted > max_model_len:
        name = request.max_tokens_name
        raise InvalidRequestError(
            f"{name}={wanted} cannot be greater than max_model_len={max_model_len}. "
            "Please request fewer output tokens.",
            name,
            wanted,
        )


def lower(request: TextRequest, n: int, model: TextModel) -> LoweredRequest:
    """Tokenize and check a request for n samples; raises InvalidRequestError for a fault."""
    check_max_tokens(request, model.max_model_len)
    check_truncation(request, model.max_model_len)
    prompt, offsets = tokenize(request, model)
    max_tokens = resolve_max_tokens(
        request.sampling.max_tokens, len(prompt), model.max_model_len, model.defaults
    )
    sampling = resolve(request.sampling, model.defaults, max_tokens)
    check_greedy(sampling, n)
    check_vocabulary(sampling, model.vocabulary_size, model.max_logprobs, model.max_model_len)
    constraint = sampling.structured_outputs
    if constraint is not None:
        constraint = check_structured_outputs(constraint, model.structured_outputs_backend)
    if not model.limits_thinking:
        check_thinking(sampling)
    _check_prompt(prompt, model)
    _check_routed_experts(sampling.routed_experts_prompt_start, len(prompt))
    check_scored_rows(sampling.prompt_logprob_token_ids, sampling.prompt_logprob_start, len(prompt))
    bad_words = tokenize_bad_words(sampling.bad_words, model.tokenizer, model.vocabulary_size)
    params = msgspec.structs.replace(
        _sampling_params(sampling, model),
        structured_outputs=constraint,
        bad_words_token_ids=bad_words or None,
    )
    _check_room(params)
    return LoweredRequest(request, prompt, sampling, params, offsets)


def _check_routed_experts(start: int, prompt_length: int) -> None:
    if not 0 <= start <= prompt_length:
        raise InvalidRequestError(
            f"routed_experts_prompt_start must be between 0 and the prompt length "
            f"({prompt_length}), inclusive.",
            "routed_experts_prompt_start",
            start,
        )


def _check_prompt(prompt: list[int], model: TextModel) -> None:
    if not prompt:
        raise InvalidRequestError("The decoder prompt cannot be empty")
    for token_id in (min(prompt), max(prompt)):
        # vLLM also lets through ids that only the tokenizer knows; the model has no row for them.
        if not 0 <= token_id < model.vocabulary_size:
            raise InvalidRequestError(f"Token id {token_id} is out of vocabulary")


def _check_room(params: SamplingParams) -> None:
    stop_tokens = len(params.all_stop_token_ids)
    if params.min_tokens and stop_tokens > MAX_STOP_TOKENS:
        raise InvalidRequestError(
            f"With min_tokens there must be at most {MAX_STOP_TOKENS} stop tokens, the model's own "
            f"included, got {stop_tokens}.",
            "stop_token_ids",
            stop_tokens,
        )


def _sampling_params(sampling: ResolvedSampling, model: TextModel) -> SamplingParams:
    stop_token_ids = sampling.stop_token_ids
    rows = sampling.prompt_logprob_token_ids
    all_stop_token_ids = list(stop_token_ids)
    if model.eos_token_id is not None:
        all_stop_token_ids.append(model.eos_token_id)
    all_stop_token_ids += model.extra_eos_token_ids
    if not sampling.ignore_eos:
        stop_token_ids = [*model.extra_eos_token_ids, *stop_token_ids]
    return SamplingParams(
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=min(sampling.top_k, TOP_K_LIMIT),
        min_p=sampling.min_p,
        seed=sampling.seed,
        stop_token_ids=list(dict.fromkeys(stop_token_ids)),
        ignore_eos=sampling.ignore_eos,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        thinking_token_budget=sampling.thinking_token_budget,
        watermarking=sampling.watermarking,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        logprob_token_ids=sampling.logprob_token_ids,
        prompt_logprob_token_ids=None if rows is None else token_id_rows(rows),
        prompt_logprob_start=sampling.prompt_logprob_start,
        eos_token_id=None if sampling.ignore_eos else model.eos_token_id,
        all_stop_token_ids=list(dict.fromkeys(all_stop_token_ids)),
        logit_bias=sampling.logit_bias,
        allowed_token_ids=sampling.allowed_token_ids,
        extra_args=sampling.extra_args,
        repetition_detection=sampling.repetition_detection,
        routed_experts_prompt_start=sampling.routed_experts_prompt_start,
    )
