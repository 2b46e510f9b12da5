"""A rendered request: what a generate request of vLLM's scale-out API carries.

Fields and order are those of GenerateRequest in
vllm/entrypoints/scale_out/token_in_token_out/protocol.py and of SamplingParams in
vllm/sampling_params.py.
"""

from collections.abc import Mapping

import msgspec

from umbel_engine import RepetitionDetection, StructuredOutputs
from umbel_server.requests.parse_context import ParseContext
from umbel_server.requests.shared import StreamOptions
from umbel_text import LoweredRequest
from umbel_text.sampling import ResolvedSampling

Object = dict[str, object]

STREAMED, WHOLE = 1, 2
"""How vLLM's engine side hands over: piece by piece, or at the end (RequestOutputKind)."""


class RenderedSampling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The sampling parameters of a rendered request.

    What has no default here is always written, as vLLM does, the rest only where it differs from
    it.  `max_tokens` is written even if it is 16, which vLLM leaves out: a generate request without
    one may go on to the end of the context.
    """

    n: int = 1
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    temperature: float
    watermarking: bool | None = None
    top_p: float | msgspec.UnsetType
    top_k: int = 0
    min_p: float | msgspec.UnsetType
    seed: int | None = None
    stop: list[str]
    stop_token_ids: list[int]
    ignore_eos: bool = False
    max_tokens: int
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    skip_special_tokens: bool = True
    spaces_between_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    output_kind: int
    stream_interval: int | None = None
    skip_clone: bool
    output_text_buffer_length: int = 0
    structured_outputs: Object | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: Object | None = None
    bad_words: list[str]
    skip_reading_prefix_cache: bool
    thinking_token_budget: int | None = None
    repetition_detection: Object | None = None
    routed_experts_prompt_start: int = 0


class RenderedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt in tokens, with everything that is needed to generate from it."""

    request_id: str
    token_ids: list[int]
    token_offsets: list[tuple[int, int]] | None
    features: None = None
    content_parts: None = None
    sampling_params: RenderedSampling
    model: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: dict[str, object] | None = None
    return_token_ids: bool | None
    output_mode: str = "tokens"
    parse_context: ParseContext | None
    stream: bool
    stream_options: StreamOptions | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: Object | None
    ec_transfer_params: Object | None


def rendered_sampling(
    lowered: LoweredRequest, n: int, stream: bool, stream_interval: int | None
) -> RenderedSampling:
    """Give the sampling parameters of a lowered request, n among them."""
    sampling = lowered.sampling
    greedy = sampling.greedy
    return RenderedSampling(
        n=n,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        temperature=sampling.temperature,
        watermarking=lowered.request.sampling.watermarking,
        top_p=msgspec.UNSET if greedy else sampling.top_p,
        top_k=sampling.top_k,
        min_p=msgspec.UNSET if greedy else sampling.min_p,
        seed=sampling.seed,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        logprobs=sampling.logprobs,
        prompt_logprobs=sampling.prompt_logprobs,
        logprob_token_ids=sampling.logprob_token_ids,
        skip_special_tokens=sampling.skip_special_tokens,
        spaces_between_special_tokens=sampling.spaces_between_special_tokens,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        output_kind=STREAMED if stream else WHOLE,
        stream_interval=stream_interval,
        skip_clone=True,
        output_text_buffer_length=_held_back(sampling),
        structured_outputs=_constraint(sampling.structured_outputs),
        logit_bias=sampling.logit_bias,
        allowed_token_ids=sampling.allowed_token_ids,
        extra_args=_extra_args(sampling.extra_args),
        bad_words=sampling.bad_words,
        # A cached prompt would have no log-probabilities.
        skip_reading_prefix_cache=sampling.prompt_logprobs is not None,
        thinking_token_budget=sampling.thinking_token_budget,
        repetition_detection=_detection(sampling.repetition_detection),
        routed_experts_prompt_start=sampling.routed_experts_prompt_start,
    )


def _held_back(sampling: ResolvedSampling) -> int:
    """Give how many characters wait for what may become a stop string."""
    if not sampling.stop or sampling.include_stop_str_in_output:
        return 0
    return max(map(len, sampling.stop)) - 1


def _constraint(constraint: StructuredOutputs | None) -> Object | None:
    """Give a constraint with every field; which backend enforces it is for whoever generates."""
    if constraint is None:
        return None
    fields = msgspec.structs.asdict(constraint)
    del fields["backend"]
    return {**fields, "_backend": None, "_backend_was_auto": False}


def _detection(detection: RepetitionDetection | None) -> Object | None:
    return None if detection is None else msgspec.structs.asdict(detection)


def _extra_args(extra_args: Mapping[str, object] | None) -> Object | None:
    """Give the extra arguments without those that have fields of their own."""
    own = ("kv_transfer_params", "ec_transfer_params")
    return {name: value for name, value in (extra_args or {}).items() if name not in own} or None
