"""Tokens in, tokens out, n times, for whoever renders prompts and reads answers elsewhere."""

import asyncio
import json
import time
from collections.abc import Sequence

from aiohttp import web

from umbel_chat import ChatDelta, LoweredChat
from umbel_engine import Stage, TokenStage
from umbel_server.bodies import read_body
from umbel_server.collect import collect
from umbel_server.errors import bad_request, invalid_body, validation_error
from umbel_server.exchange import Exchange, aside, lower_aside, parsed_context, read_request
from umbel_server.generate_lowering import lower_generate
from umbel_server.requests.generate import (
    GenerateRequest,
    check_generate_served,
    read_generate_request,
)
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
from umbel_text import LoweredRequest, ResolvedSampling, TextStage

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
        reasons = parsers is not None and parsers.reasoning is not None
        check_generate_served(body, reasons, parsers is not None)
        exchange = _exchange(http, body, arrival_time)
        is_constrained = body.sampling_params.structured_outputs is not None
        with server.admitted(exchange.n):
            lowered = await lower_aside(
                http, is_constrained, lower_generate, server, body, exchange
            )
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
    lowered: LoweredChat,
) -> web.StreamResponse:
    context = _context(server, body, exchange, lowered.text)
    if body.output_mode == "derender":
        messages = await collect(http, server.chat.chat_n(lowered, exchange.n))
        return await _whole(server, body, lowered, context, messages)
    shows_text = body.output_mode == "text"

    def stage(text_stage: TextStage) -> Stage[TokenOutput]:
        # Where nobody reads the text, stop strings are still found in it.
        return text_stage if shows_text or lowered.text.sampling.stop else TokenStage()

    samples = server.chat.text.generate_with(lowered.text, exchange.n, stage)
    if body.stream:
        return await stream(http, samples, GenerateFrames(context, shows_text))
    outputs = await collect(http, samples)
    return await _whole(server, body, lowered, context, outputs)


async def _whole(
    server: Server,
    body: GenerateRequest,
    lowered: LoweredChat,
    context: AnswerContext,
    outputs: Sequence[TokenOutput | ChatDelta],
) -> web.Response:
    sampling = lowered.text.sampling
    if sampling.prompt_logprob_token_ids is not None:
        _check_scored(outputs[0])
    prompt = None
    if (number := sampling.prompt_logprobs) is not None:
        tokenizer = server.chat.text.model.tokenizer if body.sampling_params.detokenize else None
        # Every token of the prompt gets a text, which takes long for a long prompt.
        prompt = await asyncio.to_thread(
            prompt_logprobs_of, outputs[0].prompt_logprobs, number, tokenizer
        )
    answer = generate_answer(context, body.output_mode, outputs, prompt)
    return web.Response(body=answer, content_type="application/json")


def _check_scored(output: TokenOutput | ChatDelta) -> None:
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
    usage = body.stream_options
    include_usage = bool(usage and usage.include_usage)
    context = AnswerContext(
        id=exchange.id,
        created=int(time.time()),
        model=server.model_name,
        fingerprint=None,
        n=exchange.n,
        prompt_token_ids=[lowered.prompt_token_ids],
        logprobs=_display(server, body, lowered.sampling),
        return_token_ids=bool(body.return_token_ids),
        include_usage=include_usage,
        continuous_usage=include_usage and bool(usage and usage.continuous_usage_stats),
        prompt_details=server.options.enable_prompt_tokens_details,
    )
    if body.output_mode != "derender" or body.parse_context is None:
        return context
    return parsed_context(context, server, body.parse_context)


def _display(server: Server, body: GenerateRequest, sampling: ResolvedSampling) -> Display | None:
    """Say how log-probabilities are shown; a message has those of a chat."""
    if body.output_mode != "derender":
        return None if sampling.logprobs is None else Display(sampling.logprobs)
    as_token_ids = server.options.return_tokens_as_token_ids
    if sampling.logprob_token_ids:
        # Tokens that were named are all shown.
        return Display(-1, as_token_ids)
    return None if sampling.logprobs is None else Display(sampling.logprobs, as_token_ids)


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


def _check_sequences(server: Server, n: int) -> None:
    """Refuse more samples than an engine runs at once, as vLLM does on this route alone."""
    numbers = [engine.ready.max_num_seqs for engine in server.chat.text.llm.client.engines]
    most = min((number for number in numbers if number > 0), default=n)
    if n > most:
        raise bad_request(
            f"sampling_params.n must be at most the server's max_num_seqs ({most}), got {n}."
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
