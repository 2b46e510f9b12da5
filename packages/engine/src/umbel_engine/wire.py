"""The messages between a frontend and an engine core, field for field as vLLM lays them out.

Arrays are positional (vllm/v1/engine/__init__.py), sampling parameters are a map
(vllm/sampling_params.py).  The structs are right for 0.32 and for 0.33: what a version adds comes
last and has a default, and decoders ignore elements that they do not know.  What engines send holds
no cycles, so the garbage collector need not look at it.
"""

from typing import Literal

import msgspec

from umbel_engine.tensors import WireArray

ADD = b"\x00"
ABORT = b"\x01"
UTILITY = b"\x03"
ENGINE_CORE_DEAD = b"ENGINE_CORE_DEAD"

UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding a message raises that is not what it should be."""

EVENT_QUEUED, EVENT_SCHEDULED, EVENT_PREEMPTED = 1, 2, 3

FinishReason = Literal["stop", "length", "abort", "error", "repetition"]
FINISH_REASONS: tuple[FinishReason, ...] = ("stop", "length", "abort", "error", "repetition")
"""The names of the engine's finish codes, in the order of the codes."""


class RepetitionDetection(msgspec.Struct, frozen=True, omit_defaults=True):
    """When the engine ends a sample because it repeats itself."""

    max_pattern_size: int = 0
    min_pattern_size: int = 0
    min_count: int = 0


