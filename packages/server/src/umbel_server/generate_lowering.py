"""From a generate request to what engines get, and how the answers are read."""

import msgspec

from umbel_chat import LoweredChat
from umbel_chat.plan import engine_parser_arguments
from umbel_server.errors import bad_request
from umbel_server.exchange import Exchange
from umbel_server.requests.generate import GenerateRequest
from umbel_server.requests.generate_sampling import GenerateSampling, generate_options
from umbel_server.requests.parse_context import answer_request_of
from umbel_server.server import Server
from umbel_text import LoweredRequest, SamplingDefaults, TextLlm, TextRequest


def lower_generate(server: Server, body: GenerateRequest, exchange: Exchange) -> LoweredChat:
    """Check a request against the model, and plan how to read the messages that are wanted."""
    context = body.parse_context
    if body.output_mode != "derender" or context is None:
        return LoweredChat(_lower(server, body, exchange, body.sampling_params))
    request, sampling = answer_request_of(context), body.sampling_params
    if server.chat.needs_special_tokens(request):
        sampling = msgspec.structs.replace(sampling, skip_special_tokens=False)
    lowered = _lower(server, body, exchange, sampling)
    arguments = context.chat_template_kwargs
    return LoweredChat(lowered, server.chat.plan(lowered.prompt_token_ids, request, arguments))


def _lower(
    server: Server, body: GenerateRequest, exchange: Exchange, sampling: GenerateSampling
) -> LoweredRequest:
    text = server.chat.text
    limit = text.model.max_model_len
    max_tokens = sampling.max_tokens
    if max_tokens is msgspec.UNSET:
        max_tokens = None
    else:
        # The model's defaults, and the limit on every request, are for those who leave it out.
        defaults = SamplingDefaults(eos_token_ids=text.model.defaults.eos_token_ids)
        text = TextLlm(msgspec.structs.replace(text.model, defaults=defaults))
    _check_length(len(body.token_ids), limit, sampling.max_tokens is msgspec.UNSET)
    if max_tokens is not None:
        # What is too much for any prompt is as much as there is room for.
        max_tokens = min(max_tokens, limit)
    lowered = text.lower(_text_request(body, exchange, sampling, max_tokens), exchange.n)
    if sampling.skip_reading_prefix_cache is None:
        return lowered
    params = msgspec.structs.replace(
        lowered.sampling_params, skip_reading_prefix_cache=sampling.skip_reading_prefix_cache
    )
    return msgspec.structs.replace(lowered, sampling_params=params)


def _text_request(
    body: GenerateRequest, exchange: Exchange, sampling: GenerateSampling, max_tokens: int | None
) -> TextRequest:
    transfer = {
        name: value
        for name, value in (
            ("kv_transfer_params", body.kv_transfer_params),
            ("ec_transfer_params", body.ec_transfer_params),
        )
        if value is not None
    }
    return TextRequest(
        request_id=exchange.id,
        prompt=body.token_ids,
        sampling=generate_options(sampling, max_tokens, transfer),
        arrival_time=exchange.arrival_time,
        stream_interval=(sampling.stream_interval or 1) if body.stream else None,
        cache_salt=body.cache_salt,
        data_parallel_rank=exchange.data_parallel_rank,
        priority=exchange.priority,
        session_id=exchange.session_id,
        reasoning_ended=body.reasoning_ended,
        reasoning_parser_kwargs=_parser_arguments(body),
        trace_headers=exchange.trace_headers,
    )


def _parser_arguments(body: GenerateRequest) -> dict[str, object] | None:
    if body.reasoning_parser_kwargs is None:
        return None
    return engine_parser_arguments(body.reasoning_parser_kwargs.chat_template_kwargs)


def _check_length(length: int, limit: int, without_max_tokens: bool) -> None:
    """Refuse a prompt without room for a token, in the words of vLLM's engine."""
    if length > limit and without_max_tokens:
        raise bad_request(
            f"Input length ({length}) exceeds model's maximum context length ({limit})."
        )
    if length > limit:
        raise bad_request(
            f"The decoder prompt (length {length}) is longer than the maximum model length of "
            f"{limit}. Make sure that `max_model_len` is no smaller than the number of text tokens."
        )
    if length == limit:
        raise bad_request(
            f"The decoder prompt (length {length}) plus the number of requested output tokens (at "
            f"least 1) is longer than the maximum model length of {limit}. Make sure that "
            "`max_model_len` is no smaller than the number of text tokens (prompt + requested "
            "output tokens)."
        )
