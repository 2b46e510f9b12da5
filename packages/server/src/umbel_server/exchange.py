"""One generation request on its way: what every kind of it needs before it is answered."""

import asyncio
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import msgspec
from aiohttp import web

from umbel_chat import ChatRequest
from umbel_server.bodies import read_body
from umbel_server.requests.body import decode_body
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.headers import read_headers
from umbel_server.requests.limits import check_n
from umbel_server.requests.parse_context import ParseContext
from umbel_server.requests.shared import ExtraArgument, check_encodable
from umbel_server.requests.tools import NamedToolChoice
from umbel_server.responses.context import AnswerContext
from umbel_server.responses.logprobs import Display
from umbel_server.server import SERVER, Server
from umbel_text import LoweredRequest

WorkP = ParamSpec("WorkP")
ResultT = TypeVar("ResultT")

LONG_BODY = 16 * 1024
"""Bytes of a body from which on rendering and tokenizing it takes longer than a change of threads."""


VERY_LONG_BODY = 1024 * 1024
"""Bytes of a body from which on it may take seconds, for which others would share the processor."""

LONG_CONSTRAINT = 1024
"""Bytes of a body from which on checking a regex or a grammar in it may take long."""


class Exchange(msgspec.Struct, frozen=True):
    """What is known of a request besides its body.

    `id` is the response id; `arrival_time` is in seconds of the wall clock; `n` has been checked.
    What both a header and the body may say is settled here.
    """

    id: str
    arrival_time: float
    n: int
    data_parallel_rank: int | None
    priority: int
    session_id: str | None
    trace_headers: dict[str, str] | None


async def read_request(
    http: web.Request,
    read: Callable[Concatenate[dict[str, object], WorkP], ResultT],
    *args: WorkP.args,
    **kwargs: WorkP.kwargs,
) -> ResultT:
    """Read the JSON object that a request carries, and from it what `read` makes of it.

    A long body is decoded and read aside.  Raises ApiError, and what `read` does.
    """
    body = await read_body(http)
    content_type = http.headers.get("Content-Type")

    def decode_and_read() -> ResultT:
        return read(decode_body(body, content_type), *args, **kwargs)

    return await aside(http, decode_and_read)


async def aside(
    http: web.Request, work: Callable[WorkP, ResultT], *args: WorkP.args, **kwargs: WorkP.kwargs
) -> ResultT:
    """Do some work for a request: on a thread, so that others do not wait, if its body is long."""
    if _is_shorter(http, LONG_BODY):
        return work(*args, **kwargs)
    return await _on_a_thread(http, partial(work, *args, **kwargs))


async def _on_a_thread(http: web.Request, work: Callable[[], ResultT]) -> ResultT:
    """Do some work on a thread; that of the longest bodies takes turns."""
    if _is_shorter(http, VERY_LONG_BODY):
        return await asyncio.to_thread(work)
    async with http.app[SERVER].long_work:
        return await asyncio.to_thread(work)


async def lower_aside(
    http: web.Request,
    is_constrained: bool,
    lower: Callable[WorkP, ResultT],
    *args: WorkP.args,
    **kwargs: WorkP.kwargs,
) -> ResultT:
    """Lower a request, aside if its body is long, or may hold a constraint that takes long."""
    if _is_shorter(http, LONG_CONSTRAINT if is_constrained else LONG_BODY):
        return lower(*args, **kwargs)
    return await _on_a_thread(http, partial(lower, *args, **kwargs))


async def lower_chat_aside(
    http: web.Request,
    request: ChatRequest,
    is_constrained: bool,
    lower: Callable[WorkP, ResultT],
    *args: WorkP.args,
    **kwargs: WorkP.kwargs,
) -> ResultT:
    """Lower a chat like `lower_aside`; one with a template of its own has its threads."""
    server = http.app[SERVER]
    if server.chat.brings_template(request):
        return await server.template_threads.run(http, partial(lower, *args, **kwargs))
    return await lower_aside(http, is_constrained, lower, *args, **kwargs)


def _is_shorter(http: web.Request, size: int) -> bool:
    """Tell whether a body is known to be shorter than this."""
    length = http.content_length
    return length is not None and length < size