class StructuredOutputs(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the output must match; exactly one constraint is set, and the backend always."""

    json: str | dict[str, object] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None
    backend: str | None = msgspec.field(default=None, name="_backend")


class SamplingParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the engine samples one sample.

    The engine runs vLLM's own validation when it decodes this, and its input thread dies where
    that fails: every value must have been checked before.  Stop strings and bad words are the
    frontend's business and travel only as token ids.
    """

    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    temperature: float = 1.0
    watermarking: bool | None = None
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    seed: int | None = None
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    # None is not sent, and the engine then takes 16.
    max_tokens: int | None = None
    min_tokens: int = 0
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    prompt_logprob_token_ids: WireArray | None = None
    prompt_logprob_start: int | None = None
    output_kind: int = 0
    eos_token_id: int | None = msgspec.field(default=None, name="_eos_token_id")
    all_stop_token_ids: list[int] = msgspec.field(default=[], name="_all_stop_token_ids")
    structured_outputs: StructuredOutputs | None = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: list[int] | None = None
    extra_args: dict[str, object] | None = None
    bad_words_token_ids: list[list[int]] | None = msgspec.field(
        default=None, name="_bad_words_token_ids"
    )
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: int | None = None
    repetition_detection: RepetitionDetection | None = None
    routed_experts_prompt_start: int = 0


class EngineCoreRequest(msgspec.Struct, array_like=True, frozen=True):
    """The payload of an ADD: one sample to generate.

    `request_id` is the internal id, unique among running requests; `external_req_id` the
    caller's.  `arrival_time` is in seconds of the wall clock.
    """

    request_id: str
    prompt_token_ids: list[int] | None = None
    mm_features: list[dict[str, object]] | None = None
    sampling_params: SamplingParams | None = None
    pooling_params: list[object] | None = None
    arrival_time: float = 0.0
    lora_request: list[object] | None = None
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    prompt_embeds: WireArray | None = None
    prompt_is_token_ids: list[bool] | None = None
    client_index: int = 0
    current_wave: int = 0
    priority: int = 0
    trace_headers: dict[str, str] | None = None
    resumable: bool = False
    external_req_id: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: dict[str, object] | None = None
    abort_immediately: bool = False
    session_id: str | None = None
    kv_hints: dict[str, object] | None = None


class LogprobsArrays(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Log-probabilities of some positions, as arrays still on the wire.

    `token_ids` and `logprobs` are `[positions, k + 1]`, the sampled token first; `ranks` is
    `[positions]`.
    """

    token_ids: WireArray
    logprobs: WireArray
    ranks: WireArray
    cu_num_generated_tokens: object = None


class EngineEvent(msgspec.Struct, frozen=True, gc=False):
    """Something that happened to a request in the engine, on the engine's monotonic clock."""

    type: int
    timestamp: float


class PrefillStats(msgspec.Struct, frozen=True, gc=False):
    """Where the tokens of a prompt came from; sent with the first output of a prefill."""

    num_prompt_tokens: int = 0
    num_computed_tokens: int = 0
    num_cached_tokens: int = 0
    num_local_cached_tokens: int = 0
    num_external_cached_tokens: int = 0
    num_cache_creation_tokens: int = 0


class RequestFault(msgspec.Struct, frozen=True, gc=False):
    """Why an engine refused a request (since 0.33)."""

    message: str = ""
    code: str | None = None
    retryable: bool = False


class EngineCoreOutput(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What one engine step brought for one request.

    `finish_reason` indexes `FINISH_REASONS`; `stop_reason` is None for an end-of-sequence token
    and the token id for a stop token.
    """

    request_id: str
    new_token_ids: list[int]
    new_logprobs: LogprobsArrays | None = None
    new_prompt_logprobs_tensors: LogprobsArrays | None = None
    pooling_output: object = None
    finish_reason: int | None = None
    stop_reason: int | str | None = None
    events: list[EngineEvent] | None = None
    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None
    trace_headers: object = None
    prefill_stats: PrefillStats | None = None
    routed_experts: WireArray | None = None
    num_nans_in_logits: int = 0
    mm_cache_miss_hashes: object = None
    new_sampling_mask: object = None
    spec_decode_metrics: object = None
    prompt_token_id_logprobs: WireArray | None = None
    error: RequestFault | None = None


class PrefixCacheHitsBySource(msgspec.Struct, frozen=True, gc=False):
    """Prefix-cache hits in tokens, by where the blocks were found."""

    device: int = 0
    host: int = 0
    p2p: int = 0
    disk: int = 0
    external_unspecified: int = 0


class PrefixCacheStats(msgspec.Struct, frozen=True, gc=False):
    """Prefix-cache look-ups since the last message; queries and hits are in tokens."""

    reset: bool = False
    requests: int = 0
    queries: int = 0
    hits: int = 0
    preempted_requests: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0
    hits_by_source: PrefixCacheHitsBySource = PrefixCacheHitsBySource()


class PerfStats(msgspec.Struct, frozen=True, gc=False):
    """Estimated work of a step on one GPU."""

    num_flops_per_gpu: float = 0
    num_read_bytes_per_gpu: float = 0
    num_write_bytes_per_gpu: float = 0


class SchedulerStats(msgspec.Struct, frozen=True, gc=False):
    """The state of an engine's scheduler after a step; sent to one client only."""

    num_running_reqs: int = 0
    num_waiting_reqs: int = 0
    num_skipped_waiting_reqs: int = 0
    step_counter: int = 0
    current_wave: int = 0
    kv_cache_usage: float = 0.0
    prefix_cache_stats: PrefixCacheStats | None = None
    connector_prefix_cache_stats: PrefixCacheStats | None = None
    perf_stats: PerfStats | None = None


class UtilityResult(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The value that a utility method returned; `type_info` is set for pickled values only."""

    type_info: object = None
    value: object = None


class UtilityOutput(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The answer to one utility call."""

    call_id: int
    failure_message: str | None = None
    result: UtilityResult | None = None


class EngineCoreOutputs(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """One message of an engine: a step's outputs, or the answer to a utility call.

    `timestamp` is on the engine's monotonic clock.
    """

    engine_index: int = 0
    outputs: list[EngineCoreOutput] = []
    scheduler_stats: SchedulerStats | None = None
    timestamp: float = 0.0
    utility_output: UtilityOutput | None = None
    finished_requests: list[str] | None = None
    wave_complete: int | None = None
    start_wave: int | None = None
    weight_version: str | None = None


class Hello(msgspec.Struct, frozen=True):
    """What an engine says on the handshake socket, first HELLO, then READY."""

    status: str
    local: bool = False
    headless: bool = False
    parallel_config_hash: str | None = None


class Addresses(msgspec.Struct, frozen=True):
    """Where an engine finds its clients; one input and one output address per client."""

    inputs: list[str]
    outputs: list[str]
    coordinator_input: str | None = None
    coordinator_output: str | None = None
    frontend_stats_publish_address: str | None = None


class Init(msgspec.Struct, frozen=True):
    """The frontend's answer to HELLO."""

    addresses: Addresses
    parallel_config: dict[str, int | str | list[int]] = {}


class ReadyResponse(msgspec.Struct, frozen=True):
    """What an engine tells of itself when it registers on a client's input socket."""

    max_model_len: int
    num_gpu_blocks: int = 0
    block_size: int = 16
    dp_stats_address: str | None = None
    dtype: str = ""
    vllm_version: str = ""
    world_size: int = 1
    data_parallel_size: int = 1
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    decode_context_parallel_size: int = 1
    data_parallel_rank: int = 0
    max_num_seqs: int = 0
    max_num_batched_tokens: int = 0
    instance_id: str = ""
    supports_lora: bool = False
    max_loras: int = 0
    kv_cache_size_tokens: int | None = None
    kv_cache_max_concurrency: float | None = None
    kv_events_config: dict[str, object] | None = None
    effective_attention_block_size: int | None = None


class EncodedRequest:
    """An ADD of which everything that siblings share is encoded once.

    Children of one request differ in their id and, when seeded, in their seed; the prompt, which
    may be long, is encoded for all of them together.
    """

    __slots__ = ("_middle", "_params", "_params_bytes", "_tail")

    def __init__(self, request: EngineCoreRequest) -> None:
        encode = _encoder.encode
        fields = msgspec.structs.astuple(request)
        self._middle = encode(fields[1:3])[len(_MIDDLE_HEADER) :]
        self._params = request.sampling_params
        self._params_bytes = encode(request.sampling_params)
        self._tail = encode(fields[4:])[len(_TAIL_HEADER) :]

    def payload(self, request_id: str, seed: int | None) -> bytes:
        """Give the MessagePack payload of the child with this id and seed."""
        params = self._params_bytes
        if self._params is not None and seed != self._params.seed:
            params = _encoder.encode(msgspec.structs.replace(self._params, seed=seed))
        return b"".join(
            (_REQUEST_HEADER, _encoder.encode(request_id), self._middle, params, self._tail)
        )


_encoder = msgspec.msgpack.Encoder()
_REQUEST_HEADER = b"\xdc\x00\x16"  # an array of 22 elements
_MIDDLE_HEADER = b"\x92"  # of 2
_TAIL_HEADER = b"\xdc\x00\x12"  # of 18
