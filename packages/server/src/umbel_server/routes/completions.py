"""Plain completions, of one prompt or of several."""

import asyncio
import time

from aiohttp import web

from umbel_engine import merge
from umbel_server.best_of import best_of_each
from umbel_server.collect import collect
from umbel_server.errors import validation_error
from umbel_server.exchange import (
    Exchange,
    answer_context,
    aside,
    begin,
    is_constrained,
    lower_aside,
    read_request,
    stream_interval,
)
from umbel_server.load_report import load_report
from umbel_server.requests.completion import CompletionRequest, read_completion_request
from umbel_server.requests.limits import check_best_of
from umbel_server.requests.sampling import sampling_options
from umbel_server.requests.served import check_completion_served
from umbel_server.responses.completion import completion
from umbel_server.responses.completion_frames import CompletionFrames
from umbel_server.responses.echo import Echo
from umbel_server.server import SERVER, Server
from umbel_server.writer import stream
from umbel_text import LoweredRequest, TextRequest


async def create_completion(http: web.Request) -> web.StreamResponse:
    """Continue every prompt n times."""
    server = http.app[SERVER]
    arrival_time = time.time()
    with server.counted():
        limit = server.options.max_completion_prompts
        body = await read_request(http, read_completion_request, limit)
        return await answer_completion(http, body, arrival_time)


async def answer_completion(
    http: web.Request, body: CompletionRequest, arrival_time: float
) -> web.StreamResponse:
    """Continue the prompts of a body; the time is in seconds of the wall clock."""
    server = http.app[SERVER]
    exchange, requests = await aside(http, _begin_completion, http, server, body, arrival_time)
    limit = server.options.max_n_sequences
    best_of = check_best_of(body.best_of, exchange.n, body.stream, limit)
    with server.admitted(best_of * len(requests)):
        lowered = await lower_aside(
            http, is_constrained(body), lower_all, server, requests, exchange.n
        )
        if best_of > 1 and lowered[0].sampling.greedy:
            raise validation_error(
                f"best_of must be 1 when using greedy sampling, got {best_of}.", "best_of", best_of
            )
        return await _answer(http, server, body, exchange, lowered, best_of)


async def read_completion(
    http: web.Request, server: Server
) -> tuple[CompletionRequest, Exchange, list[TextRequest]]:
    """Read and check a completion request as far as that goes without its prompts."""
    arrival_time = time.time()
    limit = server.options.max_completion_prompts
    body = await read_request(http, read_completion_request, limit)
    return body, *await aside(http, _begin_completion, http, server, body, arrival_time)


def _begin_completion(
    http: web.Request, server: Server, body: CompletionRequest, arrival_time: float
) -> tuple[Exchange, list[TextRequest]]:
    exchange = begin(http, server, body, "cmpl", arrival_time)
    check_completion_served(body)
    prompts = prompts_of(body)
    if not prompts:
        raise validation_error("You must pass at least one prompt", "prompt")
    requests = [
        _text_request(body, exchange, prompt, index) for index, prompt in enumerate(prompts)
    ]
    return exchange, requests


def lower_all(server: Server, requests: list[TextRequest], n: int) -> list[LoweredRequest]:
    """Tokenize and check every prompt; raises umbel_text.InvalidRequestError for the first fault."""
    return [server.chat.text.lower(request, n) for request in requests]


def prompts_of(body: CompletionRequest) -> list[str | list[int]]:
    """Give the prompts of a body: a text, token ids, or a list of either."""
    prompt = body.prompt
    if isinstance(prompt, str):
        return [prompt]
    if prompt and isinstance(prompt[0], int):
        return [[token_id for token_id in prompt if isinstance(token_id, int)]]
    return [part for part in prompt or () if not isinstance(part, int)]


async def _answer(
    http: web.Request,
    server: Server,
    body: CompletionRequest,
    exchange: Exchange,
    lowered: list[LoweredRequest],
    best_of: int,
) -> web.StreamResponse:
    text = server.chat.text
    context = answer_context(server, exchange, body, lowered, body.logprobs)
    echo = Echo(
        text.model.tokenizer,
        context.prompt_token_ids,
        [_echo(server, body, prompt) for prompt in lowered] if body.echo else None,
        bool(body.echo and body.max_tokens == 0),
        lowered[0].sampling.prompt_logprobs,
    )
    samples = merge(*(text.generate_n(prompt, best_of) for prompt in lowered))
    if body.stream:
        return await stream(http, samples, CompletionFrames(context, echo))
    deltas = await collect(http, samples)
    generated = sum(len(delta.token_ids) for delta in deltas)
    if best_of > exchange.n:
        deltas = best_of_each(deltas, best_of, exchange.n)
    if lowered[0].sampling.prompt_logprobs is None:
        answer = completion(context, echo, deltas, generated)
    else:
        # Every token of the prompts gets a text, which takes long for long prompts.
        answer = await asyncio.to_thread(completion, context, echo, deltas, generated)
    headers = load_report(http, text.llm)
    return web.Response(body=answer, headers=headers, content_type="application/json")


def _echo(server: Server, body: CompletionRequest, lowered: LoweredRequest) -> str:
    """Give the text of a prompt; with the token ids returned, they stand for it.

    A text is repeated whole, of token ids those that were kept
    (vllm/renderers/base.py, _tokenize_singleton_prompt).
    """
    if body.return_token_ids:
        return ""
    prompt = lowered.request.prompt
    if isinstance(prompt, str):
        return prompt
    tokenizer = server.chat.text.model.tokenizer
    return tokenizer.decode(lowered.prompt_token_ids, skip_special_tokens=False)


def _text_request(
    body: CompletionRequest, exchange: Exchange, prompt: str | list[int], index: int
) -> TextRequest:
    max_tokens = body.max_tokens
    if body.echo and max_tokens == 0:
        # The engine generates at least one token; it is not shown.
        max_tokens = 1
    return TextRequest(
        request_id=f"{exchange.id}-{index}",
        response_id=exchange.id,
        prompt=prompt,
        sampling=sampling_options(body, max_tokens, _logprobs(body), _prompt_logprobs(body)),
        arrival_time=exchange.arrival_time,
        add_special_tokens=body.add_special_tokens,
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        return_token_offsets=bool(body.return_token_offsets),
        stream_interval=stream_interval(body),
        cache_salt=body.cache_salt,
        data_parallel_rank=exchange.data_parallel_rank,
        priority=exchange.priority,
        session_id=exchange.session_id,
        trace_headers=exchange.trace_headers,
    )


def _logprobs(body: CompletionRequest) -> int | None:
    """Give the log-probabilities to ask for; choosing the best takes those of the samples."""
    if body.logprobs is None and body.best_of is not None and body.best_of > body.n:
        return 0
    return body.logprobs


def _prompt_logprobs(body: CompletionRequest) -> int | None:
    return body.logprobs if body.prompt_logprobs is None and body.echo else body.prompt_logprobs


def add_completion_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/v1/completions", create_completion)
