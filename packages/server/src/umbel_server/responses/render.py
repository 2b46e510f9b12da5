"""A rendered request: what a generate request of vLLM's scale-out API carries.

Fields and order are those of GenerateRequest in
vllm/entrypoints/scale_out/token_in_token_out/protocol.py.
"""

import msgspec

from umbel_server.requests.shared import StreamOptions
from umbel_text import LoweredRequest


class RenderedSampling(msgspec.Struct, frozen=True, omit_defaults=True):
    """The sampling parameters of a rendered request; what has its default is left out."""

    n: int = 1
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop: list[str] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    max_tokens: int | None = 16
    min_tokens: int = 0
    logprobs: int | None = None
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    logit_bias: dict[int, float] | None = None


class RenderedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt in tokens, with everything that is needed to generate from it."""

    request_id: str
    token_ids: list[int]
    token_offsets: None = None
    features: None = None
    content_parts: None = None
    sampling_params: RenderedSampling
    model: str | None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: None = None
    return_token_ids: bool | None
    output_mode: str = "tokens"
    parse_context: None = None
    stream: bool
    stream_options: StreamOptions | None
    cache_salt: str | None
    priority: int
    kv_transfer_params: None = None
    ec_transfer_params: None = None


def rendered_sampling(lowered: LoweredRequest, n: int) -> RenderedSampling:
    """Give the sampling parameters of a lowered request, n among them."""
    sampling = lowered.sampling
    return RenderedSampling(
        n=n,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        seed=sampling.seed,
        stop=sampling.stop,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        max_tokens=sampling.max_tokens,
        min_tokens=sampling.min_tokens,
        logprobs=sampling.logprobs,
        skip_special_tokens=sampling.skip_special_tokens,
        include_stop_str_in_output=sampling.include_stop_str_in_output,
        logit_bias=sampling.logit_bias,
    )
