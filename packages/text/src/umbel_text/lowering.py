"""From a request in text to a request in tokens, checked against the model.

Stages and messages follow vllm/renderers/params.py and vllm/v1/engine/input_processor.py.  An
engine's input thread dies on an ADD that it cannot validate, so whatever passes here must be
acceptable there.
"""

import msgspec

from umbel_engine import SamplingParams
from umbel_text.errors import InvalidRequestError
from umbel_text.model import TextModel
from umbel_text.request import TextRequest
from umbel_text.sampling import (
    ResolvedSampling,
    check_greedy,
    check_vocabulary,
    resolve,
    resolve_max_tokens,
)

TOP_K_LIMIT = 2**31 - 1
"""The engine keeps top_k in 32 bits; anything beyond the vocabulary means all of it."""

MAX_STOP_TOKENS = 128
"""What a GPU's sampler has room for where min_tokens puts stop tokens off.

vLLM does not check it, and its engine dies of more (vllm/v1/worker/gpu/sample/logit_bias.py).
"""


class LoweredRequest(msgspec.Struct, frozen=True):
    """A checked request in tokens, with what its output needs to become text again."""

    request: TextRequest
    prompt_token_ids: list[int]
    sampling: ResolvedSampling
    sampling_params: SamplingParams


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


def tokenize(request: TextRequest, model: TextModel) -> list[int]:
    """Give the token ids of the prompt; raises InvalidRequestError when it is too long."""
    limit = model.max_model_len
    prompt = request.prompt
    at_least = ""
    if isinstance(prompt, str):
        characters = limit * model.tokenizer.max_characters_per_token
        if len(prompt) > characters:
            raise InvalidRequestError(
                f"This model's maximum context length is {limit} tokens. However, your prompt "
                f"contains {len(prompt)} characters (more than {characters} characters, which is "
                f"the upper bound for {limit} input tokens). Please reduce the length of the input "
                "prompt.",
                "input_text",
                len(prompt),
            )
        prompt = model.tokenizer.encode(prompt, request.add_special_tokens)
        if len(prompt) > limit:
            # vLLM stops tokenizing one token past the limit, and says so.
            prompt, at_least = prompt[: limit + 1], "at least "
    elif len(prompt) == limit + 1:
        at_least = "at least "
    if len(prompt) > limit:
        raise InvalidRequestError(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains "
            f"{at_least}{len(prompt)} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
            len(prompt),
        )
    return prompt


def lower(request: TextRequest, n: int, model: TextModel) -> LoweredRequest:
    """Tokenize and check a request for n samples; raises InvalidRequestError for a fault."""
    check_max_tokens(request, model.max_model_len)
    prompt = tokenize(request, model)
    max_tokens = resolve_max_tokens(
        request.sampling.max_tokens, len(prompt), model.max_model_len, model.defaults
    )
    sampling = resolve(request.sampling, model.defaults, max_tokens)
    check_greedy(sampling, n)
    check_vocabulary(sampling, model.vocabulary_size, model.max_logprobs)
    _check_prompt(prompt, model)
    params = _sampling_params(sampling, model)
    _check_room(params)
    return LoweredRequest(request, prompt, sampling, params)


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
        logprobs=sampling.logprobs,
        eos_token_id=None if sampling.ignore_eos else model.eos_token_id,
        all_stop_token_ids=list(dict.fromkeys(all_stop_token_ids)),
        logit_bias=sampling.logit_bias,
    )
