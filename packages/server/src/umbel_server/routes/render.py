"""Rendering: a request is checked and tokenized, and generated from elsewhere."""

import msgspec
from aiohttp import web

from umbel_server.errors import bad_request, permission_denied
from umbel_server.exchange import Exchange, is_constrained, lower_aside, lower_chat_aside
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
from umbel_server.requests.parse_context import ParseContext
from umbel_server.responses.render import RenderedRequest, rendered_sampling
from umbel_server.routes.chat import read_chat
from umbel_server.routes.completions import lower_all, read_completion
from umbel_server.server import SERVER, Server
from umbel_text import LoweredRequest

DISABLED = (
    "Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to enable them."
)


async def render_chat_completion(http: web.Request) -> web.Response:
    """Give the generate request of a chat."""
    server = opened(http)
    body, exchange, request = await read_chat(http, server)
    lowered = await lower_chat_aside(
        http, request, is_constrained(body), server.chat.lower, request, exchange.n
    )
    context = _parse_context(server, body)
    return _json(_rendered(body, lowered.text, exchange.id, exchange, context))


async def render_completion(http: web.Request) -> web.Response:
    """Give the generate requests of a completion, one per prompt."""
    server = opened(http)
    body, exchange, requests = await read_completion(http, server)
    if body.best_of is not None and body.best_of != exchange.n:
        raise bad_request("`best_of` cannot be rendered: it is no sampling parameter.", "best_of")
    lowered = await lower_aside(http, is_constrained(body), lower_all, server, requests, exchange.n)
    ids = [exchange.id]
    if len(lowered) > 1:
        ids = [f"{exchange.id}-{index}" for index in range(len(lowered))]
    return _json(
        [
            _rendered(body, prompt, request_id, exchange)
            for request_id, prompt in zip(ids, lowered, strict=True)
        ]
    )


def opened(http: web.Request) -> Server:
    """Give the server, if it serves what the scale-out API is made of; else raises ApiError."""
    server = http.app[SERVER]
    if not server.options.enable_scale_out:
        raise permission_denied(DISABLED)
    return server


def _rendered(
    body: ChatCompletionRequest | CompletionRequest,
    lowered: LoweredRequest,
    request_id: str,
    exchange: Exchange,
    context: ParseContext | None = None,
) -> RenderedRequest:
    stream = bool(body.stream)
    return RenderedRequest(
        request_id=request_id,
        token_ids=lowered.prompt_token_ids,
        token_offsets=lowered.token_offsets,
        sampling_params=rendered_sampling(lowered, exchange.n, stream, body.stream_interval),
        model=body.model,
        reasoning_ended=lowered.request.reasoning_ended,
        reasoning_parser_kwargs=lowered.request.reasoning_parser_kwargs,
        return_token_ids=body.return_token_ids,
        parse_context=context,
        stream=stream,
        stream_options=body.stream_options if stream else None,
        cache_salt=body.cache_salt,
        priority=body.priority,
        # Empty ones are not handed on.
        kv_transfer_params=body.kv_transfer_params or None,
        ec_transfer_params=body.ec_transfer_params or None,
    )


def _parse_context(server: Server, body: ChatCompletionRequest) -> ParseContext:
    """Give what it takes to turn the tokens of the answer into a message again."""
    return ParseContext(
        tools=body.tools,
        tool_choice=body.tool_choice,
        parallel_tool_calls=body.parallel_tool_calls,
        include_reasoning=body.include_reasoning,
        chat_template_kwargs=_template_arguments(server, body),
        history_tool_call_cnt=sum(_tool_calls(message) for message in body.messages),
    )


def _template_arguments(server: Server, body: ChatCompletionRequest) -> dict[str, object]:
    """Give the arguments of the chat template, as vLLM's build_chat_params puts them together."""
    effort = body.reasoning_effort
    own: dict[str, object] = {
        "add_generation_prompt": body.add_generation_prompt,
        "continue_final_message": body.continue_final_message,
        "documents": body.documents,
        "reasoning_effort": effort,
    }
    arguments = dict(body.chat_template_kwargs or {})
    arguments |= {name: value for name, value in own.items() if value is not None}
    if effort is not None:
        arguments.setdefault("enable_thinking", effort != "none")
    return {**server.chat.model.template_arguments, **arguments}


def _tool_calls(message: dict[str, object]) -> int:
    calls = message.get("tool_calls")
    return len(calls) if message.get("role") == "assistant" and isinstance(calls, list) else 0


def _json(value: RenderedRequest | list[RenderedRequest]) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def add_render_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/v1/chat/completions/render", render_chat_completion)
    app.router.add_post("/v1/completions/render", render_completion)
