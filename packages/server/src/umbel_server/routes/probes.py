"""The routes by which others watch a server."""

from http import HTTPStatus
from importlib import metadata

import msgspec
from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from umbel_server.server import SERVER
from umbel_server.sums import Collected, added_up

UMBEL_VERSION = metadata.version("umbel-server")


async def health(http: web.Request) -> web.Response:
    """Tell whether requests can be served: 200, or 503 when the engines or the server go.

    A server that has none to lose is always well.
    """
    server = http.app[SERVER]
    text = server.chat.text
    alive = not server.is_draining and (not text.generates or text.llm.client.error is None)
    return web.Response(status=HTTPStatus.OK if alive else HTTPStatus.SERVICE_UNAVAILABLE)


async def load(http: web.Request) -> web.Response:
    """Tell how many generation requests are being answered."""
    server = http.app[SERVER]
    others = 0 if server.other_processes is None else await server.other_processes.load()
    body = msgspec.json.encode({"server_load": server.load + others})
    return web.Response(body=body, content_type="application/json")


async def version(http: web.Request) -> web.Response:
    """Tell the version of the engines, which is what clients compare, and umbel's.

    Without engines it is umbel's both times.
    """
    engine_version = http.app[SERVER].options.engine_version
    versions = {"version": engine_version or UMBEL_VERSION, "umbel_version": UMBEL_VERSION}
    return web.Response(body=msgspec.json.encode(versions), content_type="application/json")


async def metrics(http: web.Request) -> web.Response:
    """Give every metric in Prometheus' text format."""
    server = http.app[SERVER]
    if server.other_processes is None:
        body = generate_latest(server.registry)
    else:
        others = await server.other_processes.metrics()
        body = generate_latest(Collected(added_up(list(server.registry.collect()), others)))
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})


def add_probe_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_get("/health", health, allow_head=False)
    app.router.add_get("/ping", health, allow_head=False)
    app.router.add_post("/ping", health)
    app.router.add_get("/load", load, allow_head=False)
    app.router.add_get("/version", version, allow_head=False)
    app.router.add_get("/metrics", metrics, allow_head=False)
