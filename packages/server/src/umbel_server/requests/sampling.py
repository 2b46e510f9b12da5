"""From the fields of a body to the options of the text layer."""

from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_text import SamplingOptions


def sampling_options(
    body: ChatCompletionRequest | CompletionRequest, max_tokens: int | None, logprobs: int | None
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
        logprobs=logprobs,
        skip_special_tokens=body.skip_special_tokens,
        include_stop_str_in_output=body.include_stop_str_in_output,
        logit_bias=body.logit_bias,
    )
