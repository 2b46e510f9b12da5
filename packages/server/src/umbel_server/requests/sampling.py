"""From the fields of a body to the options of the text layer."""

from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.reused_prompt import engine_transfer_parameters
from umbel_server.requests.structured import constraint_of
from umbel_text import SamplingOptions


def sampling_options(
    body: ChatCompletionRequest | CompletionRequest,
    max_tokens: int | None,
    logprobs: int | None,
    prompt_logprobs: int | None,
) -> SamplingOptions:
    """Give what a body asks of sampling; the two kinds name their limit and logprobs differently."""
    stop = body.stop
    return SamplingOptions(
        presence_penalty=body.presence_penalty,
        frequency_penalty=body.frequency_penalty,
        repetition_penalty=body.repetition_penalty,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=body.top_k,
        min_p=body.min_p,
        seed=body.seed,
        stop=[stop] if isinstance(stop, str) else list(stop or ()),
        stop_token_ids=body.stop_token_ids or [],
        ignore_eos=body.ignore_eos,
        max_tokens=max_tokens,
        min_tokens=body.min_tokens,
        # The tokens that are named take the place of the most likely ones.
        logprobs=None if body.logprob_token_ids else logprobs,
        prompt_logprobs=prompt_logprobs,
        logprob_token_ids=body.logprob_token_ids,
        skip_special_tokens=body.skip_special_tokens,
        spaces_between_special_tokens=body.spaces_between_special_tokens,
        include_stop_str_in_output=body.include_stop_str_in_output,
        logit_bias=body.logit_bias,
        allowed_token_ids=body.allowed_token_ids,
        bad_words=body.bad_words,
        structured_outputs=constraint_of(body.structured_outputs, body.response_format),
        repetition_detection=body.repetition_detection,
        thinking_token_budget=body.thinking_token_budget,
        watermarking=body.watermarking,
        routed_experts_prompt_start=body.routed_experts_prompt_start,
        extra_args=_extra_args(body),
    )


def _extra_args(body: ChatCompletionRequest | CompletionRequest) -> dict[str, object]:
    extra: dict[str, object] = dict(body.vllm_xargs or {})
    transfer = body.kv_transfer_params
    if isinstance(body, ChatCompletionRequest):
        transfer = engine_transfer_parameters(body)
    if transfer:
        extra["kv_transfer_params"] = transfer
    if body.ec_transfer_params:
        extra["ec_transfer_params"] = body.ec_transfer_params
    return extra
