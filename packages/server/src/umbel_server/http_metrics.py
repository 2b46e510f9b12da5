"""What is counted per HTTP request, under the names of prometheus-fastapi-instrumentator."""

import asyncio
import time
from functools import lru_cache

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from prometheus_client import CollectorRegistry, Counter, Histogram

UNCOUNTED = frozenset(
    {"/metrics", "/health", "/load", "/ping", "/version", "/server_info"},
)

METHODS = frozenset(
    {"CONNECT", "DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "TRACE"},
)
"""The methods that are counted each by itself; clients may make up others."""

OTHER = "other"
"""The label of all other methods."""

KEPT_SERIES = 256
"""How many series are found without looking up their labels."""

LOW_BUCKETS = (0.1, 0.5, 1.0)
HIGH_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0),
    *(4.5, 5.0, 7.5, 10.0, 30.0, 60.0),
)


def counting(registry: CollectorRegistry, root_path: str = "") -> Middleware:
    """Make the middleware that counts requests and their duration, in seconds.

    Paths below `root_path` are counted as those without it.
    """
    requests = Counter(
        "http_requests_total",
        "Requests by method, status class and handler.",
        ("method", "status", "handler"),
        registry=registry,
    )
    fine = Histogram(
        "http_request_duration_highr_seconds",
        "Duration of requests, in fine buckets.",
        buckets=HIGH_BUCKETS,
        registry=registry,
    )
    coarse = Histogram(
        "http_request_duration_seconds",
        "Duration of requests by method and handler.",
        ("method", "handler"),
        buckets=LOW_BUCKETS,
        registry=registry,
    )

    # Finding the series of some labels takes longer than to count in it.
    requests_of = lru_cache(KEPT_SERIES)(requests.labels)
    durations_of = lru_cache(KEPT_SERIES)(coarse.labels)

    @web.middleware
    async def count(request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        path = resource.canonical.removeprefix(root_path) if resource is not None else "none"
        if path in UNCOUNTED:
            return await handler(request)
        start = time.perf_counter()
        status = 500
        try:
            response = await handler(request)
            status = response.status
            return response
        except web.HTTPException as error:
            status = error.status
            raise
        except asyncio.CancelledError:
            # The client has gone; that is no fault of this server.
            status = 400
            raise
        finally:
            elapsed = time.perf_counter() - start
            method = request.method if request.method in METHODS else OTHER
            requests_of(method, f"{status // 100}xx", path).inc()
            fine.observe(elapsed)
            durations_of(method, path).observe(elapsed)

    return count
