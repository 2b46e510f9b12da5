"""Rendering: a request is checked and tokenized, and generated from elsewhere."""

import msgspec
from aiohttp import web

from umbel_server.errors import permission_denied
from umbel_server.exchange import aside
from umbel_server.requests.chat import ChatCompletionRequest
from umbel_server.requests.completion import CompletionRequest
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
    server = _opened(http)
    body, exchange, request = await read_chat(http, server)
    lowered = await aside(http, server.chat.lower, request, exchange.n)
    return _json(_rendered(body, lowered, exchange.id, exchange.n))


async def render_completion(http: web.Request) -> web.Response:
    """Give the generate requests of a completion, one per prompt."""
    server = _opened(http)
    body, exchange, requests = await read_completion(http, server)
    lowered = await aside(http, lower_all, server, requests, exchange.n)
    ids = [exchange.id]
    if len(lowered) > 1:
        ids = [f"{exchange.id}-{index}" for index in range(len(lowered))]
    return _json(
        [
            _rendered(body, prompt, request_id, exchange.n)
            for request_id, prompt in zip(ids, lowered, strict=True)
        ]
    )


def _opened(http: web.Request) -> Server:
    server = http.app[SERVER]
    if not server.options.enable_scale_out:
        raise permission_denied(DISABLED)
    return server


def _rendered(
    body: ChatCompletionRequest | CompletionRequest,
    lowered: LoweredRequest,
    request_id: str,
    n: int,
) -> RenderedRequest:
    return RenderedRequest(
        request_id=request_id,
        token_ids=lowered.prompt_token_ids,
        sampling_params=rendered_sampling(lowered, n),
        model=body.model,
        return_token_ids=body.return_token_ids,
        stream=bool(body.stream),
        stream_options=body.stream_options if body.stream else None,
        cache_salt=body.cache_salt,
        priority=body.priority,
    )


def _json(value: RenderedRequest | list[RenderedRequest]) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


def add_render_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/v1/chat/completions/render", render_chat_completion)
    app.router.add_post("/v1/completions/render", render_completion)
