"""The application: routes, and what every request passes on its way to them."""

import asyncio
import hmac
import logging
import re
from http import HTTPStatus

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry

from umbel_chat import ChatLlm
from umbel_engine import EngineDeadError, EngineError
from umbel_engine.fault_log import log_fault
from umbel_server.cors import Cors
from umbel_server.errors import error_body
from umbel_server.failures import api_error_of
from umbel_server.http_metrics import counting
from umbel_server.options import ServerOptions
from umbel_server.paths import add_root_path, redirecting, shown_path
from umbel_server.request_ids import add_request_id
from umbel_server.request_log import RequestLog
from umbel_server.routes.chat import add_chat_routes
from umbel_server.routes.completions import add_completion_routes
from umbel_server.routes.generate import add_generate_routes
from umbel_server.routes.invocations import add_invocation_routes
from umbel_server.routes.models import add_model_routes
from umbel_server.routes.probes import add_probe_routes
from umbel_server.routes.render import add_render_routes
from umbel_server.routes.server_info import add_server_info_routes
from umbel_server.routes.tokenize import add_tokenize_routes
from umbel_server.server import SERVER, Server
from umbel_server.tool_call_metrics import ToolCallMetrics
from umbel_server.watch import ClientDisconnectedError

logger = logging.getLogger(__name__)

KEYED_PATHS = re.compile(r"/(v1|v2|inference)")
"""Where an API key is asked for (vllm/entrypoints/serve/middleware), also below a prefix."""


def create_app(
    chat: ChatLlm, options: ServerOptions, registry: CollectorRegistry | None = None
) -> web.Application:
    """Make the aiohttp application that serves a model.

    A `chat` that stands on no engines makes a server that renders.  `registry` is what `/metrics`
    shows; the caller registers the llm layer's metrics on it.  The runner's `handler_cancellation`
    may be on or off: a client that goes away is noticed either way.  When the application ends,
    `chat` renders no template of a request any more.
    """
    registry = registry if registry is not None else CollectorRegistry()
    cors = Cors(options)
    middlewares = [counting(registry, options.root_path)]
    if options.log_requests:
        log = RequestLog()
        middlewares.insert(0, log.middleware)
        if chat.text.generates:
            chat.text.llm.listener = log.note
    if chat.text.generates and chat.model.tool_format is not None:
        metrics = ToolCallMetrics(options.served_model_names[0], registry)
        chat.calls_listener = metrics.count
    if options.api_keys:
        middlewares.append(checking_keys(options.api_keys))
    middlewares += [cors.answering_preflights, answering_errors, redirecting]
    app = web.Application(middlewares=middlewares, client_max_size=options.max_body_size)
    app[SERVER] = Server(chat, options, registry)
    app.on_response_prepare.append(watch_connection)
    app.on_response_prepare.append(cors.add_headers)
    if options.enable_request_id_headers:
        app.on_response_prepare.append(add_request_id)
    app.on_cleanup.append(close)
    add_routes(app)
    add_root_path(app, options.root_path)
    return app


async def close(app: web.Application) -> None:
    """Let go of what lives as long as the application."""
    server = app[SERVER]
    server.slow_clients.close()
    server.template_threads.close()
    server.chat.close()


def add_routes(app: web.Application) -> None:
    """Add the routes that a server has; one without engines has none that generate."""
    server = app[SERVER]
    add_probe_routes(app)
    add_model_routes(app)
    if server.chat.text.generates:
        add_chat_routes(app)
        add_completion_routes(app)
        add_generate_routes(app)
        add_invocation_routes(app)
    add_render_routes(app)
    add_tokenize_routes(app)
    if server.options.development_mode:
        add_server_info_routes(app)


@web.middleware
async def answering_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn what a handler raises into an answer; the one place that does."""
    try:
        return await handler(request)
    except asyncio.CancelledError:
        if request.transport is None:
            request.app[SERVER].disconnects.inc()
        raise
    except ClientDisconnectedError:
        request.app[SERVER].disconnects.inc()
        # Nobody reads this; the status is for the metrics.
        return web.Response(status=HTTPStatus.BAD_REQUEST)
    except web.HTTPRequestEntityTooLarge as error:
        return _plain_error(error, "Request body is too large")
    except web.HTTPException as error:
        return _plain_error(error, error.reason)
    except Exception as error:
        return _answer_to(request, error)


def _answer_to(request: web.Request, error: Exception) -> web.Response:
    """Answer with an error, which is forgotten with that; see `_forget_frames`."""
    failure = api_error_of(error)
    if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
        _log_failure(request, error)
    _forget_frames(error)
    return web.Response(
        status=failure.status,
        headers=failure.headers,
        body=error_body(failure),
        content_type="application/json",
    )


def _forget_frames(error: Exception) -> None:
    """Let go of the frames that an error has passed.

    Their variables hold the request, its samples and often the error itself: all of that would be
    kept until the garbage collector comes.
    """
    error.__traceback__ = None


async def watch_connection(request: web.Request, response: web.StreamResponse) -> None:
    """Watch that the client reads what it is about to be sent."""
    if request.transport is not None:
        request.app[SERVER].slow_clients.outgoing(request.transport)


def _log_failure(request: web.Request, error: Exception) -> None:
    """Tell the operator of a request that failed through no fault of its client."""
    match error:
        case EngineDeadError():
            pass  # told once, and not for each of the requests that it ends
        case EngineError():
            # Its words may quote the prompt.
            logger.error(
                "%s %s failed: the engine ended it with an error",
                request.method,
                shown_path(request),
            )
        case _:
            log_fault(logger, error, "%s %s failed", request.method, shown_path(request))


def _plain_error(error: web.HTTPException, detail: str) -> web.Response:
    """Answer as FastAPI does for what no handler saw: an unknown path, a wrong method."""
    _forget_frames(error)
    headers = {}
    if isinstance(error, web.HTTPMethodNotAllowed):
        headers["Allow"] = ", ".join(sorted(error.allowed_methods))
    return web.Response(
        status=error.status,
        headers=headers,
        body=msgspec.json.encode({"detail": detail}),
        content_type="application/json",
    )


def checking_keys(keys: tuple[str, ...]) -> Middleware:
    """Make the middleware that lets in only who shows one of the keys."""
    expected = [key.encode() for key in keys]

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method == "OPTIONS" or KEYED_PATHS.search(request.path) is None:
            return await handler(request)
        scheme, _, key = request.headers.get("Authorization", "").partition(" ")
        shown = key.encode(errors="surrogateescape")
        # Every key is compared, in constant time, so that timing tells nothing.
        matches = [hmac.compare_digest(shown, known) for known in expected]
        if scheme.lower() == "bearer" and any(matches):
            return await handler(request)
        return web.Response(
            status=HTTPStatus.UNAUTHORIZED,
            body=b'{"error":"Unauthorized"}',
            content_type="application/json",
        )

    return check
