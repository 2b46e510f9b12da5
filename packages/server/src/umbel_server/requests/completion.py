"""The body of `POST /v1/completions`."""

from msgspec import Struct, field

from umbel_engine import RepetitionDetection
from umbel_server.errors import validation_error
from umbel_server.requests.fields import StructReader
from umbel_server.requests.limits import DEFAULT_MAX_PROMPTS
from umbel_server.requests.shared import (
    CacheSalt,
    ExtraArgument,
    Int64,
    MultimodalPayload,
    NonNegative,
    Positive,
    Stop,
    StreamOptions,
    TruncatePromptTokens,
    TruncationSide,
    apply_multimodal_alias,
    apply_thinking_token_budget,
    check_cache_salt,
    check_logprobs_number,
    check_logprobs_range,
    check_prompt_logprobs,
    check_stream_options,
    new_request_id,
)
from umbel_server.requests.structured import (
    CHECKED_FIELDS,
    ResponseFormat,
    StructuredOutputsRequest,
    check_response_format,
    count_constraints,
)

Prompt = list[NonNegative] | list[list[NonNegative]] | str | list[str]
"""One prompt (token ids or text) or a list of prompts."""


class CompletionRequest(Struct, frozen=True, kw_only=True):
    """A request for a completion of text, as the client made it.

    Fields, order, types and defaults are those of CompletionRequest in
    vllm/entrypoints/openai/completion/protocol.py; None means that the client left the value to the
    server.  `best_of` is OpenAI's, which vLLM does not have.
    """

    model: str | None = None
    prompt: Prompt | None = None
    echo: bool | None = False
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    best_of: int | None = None
    logprobs: int | None = None
    max_tokens: int | None = 16
    n: int = 1
    presence_penalty: float | None = None
    seed: Int64 | None = None
    stop: Stop = []
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    suffix: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: TruncatePromptTokens | None = None
    truncation_side: TruncationSide | None = None
    allowed_token_ids: list[int] | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    bad_words: list[str] = []
    prompt_embeds: str | list[str] | None = None
    add_special_tokens: bool = True
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputsRequest | None = None
    priority: Int64 = 0
    request_id: str = field(default_factory=new_request_id)
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool = False
    routed_experts_prompt_start: NonNegative = 0
    return_token_offsets: bool | None = False
    mm_payload: MultimodalPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: CacheSalt | None = None
    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None
    vllm_xargs: dict[str, ExtraArgument] | None = None
    repetition_detection: RepetitionDetection | None = None
    thinking_token_budget: int | None = None
    stream_interval: Positive | None = None


def read_completion_request(
    body: dict[str, object], max_prompts: int = DEFAULT_MAX_PROMPTS
) -> CompletionRequest:
    """Read a decoded body, which is not to be used afterwards.

    Raises ApiError, or umbel_text.InvalidRequestError for values that no field allows.

    The checks come in the order of vLLM's validators, so a body with several faults is answered for
    the same one.
    """
    _check_prompt_count(body, max_prompts)
    _check_prompt(body)
    check_stream_options(body)
    _check_logprobs(body)
    count_constraints(body, "structured_outputs")
    check_response_format(body)
    if body.get("max_tokens") is None:
        body.pop("max_tokens", None)
    check_cache_salt(body)
    apply_multimodal_alias(body)
    apply_thinking_token_budget(body)
    return _READER.convert(body)


def _check_prompt_count(body: dict[str, object], max_prompts: int) -> None:
    for name in ("prompt", "prompt_embeds"):
        prompts = body.get(name)
        if not isinstance(prompts, list) or len(prompts) <= max_prompts:
            continue
        # A list that begins with an integer is one prompt, in token ids.
        if name == "prompt" and isinstance(prompts[0], int):
            continue
        raise validation_error(
            f"{name} list length {len(prompts)} exceeds the maximum allowed count of {max_prompts}. "
            "To increase this limit, set the VLLM_MAX_COMPLETION_PROMPTS environment variable.",
            name,
        )


def _check_prompt(body: dict[str, object]) -> None:
    if body.get("prompt") in (None, "") and body.get("prompt_embeds") in (None, []):
        raise validation_error(
            "Either prompt or prompt_embeds must be provided and non-empty.", "prompt"
        )


def _check_logprobs(body: dict[str, object]) -> None:
    _check_logprob_token_ids(body)
    prompt_logprobs = check_logprobs_number(body, "prompt_logprobs")
    logprobs = check_logprobs_number(body, "logprobs")
    check_prompt_logprobs(body, prompt_logprobs)
    if logprobs is not None:
        check_logprobs_range("logprobs", logprobs)


def _check_logprob_token_ids(body: dict[str, object]) -> None:
    beam_search = body.get("use_beam_search")
    token_ids = body.get("logprob_token_ids")
    echo = body.get("echo")
    has_logprobs = body.get("logprobs") is not None
    if token_ids and beam_search:
        raise validation_error(
            "`logprob_token_ids` is not supported with beam search.", "logprob_token_ids"
        )
    if beam_search and echo and has_logprobs:
        raise validation_error(
            "`echo` with `logprobs` is not supported with beam search because beam search does not "
            "compute prompt logprobs.",
            "echo",
        )
    if token_ids and echo and body.get("max_tokens") == 0:
        raise validation_error(
            "`logprob_token_ids` is not supported when `echo=True` and `max_tokens=0` because no "
            "output tokens are generated.",
            "logprob_token_ids",
        )
    if token_ids and not has_logprobs:
        raise validation_error(
            "when using `logprob_token_ids`, `logprobs` must be set.", "logprob_token_ids"
        )


_READER = StructReader(CompletionRequest, CHECKED_FIELDS)
