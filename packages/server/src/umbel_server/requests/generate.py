"""The body of `POST /inference/v1/generate`."""

from typing import Annotated, Literal

from msgspec import Meta, Struct, field

from umbel_server.errors import bad_request
from umbel_server.requests.faults import Faults, Location
from umbel_server.requests.fields import StructReader, reader_of
from umbel_server.requests.generate_sampling import (
    GenerateSampling,
    SamplingReader,
    check_sampling,
)
from umbel_server.requests.parse_context import ParseContext, check_parse_context, unknown_fields
from umbel_server.requests.shared import (
    CacheSalt,
    Int64,
    NonNegative,
    Positive,
    StreamOptions,
    check_cache_salt,
    check_encodable,
    new_request_id,
)

OutputMode = Literal["tokens", "text", "derender"]


class Placeholder(Struct, frozen=True):
    """Where in the prompt one multimodal item lies, in tokens."""

    offset: NonNegative
    length: Positive


class MultimodalFeatures(Struct, frozen=True):
    """What rendering found of multimodal items, by modality."""

    mm_hashes: dict[str, list[str]]
    mm_placeholders: dict[str, list[Placeholder]]
    kwargs_data: dict[str, list[str | None]] | None = None
    mm_metadata: dict[str, list[str | None]] | None = None


class ReasoningParserArguments(Struct, frozen=True):
    """What the engine's reasoning parser is made with; nothing else may be."""

    chat_template_kwargs: dict[str, object] = {}


class GenerateRequest(Struct, frozen=True, kw_only=True):
    """A request for tokens that follow tokens, as the client made it.

    Fields, order, types and defaults are those of GenerateRequest in
    vllm/entrypoints/scale_out/token_in_token_out/protocol.py.
    """

    request_id: str = field(default_factory=new_request_id)
    token_ids: list[int]
    token_offsets: list[tuple[int, int]] | None = None
    features: MultimodalFeatures | None = None
    content_parts: list[dict[str, object]] | None = None
    sampling_params: GenerateSampling
    model: str | None = None
    reasoning_ended: bool | None = None
    reasoning_parser_kwargs: ReasoningParserArguments | None = None
    return_token_ids: bool | None = None
    output_mode: OutputMode = "tokens"
    parse_context: ParseContext | None = None
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: CacheSalt | None = None
    priority: Int64 = 0
    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None


def read_generate_request(body: dict[str, object], limit: int) -> GenerateRequest:
    """Read a decoded body, which is not to be used afterwards, for an n of at most `limit`.

    Raises ApiError or umbel_text.InvalidRequestError.  As in vLLM, values of sampling parameters
    that are out of range are told of before the faults of other fields.
    """
    check_cache_salt(body)
    sampling = _SAMPLING.read(body.get("sampling_params"), ("body", "sampling_params"), Faults())
    if sampling is not None:
        check_sampling(sampling, limit)
        body["sampling_params"] = sampling
    request = _READER.convert(body)
    _check_together(request, body)
    _check_encodable(request)
    return request


def check_generate_served(request: GenerateRequest, reasons: bool, parses: bool) -> None:
    """Refuse what is known and not served; raises ApiError.

    `reasons` says that there is a reasoning parser, `parses` that there is a parser of any kind.
    """
    sampling, features = request.sampling_params, request.features
    if sampling.prompt_logprob_token_ids is not None and request.stream:
        raise bad_request("prompt_logprob_token_ids are not available when stream=true.")
    if request.output_mode == "derender" and request.stream:
        raise bad_request("output_mode='derender' does not support stream=true.")
    if request.output_mode == "derender" and parses:
        check_parse_context(request.parse_context)
    # With nothing to constrain, it does not matter where reasoning ends.
    constrained = sampling.structured_outputs is not None and not reasons
    for name, asked in (
        ("content_parts", bool(request.content_parts)),
        ("features", features is not None and bool(features.mm_hashes)),
        ("trace_decode_token_ids", sampling.trace_decode_token_ids is not None),
        # Without a reasoning parser, it has always ended.
        ("reasoning_ended", constrained and request.reasoning_ended is False),
        ("reasoning_parser_kwargs", constrained and request.reasoning_parser_kwargs is not None),
    ):
        if asked:
            raise bad_request(f"`{name}` is not supported yet.", name)


def _check_together(request: GenerateRequest, body: dict[str, object]) -> None:
    """Check what one field says of another; every fault is one of the whole body."""
    fault = None
    if request.content_parts and request.features is not None:
        fault = "content_parts and features are mutually exclusive"
    elif request.output_mode != "tokens" and not request.sampling_params.detokenize:
        fault = (
            f"output_mode={request.output_mode!r} requires sampling_params.detokenize to be true"
        )
    elif request.output_mode == "derender" and (
        unknown := unknown_fields(body.get("parse_context"))
    ):
        fault = (
            f"Unknown parse_context fields {unknown}; the render server is newer than this generate "
            "server"
        )
    if fault is not None:
        faults = Faults()
        _add_value_error(faults, ("body",), fault, body)
        raise faults.error()


def _check_encodable(request: GenerateRequest) -> None:
    sampling = request.sampling_params
    for name, text in (
        ("request_id", request.request_id),
        ("cache_salt", request.cache_salt),
        *(("bad_words", word) for word in sampling.bad_words or ()),
        *(("stop", text) for text in sampling.stop_strings),
    ):
        check_encodable(name, text)


def _add_value_error(faults: Faults, at: Location, message: str, value: object) -> None:
    context = {"error": ValueError(message)}
    faults.add("value_error", at, f"Value error, {message}", value, context)


class TokenIdsReader:
    """Reads the token ids of a prompt; the vocabulary is checked later."""

    def __init__(self) -> None:
        self._reader = reader_of(list[int])

    def read(self, value: object, at: Location, faults: Faults) -> object:
        before = faults.count
        token_ids = self._reader.read(value, at, faults)
        if faults.count > before or not isinstance(token_ids, list):
            return None
        if not token_ids:
            context = {"field_type": "List", "min_length": 1, "actual_length": 0}
            faults.add("too_short", at, "must have at least 1 item", value, context)
        elif min(token_ids) < 0:
            _add_value_error(faults, at, "token_ids must not contain negative values", value)
        return token_ids


class TokenOffsetsReader:
    """Reads pairs of places in a text; only their form matters, as nothing is done with them."""

    def __init__(self) -> None:
        self._reader = reader_of(list[Annotated[list[int], Meta(max_length=2)]] | None)

    def read(self, value: object, at: Location, faults: Faults) -> object:
        before = faults.count
        offsets = self._reader.read(value, at, faults)
        if faults.count > before or not isinstance(offsets, list):
            return None
        for index, pair in enumerate(offsets):
            for missing in range(len(pair), 2):
                faults.add("missing", (*at, index, missing), "is required", pair)
        return offsets


class ReasoningArgumentsReader:
    """Reads the arguments of a reasoning parser, and refuses those that are not known."""

    def __init__(self) -> None:
        self._reader = StructReader(ReasoningParserArguments)

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if value is None:
            return None
        arguments = self._reader.read(value, at, faults)
        if isinstance(value, dict):
            for key, argument in value.items():
                if key not in ReasoningParserArguments.__struct_fields__:
                    faults.add("extra_forbidden", (*at, key), "is not known here", argument)
        return arguments


_SAMPLING = SamplingReader()
_READER = StructReader(
    GenerateRequest,
    {
        "token_ids": TokenIdsReader(),
        "token_offsets": TokenOffsetsReader(),
        "sampling_params": _SAMPLING,
        "reasoning_parser_kwargs": ReasoningArgumentsReader(),
    },
)
