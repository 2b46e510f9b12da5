"""Tokens in, tokens out, n times, for whoever renders prompts and reads answers elsewhere."""

import asyncio
import json
import time

import msgspec
from aiohttp import web

from umbel_chat.chat import engine_parser_arguments
from umbel_engine import Stage, TokenStage
from umbel_server.bodies import read_body
from umbel_server.collect import collect
from umbel_server.errors import bad_request, invalid_body, validation_error
from umbel_server.exchange import Exchange, aside, lower_aside, read_request
from umbel_server.requests.generate import (
    GenerateRequest,
    check_generate_served,
    read_generate_request,
)
from umbel_server.requests.generate_sampling import generate_options
from umbel_server.requests.headers import read_headers
from umbel_server.responses.context import AnswerContext
from umbel_server.responses.generate import (
    TokenOutput,
    generate_answer,
    prompt_logprobs_of,
)
from umbel_server.responses.generate_frames import GenerateFrames
from umbel_server.responses.logprobs import Display
from umbel_server.routes.render import opened
from umbel_server.server import Server
from umbel_server.writer import stream
from umbel_text import LoweredRequest, SamplingDefaults, TextLlm, TextRequest, TextStage

SCORES = "prompt_logprob_token_ids"


async def generate(http: web.Request) -> web.StreamResponse:
    """Continue a prompt in token ids n times."""
    server = opened(http)
    with server.counted():
        arrival_time = time.time()
        body = await read_request(http, read_generate_request, server.options.max_n_sequences)
        server.check_model(body.model)
        _check_sequences(server, body.sampling_params.n)
        parsers = server.chat.parsers
        check_generate_served(body, parsers is not None and parsers.reasoning is not None)
        exchange = _exchange(http, body, arrival_time)
        is_constrained = body.sampling_params.structured_outputs is not None
        with server.admitted(exchange.n):
            lowered = await lower_aside(http, is_constrained, _lower, server, body, exchange)
            return await _answer(http, server, body, exchange, lowered)


async def abort_requests(http: web.Request) -> web.Response:
    """Abort answers by their request ids, with all their samples; unknown ids are ignored."""
    server = opened(http)
    request_ids = await aside(http, _request_ids, await read_body(http))
    server.chat.text.llm.abort(request_ids)
    if server.other_processes is not None:
        server.other_processes.abort(request_ids)
    return web.Response()


async def _answer(
    http: web.Request,
    server: Server,
    body: GenerateRequest,
    exchange: Exchange,
    lowered: LoweredRequest,
) -> web.StreamResponse:
    text = server.chat.text
    context = _context(server, body, exchange, lowered)
    has_text = body.output_mode != "tokens"

    def stage(text_stage: TextStage) -> Stage[TokenOutput]:
        # Where nobody reads the text, stop strings are still found in it.
        return text_stage if has_text or lowered.sampling.stop else TokenStage()

    samples = text.generate_with(lowered, exchange.n, stage)
    if body.stream:
        return await stream(http, samples, GenerateFrames(context, has_text))
    outputs = await collect(http, samples)
    if lowered.sampling.prompt_logprob_token_ids is not None:
        _check_scored(outputs[0])
    prompt = None
    if (number := lowered.sampling.prompt_logprobs) is not None:
        tokenizer = text.model.tokenizer if body.sampling_params.detokenize else None
        # Every token of the prompt gets a text, which takes long for a long prompt.
        prompt = await asyncio.to_thread(
            prompt_logprobs_of, outputs[0].prompt_logprobs, number, tokenizer
        )
    answer = generate_answer(context, body.output_mode, outputs, prompt)
    return web.Response(body=answer, content_type="application/json")


def _check_scored(output: TokenOutput) -> None:
    """Report that the engine does not score prompts, which it says by saying nothing.

    vLLM's server knows its engine's model runner, and refuses beforehand in the same words.
    """
    finish, extras = output.finish, output.extras
    if finish is None or finish.reason == "abort":
        return
    if extras is None or extras.prompt_token_id_logprobs is None:
        raise validation_error(
            f"{SCORES} requires the V2 model runner (VLLM_USE_V2_MODEL_RUNNER=1).", SCORES
        )


def _context(
    server: Server, body: GenerateRequest, exchange: Exchange, lowered: LoweredRequest
) -> AnswerContext:
    top = lowered.sampling.logprobs
    usage = body.stream_options
    include_usage = bool(usage and usage.include_usage)
    return AnswerContext(
        id=exchange.id,
        created=int(time.time()),
        model=server.model_name,
        fingerprint=None,
        n=exchange.n,
        prompt_token_ids=[lowered.prompt_token_ids],
        logprobs=None if top is None else Display(top),
        return_token_ids=bool(body.return_token_ids),
        include_usage=include_usage,
        continuous_usage=include_usage and bool(usage and usage.continuous_usage_stats),
        prompt_details=server.options.enable_prompt_tokens_details,
    )


def _exchange(http: web.Request, body: GenerateRequest, arrival_time: float) -> Exchange:
    headers = read_headers(http)
    base = headers.request_id if headers.request_id is not None else body.request_id
    return Exchange(
        id=f"generate-tokens-{base}",
        arrival_time=arrival_time,
        n=body.sampling_params.n,
        data_parallel_rank=headers.data_parallel_rank,
        priority=headers.priority if headers.priority is not None else body.priority,
        session_id=headers.session_id or None,
        trace_headers=headers.trace_headers,
    )


def _lower(server: Server, body: GenerateRequest, exchange: Exchange) -> LoweredRequest:
    """Check a request against the model."""
    text, sampling = server.chat.text, body.sampling_params
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
    lowered = text.lower(_text_request(body, exchange, max_tokens), exchange.n)
    if sampling.skip_reading_prefix_cache is None:
        return lowered
    params = msgspec.structs.replace(
        lowered.sampling_params, skip_reading_prefix_cache=sampling.skip_reading_prefix_cache
    )
    return msgspec.structs.replace(lowered, sampling_params=params)


def _text_request(body: GenerateRequest, exchange: Exchange, max_tokens: int | None) -> TextRequest:
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
        sampling=generate_options(body.sampling_params, max_tokens, transfer),
        arrival_time=exchange.arrival_time,
        stream_interval=(body.sampling_params.stream_interval or 1) if body.stream else None,
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


def _check_sequences(server: Server, n: int) -> None:
    """Refuse more samples than an engine runs at once, as vLLM does on this route alone."""
    numbers = [engine.ready.max_num_seqs for engine in server.chat.text.llm.client.engines]
    most = min((number for number in numbers if number > 0), default=n)
    if n > most:
        raise bad_request(
            f"sampling_params.n must be at most the server's max_num_seqs ({most}), got {n}."
        )


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


def _request_ids(body: bytes) -> list[str]:
    try:
        value = json.loads(body)
    except json.JSONDecodeError as error:
        raise invalid_body(f"JSON decode error: {error}") from None
    except (ValueError, RecursionError):
        raise invalid_body("The body could not be read.") from None
    request_ids = value.get("request_ids") if isinstance(value, dict) else None
    if request_ids is None:
        raise invalid_body("Missing 'request_ids' in request body")
    if isinstance(request_ids, str):
        return [request_ids]
    if isinstance(request_ids, list) and all(isinstance(name, str) for name in request_ids):
        return request_ids
    raise invalid_body("`request_ids` must be a string or an array of strings.", "request_ids")


def add_generate_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/inference/v1/generate", generate)
    app.router.add_post("/inference/v1/abort_requests", abort_requests)
