"""What an engine takes of an ADD: types, ranges and rules, as strictly as vLLM's own structs have them.

An engine's input thread dies on an ADD that it cannot decode or validate, and its sampler on values
that its arrays have no room for.  The rules are those of vllm/v1/engine/__init__.py
(EngineCoreRequest), vllm/sampling_params.py (SamplingParams, __post_init__ and verify) and
vllm/v1/worker/gpu/sample, written down once more, so that the two are not wrong together.
"""

import math
import struct
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from ..fuzzing import MAX_MODEL_LEN, VOCABULARY_SIZE

Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Count = Annotated[int, Meta(ge=0, le=2**31 - 1)]
TokenId = Annotated[int, Meta(ge=0, lt=VOCABULARY_SIZE)]
TokenIds = list[TokenId]
TokenIdRows = tuple[Literal["<i4"], tuple[int, int], msgspec.msgpack.Ext]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
LogprobCount = Annotated[int, Meta(ge=0, le=20)]


class RepetitionDetection(Struct, forbid_unknown_fields=True):
    max_pattern_size: Count = 0
    min_pattern_size: Count = 0
    min_count: Count = 0


class StructuredOutputs(Struct, forbid_unknown_fields=True):
    json: str | dict[str, object] | None = None
    regex: str | None = None
    choice: Annotated[list[str], Meta(min_length=1)] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    whitespace_pattern: str | None = None
    structural_tag: str | None = None
    backend: str | None = msgspec.field(default=None, name="_backend")
    backend_was_auto: bool = msgspec.field(default=False, name="_backend_was_auto")


class SamplingParams(Struct, forbid_unknown_fields=True):
    presence_penalty: Penalty = 0.0
    frequency_penalty: Penalty = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0)] = 1.0
    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    watermarking: bool | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] = 1.0
    top_k: Annotated[int, Meta(ge=-1, le=2**31 - 1)] = 0
    min_p: Annotated[float, Meta(ge=0, le=1)] = 0.0
    seed: Int64 | None = None
    stop_token_ids: TokenIds = []
    ignore_eos: bool = False
    max_tokens: Annotated[int, Meta(ge=1, le=MAX_MODEL_LEN)] | None = 16
    min_tokens: Count = 0
    logprobs: LogprobCount | None = None
    prompt_logprobs: LogprobCount | None = None
    logprob_token_ids: Annotated[TokenIds, Meta(min_length=1, max_length=128)] | None = None
    prompt_logprob_token_ids: TokenIdRows | None = None
    prompt_logprob_start: Count | None = None
    output_kind: int = 0
    eos_token_id: TokenId | None = msgspec.field(default=None, name="_eos_token_id")
    all_stop_token_ids: set[TokenId] = msgspec.field(default=set(), name="_all_stop_token_ids")
    structured_outputs: StructuredOutputs | None = None
    logit_bias: (
        Annotated[dict[TokenId, Annotated[float, Meta(ge=-100, le=100)]], Meta(max_length=1024)]
        | None
    ) = None
    allowed_token_ids: Annotated[TokenIds, Meta(min_length=1, max_length=1024)] | None = None
    extra_args: dict[str, object] | None = None
    bad_words_token_ids: (
        Annotated[list[Annotated[TokenIds, Meta(min_length=1)]], Meta(max_length=128)] | None
    ) = msgspec.field(default=None, name="_bad_words_token_ids")
    skip_reading_prefix_cache: bool | None = None
    thinking_token_budget: Count | None = None
    repetition_detection: RepetitionDetection | None = None
    routed_experts_prompt_start: Count = 0


class EngineCoreRequest(Struct, array_like=True, forbid_unknown_fields=True):
    request_id: Annotated[str, Meta(min_length=1)]
    prompt_token_ids: Annotated[TokenIds, Meta(min_length=1, max_length=MAX_MODEL_LEN - 1)]
    mm_features: None
    sampling_params: SamplingParams
    pooling_params: None
    arrival_time: float
    lora_request: None
    cache_salt: Annotated[str, Meta(min_length=1, max_length=128)] | None
    data_parallel_rank: Annotated[int, Meta(ge=0, le=0)] | None
    prompt_embeds: None
    prompt_is_token_ids: None
    client_index: Annotated[int, Meta(ge=0, le=0)]
    current_wave: Count
    priority: Int64
    trace_headers: dict[str, str] | None
    resumable: bool
    external_req_id: str | None
    reasoning_ended: bool | None
    reasoning_parser_kwargs: dict[str, dict[str, str | bool]] | None
    abort_immediately: bool
    session_id: str | None
    kv_hints: None


def check_add(payload):
    """Decode the payload of an ADD; raises AssertionError for what an engine would not survive."""
    try:
        _check(payload)
    except (AssertionError, msgspec.ValidationError) as error:
        raise AssertionError(f"{error!r} in {msgspec.msgpack.decode(payload)}") from error


def _check_rows(rows, scored):
    _, (height, width), data = rows
    assert height == scored
    assert 1 <= width <= 20
    ids = struct.unpack(f"<{height * width}i", data.data)
    assert data.code == 3
    assert all(-1 <= token_id < VOCABULARY_SIZE for token_id in ids)


def _check(payload):
    request = msgspec.msgpack.decode(payload, type=EngineCoreRequest)
    params = request.sampling_params
    assert len(request.prompt_token_ids) + params.max_tokens <= MAX_MODEL_LEN
    assert params.min_tokens <= params.max_tokens
    assert params.routed_experts_prompt_start <= len(request.prompt_token_ids)
    if params.prompt_logprob_token_ids is not None:
        scored = len(request.prompt_token_ids) - 1 - (params.prompt_logprob_start or 0)
        _check_rows(params.prompt_logprob_token_ids, scored)
    assert math.isfinite(params.repetition_penalty)
    assert params.temperature == 0 or params.temperature >= 0.01
    if params.temperature == 0:
        assert (params.top_p, params.top_k, params.min_p) == (1.0, 0, 0.0)
    if params.logprob_token_ids is not None:
        assert params.logprobs in (None, len(params.logprob_token_ids))
    if params.min_tokens:
        assert len(params.all_stop_token_ids) <= 128
    assert sum(map(len, params.bad_words_token_ids or ())) <= 1024
    _check_structured_outputs(params.structured_outputs)
    _check_repetition_detection(params.repetition_detection)
    _check_depth(params.extra_args)


def _check_structured_outputs(constraint):
    if constraint is None:
        return
    kinds = ("json", "regex", "choice", "grammar", "json_object", "structural_tag")
    assert sum(getattr(constraint, kind) is not None for kind in kinds) == 1
    assert constraint.backend == "xgrammar"


def _check_repetition_detection(detection):
    if detection is None:
        return
    assert detection.min_pattern_size <= detection.max_pattern_size
    assert detection.max_pattern_size == 0 or detection.min_count >= 2


def _check_depth(value):
    level, depth = [value], 0
    while level := [inner for outer in level for inner in _inner(outer)]:
        depth += 1
        assert depth <= 64


def _inner(value):
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