def is_constrained(body: ChatCompletionRequest | CompletionRequest) -> bool:
    """Tell whether a request constrains the texts that may answer it."""
    if body.structured_outputs is not None or body.response_format is not None:
        return True
    if not isinstance(body, ChatCompletionRequest) or not body.tools or body.tool_choice == "none":
        return False
    # Calls that may be are free, unless there may be one only or a tool is strict.
    return (
        body.tool_choice != "auto"
        or body.parallel_tool_calls is False
        or any(tool.function.strict for tool in body.tools)
    )


def begin(
    http: web.Request,
    server: Server,
    body: ChatCompletionRequest | CompletionRequest,
    prefix: str,
    arrival_time: float,
) -> Exchange:
    """Check what does not depend on the prompt; raises ApiError.

    `prefix` is what response ids of this kind begin with.  The order is that of vLLM's server:
    model, then n.
    """
    server.check_model(body.model)
    n = check_n(body.n, server.options.max_n_sequences)
    stop = [body.stop] if isinstance(body.stop, str) else body.stop or ()
    for field, text in (
        ("request_id", body.request_id),
        ("session_id", body.session_id),
        ("cache_salt", body.cache_salt),
        *(("bad_words", word) for word in body.bad_words),
        *(("stop", text) for text in stop),
    ):
        check_encodable(field, text)
    headers = read_headers(http)
    base = headers.request_id if headers.request_id is not None else body.request_id
    return Exchange(
        id=f"{prefix}-{base}",
        arrival_time=arrival_time,
        n=n,
        data_parallel_rank=headers.data_parallel_rank,
        priority=headers.priority if headers.priority is not None else body.priority,
        session_id=body.session_id or headers.session_id or _session_id_of(body.vllm_xargs),
        trace_headers=headers.trace_headers,
    )


def _session_id_of(extra_args: Mapping[str, ExtraArgument] | None) -> str | None:
    session_id = (extra_args or {}).get("session_id")
    return session_id if isinstance(session_id, str) and session_id else None


def stream_interval(body: ChatCompletionRequest | CompletionRequest) -> int | None:
    """Give the tokens per hand-over, None for an answer that does not stream."""
    return (body.stream_interval or 1) if body.stream else None


def answer_context(
    server: Server,
    exchange: Exchange,
    body: ChatCompletionRequest | CompletionRequest,
    lowered: list[LoweredRequest],
    top_logprobs: int | None,
    prompt_text: str | None = None,
) -> AnswerContext:
    """Give what the parts of the answer have in common."""
    options = server.options
    logprobs = None
    if top_logprobs is not None:
        # Tokens that were named are all shown.
        top = -1 if body.logprob_token_ids else top_logprobs
        as_token_ids = body.return_tokens_as_token_ids
        if as_token_ids is None:
            as_token_ids = options.return_tokens_as_token_ids
        logprobs = Display(top, as_token_ids)
    usage = body.stream_options
    forced = options.enable_force_include_usage
    include_usage = forced or bool(usage and usage.include_usage)
    return AnswerContext(
        id=exchange.id,
        created=int(time.time()),
        model=server.model_name,
        fingerprint=options.fingerprint,
        n=exchange.n,
        prompt_token_ids=[prompt.prompt_token_ids for prompt in lowered],
        logprobs=logprobs,
        prompt_text=prompt_text,
        return_token_ids=bool(body.return_token_ids),
        return_weight_versions=body.return_weight_versions,
        include_usage=include_usage,
        continuous_usage=forced or (include_usage and bool(usage and usage.continuous_usage_stats)),
        prompt_details=options.enable_prompt_tokens_details,
        timing=options.enable_per_request_metrics,
    )


def parsed_context(
    context: AnswerContext, server: Server, body: ChatCompletionRequest | ParseContext
) -> AnswerContext:
    """Say how parsers have a part in an answer."""
    parsers = server.chat.parsers
    if parsers is None:
        return context
    is_named = isinstance(body.tool_choice, NamedToolChoice)
    calls = parsers.tool is not None and bool(body.tools) and body.tool_choice != "none"
    return msgspec.structs.replace(
        context,
        is_parsed=calls or parsers.reads_whole or parsers.reasoning is not None,
        logprobs=context.logprobs if body.include_reasoning else None,
        hides_token_ids=not body.include_reasoning,
        reasoning_details=parsers.reasoning is not None,
        forces_calls=is_named or body.tool_choice == "required",
        names_tool=is_named,
    )
