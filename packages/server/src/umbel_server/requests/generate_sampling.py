"""The sampling parameters of a generate request: vLLM's own, as a map.

Fields, types and defaults are those of SamplingParams in vllm/sampling_params.py, and so is the
order of the checks.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec import Struct

from umbel_engine import RepetitionDetection
from umbel_server.errors import bad_request, validation_error
from umbel_server.requests.faults import Faults, Location
from umbel_server.requests.fields import (
    FloatReader,
    ListReader,
    NullableReader,
    Reader,
    StructReader,
    reader_of,
)
from umbel_server.requests.limits import check_n
from umbel_server.requests.structured import StructuredOutputsRequest, constraint_of
from umbel_text import SamplingDefaults, SamplingOptions
from umbel_text.sampling import check_greedy, resolve

UNSENT_MAX_TOKENS = 16
"""What vLLM checks `min_tokens` against where `max_tokens` was left out."""

CONSTRAINTS = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")


class GenerateSampling(Struct, frozen=True, kw_only=True):
    """How to sample, with `max_tokens` unset where the client left it to the server.

    `flat_logprobs`, `output_kind`, `skip_clone` and `output_text_buffer_length` are about vLLM's
    insides and change no answer.
    """

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: bool | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool = False
    max_tokens: int | msgspec.UnsetType | None = msgspec.UNSET
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    prompt_logprob_token_ids: list[list[int]] | None = None
    prompt_logprob_start: int | None = None
    logprob_token_ids: list[int] | None = None
    flat_logprobs: bool = False
    detokenize: bool = True
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: Literal[0, 1, 2] = 0
    stream_interval: int | None = None
    skip_clone: bool = False
    output_text_buffer_length: int = 0
    structured_outputs: StructuredOutputsRequest | None = None
    logit_bias: dict[str, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, object] | None = None
    bad_words: list[str] | None = None
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetection | None = None
    routed_experts_prompt_start: int = 0
    trace_decode_token_ids: list[int] | None = None

    @property
    def stop_strings(self) -> list[str]:
        """The stop strings, of which there may be a single one without a list."""
        return [self.stop] if isinstance(self.stop, str) else self.stop or []


class SamplingReader:
    """Reads the map; what has been read already is given back.

    In vLLM the field takes an object of the class as well, which JSON cannot hold, so every list of
    faults begins with that.
    """

    def __init__(self) -> None:
        self._reader = StructReader(
            GenerateSampling,
            {
                "max_tokens": reader_of(int | None),
                "logit_bias": LogitBiasReader(),
                "prompt_logprob_token_ids": token_id_rows_reader(),
            },
        )

    def read(self, value: object, at: Location, faults: Faults) -> GenerateSampling | None:
        if isinstance(value, GenerateSampling):
            return value
        found = Faults()
        sampling = self._reader.read(value, at, found) if isinstance(value, dict) else None
        if sampling is not None:
            return sampling
        context = {"class": "SamplingParams"}
        faults.add("is_instance_of", at, "must be an object of sampling parameters", value, context)
        if not isinstance(value, dict):
            faults.add("dict_type", at, "must be an object", value)
        faults.extend(found)
        return None


class TokenIdReader:
    """Reads an integer that is written as one."""

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if type(value) is not int:
            faults.add("int_type", at, "must be an integer", value)
        return value


def token_id_rows_reader() -> Reader:
    """Give the reader of rows of token ids, or null."""
    row = ListReader(list[int], TokenIdReader(), None)
    return NullableReader(ListReader(list[list[int]], row, None))


class LogitBiasReader:
    """Reads an object with token ids for keys; they stay text, in its plain form."""

    def __init__(self) -> None:
        self._key = reader_of(int)
        self._bias = FloatReader()

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if value is None:
            return None
        if not isinstance(value, dict):
            faults.add("dict_type", at, "must be an object", value)
            return None
        return {
            str(self._key.read(key, (*at, key), faults)): self._bias.read(bias, (*at, key), faults)
            for key, bias in value.items()
        }


def check_sampling(sampling: GenerateSampling, limit: int) -> None:
    """Check the values as far as that goes without the prompt and the model.

    `limit` is the largest n.  Raises ApiError or umbel_text.InvalidRequestError for the first
    fault.
    """
    _check_constraint(sampling.structured_outputs)
    budget = sampling.thinking_token_budget
    if budget is not None and budget < -1:
        raise validation_error(
            "`thinking_token_budget` must be a non-negative integer or -1 for unlimited.",
            "thinking_token_budget",
            budget,
        )
    check_n(sampling.n, limit)
    max_tokens = sampling.max_tokens
    if max_tokens is msgspec.UNSET:
        max_tokens = UNSENT_MAX_TOKENS
    elif max_tokens is None:
        # What that stands for depends on the prompt.
        max_tokens = max(sampling.min_tokens, 1)
    resolved = resolve(generate_options(sampling, max_tokens, {}), SamplingDefaults(), max_tokens)
    interval = sampling.stream_interval
    if interval is not None and interval < 1:
        name = "stream_interval"
        raise validation_error(f"{name} must be at least 1, got {interval}.", name, interval)
    if sampling.stop and not sampling.detokenize:
        raise bad_request(
            "stop strings are only supported when detokenize is True. Set detokenize=True to use "
            "stop."
        )
    check_greedy(resolved, sampling.n)


def generate_options(
    sampling: GenerateSampling, max_tokens: int | None, more_args: Mapping[str, object]
) -> SamplingOptions:
    """Give the options of the text layer; all but the limit are explicit, as no default applies.

    `more_args` are extra arguments beside those of the map.
    """
    budget = sampling.thinking_token_budget
    return SamplingOptions(
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        stop=sampling.stop_strings,
        stop_token_ids=sampling.stop_token_ids or [],
        ignore_eos=sampling.ignore_eos,
        max_tokens=max_tokens,
        min_tokens=sampling.min_tokens,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        logprob_token_ids=sampling.logprob_token_ids,
        prompt_logprob_token_ids=sampling.prompt_logprob_token_ids,
        prompt_logprob_start=sampling.prompt_logprob_start,
        skip_special_tokens=sampling.skip_special_tokens,
        spaces_between_special_tokens=sampling.spaces_between_special_tokens,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        logit_bias=sampling.logit_bias,
        allowed_token_ids=sampling.allowed_token_ids,
        bad_words=sampling.bad_words or [],
        structured_outputs=constraint_of(sampling.structured_outputs, None),
        repetition_detection=sampling.repetition_detection,
        thinking_token_budget=None if budget == -1 else budget,
        watermarking=sampling.watermarking,
        routed_experts_prompt_start=sampling.routed_experts_prompt_start,
        extra_args={**(sampling.extra_args or {}), **more_args},
    )


def _check_constraint(constraint: StructuredOutputsRequest | None) -> None:
    if constraint is None:
        return
    count = sum(getattr(constraint, name) is not None for name in CONSTRAINTS)
    if count == 1:
        return
    # vLLM shows its object, with two fields that are not the client's.
    shown = {**msgspec.structs.asdict(constraint), "_backend": None, "_backend_was_auto": False}
    if count:
        raise bad_request(
            "You can only use one kind of structured outputs constraint but multiple are "
            f"specified: {shown}"
        )
    raise bad_request(
        f"You must use one kind of structured outputs constraint but none are specified: {shown}"
    )
