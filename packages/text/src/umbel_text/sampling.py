"""Sampling parameters: defaults, rules, and the messages for what breaks them.

Order and wording of the checks are those of vllm/sampling_params.py, so that a request with
several faults gets the same answer.
"""

import math
from typing import TypeVar

import msgspec

from umbel_engine import RepetitionDetection, StructuredOutputs
from umbel_text.defaults import SamplingDefaults
from umbel_text.errors import InvalidRequestError
from umbel_text.extra_args import check_extra_args
from umbel_text.prompt_scores import check_prompt_scores
from umbel_text.request import SamplingOptions

LOWEST_TEMPERATURE = 0.01
"""A positive temperature below this is raised to it (vLLM's _MAX_TEMP)."""

MAX_LOGIT_BIASES = 1024
"""What a GPU's sampler has room for.

vLLM does not check it, and its engine dies of more (vllm/v1/worker/gpu/sample/logit_bias.py).
"""

MAX_ALLOWED_TOKEN_IDS = 1024
"""What a GPU's sampler has room for; its engine dies of more (the same file)."""

MAX_LOGPROB_TOKEN_IDS = 128
"""vLLM's limit on the tokens whose log-probabilities a request names."""

ValueT = TypeVar("ValueT")


class ResolvedSampling(msgspec.Struct, frozen=True, kw_only=True):
    """Sampling parameters with every default filled in.

    `greedy` is true for a temperature of exactly 0, in which case top_p, top_k and min_p are
    neutral.
    """

    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int | None
    stop: list[str]
    stop_token_ids: list[int]
    ignore_eos: bool
    max_tokens: int
    min_tokens: int
    logprobs: int | None
    prompt_logprobs: int | None
    logprob_token_ids: list[int] | None
    prompt_logprob_token_ids: list[list[int]] | None
    prompt_logprob_start: int | None
    skip_special_tokens: bool
    spaces_between_special_tokens: bool
    include_stop_str_in_output: bool
    logit_bias: dict[int, float] | None
    allowed_token_ids: list[int] | None
    bad_words: list[str]
    structured_outputs: StructuredOutputs | None
    repetition_detection: RepetitionDetection | None
    thinking_token_budget: int | None
    watermarking: bool
    routed_experts_prompt_start: int
    extra_args: dict[str, object] | None

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken."""
        return self.temperature == 0

    @property
    def num_logprobs(self) -> int | None:
        """How many tokens are reported with each sampled one; None when none were asked for."""
        if self.logprobs is not None:
            return self.logprobs
        return len(self.logprob_token_ids) if self.logprob_token_ids else None


def resolve_max_tokens(
    requested: int | None, prompt_length: int, max_model_len: int, defaults: SamplingDefaults
) -> int:
    """Give the output limit: what was asked for, or the default, and what the context leaves.

    It may be 0 or less, which is refused with the other parameters
    (vllm/entrypoints/serve/utils/api_utils.py, get_max_tokens).
    """
    limit = max_model_len - prompt_length
    wanted = requested if requested is not None else defaults.max_tokens
    for other in (wanted, defaults.max_tokens_cap):
        if other is not None:
            limit = min(limit, other)
    return limit


def resolve(
    options: SamplingOptions, defaults: SamplingDefaults, max_tokens: int
) -> ResolvedSampling:
    """Fill in defaults and check every value; raises InvalidRequestError for the first fault."""
    logit_bias = _token_ids_of(options.logit_bias)
    temperature = _first(options.temperature, defaults.temperature, 1.0)
    if 0 < temperature < LOWEST_TEMPERATURE:
        temperature = LOWEST_TEMPERATURE
    resolved = ResolvedSampling(
        presence_penalty=_first(options.presence_penalty, defaults.presence_penalty, 0.0),
        frequency_penalty=_first(options.frequency_penalty, defaults.frequency_penalty, 0.0),
        repetition_penalty=_first(options.repetition_penalty, defaults.repetition_penalty, 1.0),
        temperature=temperature,
        top_p=_first(options.top_p, defaults.top_p, 1.0),
        top_k=_first(options.top_k, defaults.top_k, 0),
        min_p=_first(options.min_p, defaults.min_p, 0.0),
        seed=None if options.seed == -1 else options.seed,
        stop=options.stop,
        stop_token_ids=list(dict.fromkeys(options.stop_token_ids)),
        ignore_eos=options.ignore_eos,
        max_tokens=max_tokens,
        min_tokens=options.min_tokens,
        logprobs=options.logprobs,
        prompt_logprobs=options.prompt_logprobs,
        logprob_token_ids=options.logprob_token_ids or None,
        prompt_logprob_token_ids=options.prompt_logprob_token_ids,
        prompt_logprob_start=options.prompt_logprob_start,
        skip_special_tokens=_first(options.skip_special_tokens, defaults.skip_special_tokens, True),
        spaces_between_special_tokens=options.spaces_between_special_tokens,
        include_stop_str_in_output=options.include_stop_str_in_output,
        logit_bias=logit_bias,
        allowed_token_ids=options.allowed_token_ids,
        bad_words=list(dict.fromkeys(options.bad_words)),
        structured_outputs=options.structured_outputs,
        repetition_detection=options.repetition_detection,
        thinking_token_budget=_budget_of(options.thinking_token_budget),
        # An engine without a watermark takes no notice.
        watermarking=options.watermarking is not False,
        routed_experts_prompt_start=options.routed_experts_prompt_start,
        extra_args=options.extra_args or None,
    )
    check_repetition_detection(resolved.repetition_detection)
    check_extra_args(resolved.extra_args)
    _check_penalties(resolved)
    _check_distribution(resolved)
    _check_lengths(resolved)
    _check_seed(resolved.seed)
    if resolved.greedy:
        return msgspec.structs.replace(resolved, top_p=1.0, top_k=0, min_p=0.0)
    return resolved


def check_greedy(sampling: ResolvedSampling, n: int) -> None:
    """Refuse more than one sample without randomness: they would all be the same."""
    if sampling.greedy and n > 1:
        raise InvalidRequestError(f"n must be 1 when using greedy sampling, got {n}.")


def check_vocabulary(
    sampling: ResolvedSampling, vocabulary_size: int, max_logprobs: int, max_model_len: int
) -> None:
    """Check counts and token ids against the model's vocabulary and its longest prompt.

    `max_logprobs` limits the logprobs per token; -1 is no limit but the vocabulary.
    """
    allowed = vocabulary_size if max_logprobs == -1 else max_logprobs
    _check_logprobs_count("sample", "logprobs", sampling.logprobs, vocabulary_size, allowed)
    _check_logprob_token_ids(sampling, vocabulary_size)
    _check_logprobs_count(
        "prompt", "prompt_logprobs", sampling.prompt_logprobs, vocabulary_size, allowed
    )
    check_prompt_scores(
        sampling.prompt_logprob_token_ids,
        sampling.prompt_logprob_start,
        vocabulary_size=vocabulary_size,
        max_token_ids=allowed,
        max_rows=max_model_len - 1,
    )
    _check_known("logit_bias", list(sampling.logit_bias or ()), vocabulary_size)
    _check_known("stop_token_ids", sampling.stop_token_ids, vocabulary_size)
    _check_allowed_token_ids(sampling.allowed_token_ids, vocabulary_size)


def check_thinking(sampling: ResolvedSampling) -> None:
    """Refuse a budget for thinking where nothing tells what thinking is."""
    if sampling.thinking_token_budget is not None:
        raise InvalidRequestError(
            "thinking_token_budget is set but reasoning_config is not configured. Please set "
            "--reasoning-parser and/or --reasoning-config to use thinking_token_budget."
        )


def check_repetition_detection(detection: RepetitionDetection | None) -> None:
    """Refuse sizes that describe no repetition (vLLM's RepetitionDetectionParams)."""
    if detection is None:
        return
    least, most = detection.min_pattern_size, detection.max_pattern_size
    if most < 0 or least < 0 or least > most:
        raise InvalidRequestError(
            "max_pattern_size, min_pattern_size must be >=0, with min_pattern_size <= "
            "max_pattern_size. Set both to 0 to disable repetitive pattern detection."
        )
    if most > 0 and detection.min_count < 2:
        raise InvalidRequestError(
            "min_count must be >= 2 to detect repetitive patterns in engine output. If you do not "
            "wish to detect repetitive patterns, set max_pattern_size to 0."
        )
    for name in ("max_pattern_size", "min_count"):
        if getattr(detection, name) >= 2**31:
            raise InvalidRequestError(f"repetition_detection.{name} must be less than 2**31.")
    if detection.min_count < -(2**63):
        # Nothing is detected, but MessagePack has no room for it.
        raise InvalidRequestError("repetition_detection.min_count must be at least -2**63.")


def _check_logprobs_count(
    kind: str, name: str, requested: int | None, vocabulary_size: int, allowed: int
) -> None:
    if not requested:
        return
    count = vocabulary_size if requested == -1 else requested
    if count > allowed:
        raise InvalidRequestError(
            f"Requested {kind} logprobs of {count}, which is greater than max allowed: {allowed}",
            name,
            count,
        )


def _check_logprob_token_ids(sampling: ResolvedSampling, vocabulary_size: int) -> None:
    token_ids = sampling.logprob_token_ids
    if token_ids is None:
        return
    name, count = "logprob_token_ids", len(token_ids)
    if count > MAX_LOGPROB_TOKEN_IDS:
        raise InvalidRequestError(
            f"Requested {name} of length {count}, which is greater than max allowed: "
            f"{MAX_LOGPROB_TOKEN_IDS}",
            name,
            count,
        )
    _check_known(name, token_ids, vocabulary_size)
    if sampling.logprobs is not None and sampling.logprobs != count:
        raise InvalidRequestError(
            f"When both logprobs and {name} are set, logprobs must equal len({name}). "
            f"Got logprobs={sampling.logprobs}, len({name})={count}.",
            name,
            count,
        )


def _check_allowed_token_ids(token_ids: list[int] | None, vocabulary_size: int) -> None:
    if token_ids is None:
        return
    name = "allowed_token_ids"
    if not token_ids:
        raise InvalidRequestError(f"{name} is not None and empty!", name, token_ids)
    bad = [token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size]
    if bad:
        raise InvalidRequestError(f"{name} contains out-of-vocab token id!", name, bad)
    if len(token_ids) > MAX_ALLOWED_TOKEN_IDS:
        raise InvalidRequestError(
            f"{name} must have at most {MAX_ALLOWED_TOKEN_IDS} tokens, got {len(token_ids)}.",
            name,
            len(token_ids),
        )


def _check_known(name: str, token_ids: list[int], vocabulary_size: int) -> None:
    bad = [token_id for token_id in token_ids if not 0 <= token_id < vocabulary_size]
    if bad:
        raise InvalidRequestError(
            f"token_id(s) {bad} in {name} contain out-of-vocab token ids. "
            f"Vocabulary size: {vocabulary_size}",
            name,
            bad,
        )


def _first(requested: ValueT | None, default: ValueT | None, neutral: ValueT) -> ValueT:
    if requested is not None:
        return requested
    return default if default is not None else neutral


def _token_ids_of(logit_bias: dict[str, float] | None) -> dict[int, float] | None:
    if logit_bias is None:
        return None
    count = len(logit_bias)
    if count > MAX_LOGIT_BIASES:
        raise InvalidRequestError(
            f"logit_bias must have at most {MAX_LOGIT_BIASES} tokens, got {count}.",
            "logit_bias",
            count,
        )
    bad: list[str] = []
    biases: dict[int, float] = {}
    for key, bias in logit_bias.items():
        try:
            # NaN becomes -100 here, as it does in vLLM.
            biases[int(key)] = min(100.0, max(-100.0, bias))
        except ValueError:
            bad.append(key)
    if bad:
        raise InvalidRequestError(
            f"logit_bias contains key(s) that cannot be converted to integer token IDs: {bad}",
            "logit_bias",
            bad,
        )
    return biases


def _budget_of(tokens: int | None) -> int | None:
    if tokens is None or tokens == -1:
        return None
    if tokens < 0:
        raise InvalidRequestError(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            "thinking_token_budget",
            tokens,
        )
    return tokens


def _check_penalties(sampling: ResolvedSampling) -> None:
    for name, value in (
        ("presence_penalty", sampling.presence_penalty),
        ("frequency_penalty", sampling.frequency_penalty),
    ):
        if not -2.0 <= value <= 2.0:
            raise InvalidRequestError(f"{name} must be in [-2, 2], got {value}.")
    penalty = sampling.repetition_penalty
    if not math.isfinite(penalty):
        raise InvalidRequestError(f"repetition_penalty must be a finite number, got {penalty}.")
    if penalty <= 0.0:
        raise InvalidRequestError(f"repetition_penalty must be greater than zero, got {penalty}.")


def _check_distribution(sampling: ResolvedSampling) -> None:
    temperature = sampling.temperature
    if not math.isfinite(temperature):
        fault = "must be a finite number"
    elif temperature < 0.0:
        fault = "must be non-negative"
    elif temperature > 2.0:
        fault = "must be in [0, 2]"
    else:
        fault = ""
    if fault:
        raise InvalidRequestError(
            f"temperature {fault}, got {temperature}.", "temperature", temperature
        )
    if not 0.0 < sampling.top_p <= 1.0:
        raise InvalidRequestError(
            f"top_p must be in (0, 1], got {sampling.top_p}.", "top_p", sampling.top_p
        )
    if sampling.top_k < -1:
        raise InvalidRequestError(
            f"top_k must be 0 (disable), or at least 1, got {sampling.top_k}."
        )
    if not 0.0 <= sampling.min_p <= 1.0:
        raise InvalidRequestError(f"min_p must be in [0, 1], got {sampling.min_p}.")


def _check_lengths(sampling: ResolvedSampling) -> None:
    max_tokens, min_tokens = sampling.max_tokens, sampling.min_tokens
    if max_tokens < 1:
        raise InvalidRequestError(
            f"max_tokens must be at least 1, got {max_tokens}.", "max_tokens", max_tokens
        )
    if min_tokens < 0:
        raise InvalidRequestError(
            f"min_tokens must be greater than or equal to 0, got {min_tokens}."
        )
    if min_tokens > max_tokens:
        raise InvalidRequestError(
            f"min_tokens must be less than or equal to max_tokens={max_tokens}, got {min_tokens}."
        )
    for name, count in (
        ("logprobs", sampling.logprobs),
        ("prompt_logprobs", sampling.prompt_logprobs),
    ):
        if count is not None and count < -1:
            raise InvalidRequestError(
                f"{name} must be non-negative or -1, got {count}.", name, count
            )
    if not all(sampling.stop):
        raise InvalidRequestError("stop cannot contain an empty string.")
    if not all(sampling.bad_words):
        raise InvalidRequestError(
            f"bad_words cannot contain an empty string. Got bad_words={sampling.bad_words}"
        )


def _check_seed(seed: int | None) -> None:
    # vLLM leaves this to its HTTP layer; the wire has no room for more than 64 bits.
    if seed is not None and not -(2**63) <= seed < 2**63:
        raise InvalidRequestError(f"seed must be in [-2**63, 2**63 - 1], got {seed}.", "seed", seed)
