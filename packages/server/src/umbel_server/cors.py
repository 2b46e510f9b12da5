"""Which pages of other sites may read answers: cross-origin resource sharing.

The rules, headers and texts are those of Starlette's CORSMiddleware, which vLLM's server has.
"""

from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from umbel_server.options import ServerOptions
from umbel_server.request_ids import sendable

ALL = "*"

ALL_METHODS = ("DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT", "QUERY")

ALWAYS_ALLOWED_HEADERS = frozenset(
    {"Accept", "Accept-Language", "Content-Language", "Content-Type"}
)

PREFLIGHT_LASTS = 600
"""Seconds for which a browser may keep the answer to a preflight."""

PREFLIGHT_VARIES_BY = (
    "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
    "Access-Control-Request-Private-Network"
)


class Cors:
    """Answers the preflights of browsers, and adds headers to every other answer."""

    def __init__(self, options: ServerOptions) -> None:
        self._origins = options.allowed_origins
        self._all_origins = ALL in options.allowed_origins
        self._credentials = options.allow_credentials
        self._methods = ALL_METHODS if ALL in options.allowed_methods else options.allowed_methods
        self._all_headers = ALL in options.allowed_headers
        headers = sorted(ALWAYS_ALLOWED_HEADERS.union(options.allowed_headers))
        self._headers = frozenset(name.lower() for name in headers)
        self._preflight_headers = {"Vary": PREFLIGHT_VARIES_BY}
        if self._any_origin_alike:
            self._preflight_headers["Access-Control-Allow-Origin"] = ALL
        self._preflight_headers["Access-Control-Allow-Methods"] = ", ".join(self._methods)
        self._preflight_headers["Access-Control-Max-Age"] = str(PREFLIGHT_LASTS)
        if not self._all_headers:
            self._preflight_headers["Access-Control-Allow-Headers"] = ", ".join(headers)
        if self._credentials:
            self._preflight_headers["Access-Control-Allow-Credentials"] = "true"

    @property
    def _any_origin_alike(self) -> bool:
        """Whether no answer names an origin; with credentials, browsers want it named."""
        return self._all_origins and not self._credentials

    @property
    def answering_preflights(self) -> Middleware:
        """The middleware that answers what a browser asks before a request."""

        @web.middleware
        async def answer(request: web.Request, handler: Handler) -> web.StreamResponse:
            return self._preflight(request) if is_preflight(request) else await handler(request)

        return answer

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Tell the browser whether the page may read this; for `on_response_prepare`."""
        if is_preflight(request):
            return
        headers = response.headers
        origin = request.headers.get("Origin")
        names_it = False
        if origin is not None:
            names_it = not self._any_origin_alike and self._is_allowed(origin)
            if self._all_origins:
                headers["Access-Control-Allow-Origin"] = ALL
            if self._credentials:
                headers["Access-Control-Allow-Credentials"] = "true"
            if names_it:
                headers["Access-Control-Allow-Origin"] = sendable(origin)
        headers["Vary"] = ", ".join((*headers.getall("Vary", ()), "Origin"))

    def _is_allowed(self, origin: str) -> bool:
        return self._all_origins or origin in self._origins

    def _preflight(self, request: web.Request) -> web.Response:
        origin = request.headers["Origin"]
        headers = dict(self._preflight_headers)
        faults = []
        if not self._is_allowed(origin):
            faults.append("origin")
        elif not self._any_origin_alike:
            headers["Access-Control-Allow-Origin"] = sendable(origin)
        if request.headers["Access-Control-Request-Method"] not in self._methods:
            faults.append("method")
        wanted = request.headers.get("Access-Control-Request-Headers")
        if wanted is not None:
            if self._all_headers:
                headers["Access-Control-Allow-Headers"] = sendable(wanted)
            elif any(name.strip().lower() not in self._headers for name in wanted.split(",")):
                faults.append("headers")
        if "Access-Control-Request-Private-Network" in request.headers:
            faults.append("private-network")
        if faults:
            text = f"Disallowed CORS {', '.join(faults)}"
            return web.Response(status=HTTPStatus.BAD_REQUEST, text=text, headers=headers)
        return web.Response(text="OK", headers=headers)


def is_preflight(request: web.Request) -> bool:
    """Tell whether a browser asks what it may send."""
    return (
        request.method == "OPTIONS"
        and "Origin" in request.headers
        and "Access-Control-Request-Method" in request.headers
    )
