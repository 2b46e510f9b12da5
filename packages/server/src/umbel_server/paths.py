"""Other paths by which routes are found."""

from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler

LONGEST_SHOWN = 200
"""Characters of a path that the log shows."""


@web.middleware
async def redirecting(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Redirect a path that ends with a slash to the one without, if there is a route.

    Whatever the method; that is for the other path to judge, as with Starlette's
    `redirect_slashes`.  The location has no host, which a proxy may know under another name.
    """
    path = request.rel_url.raw_path
    if not isinstance(request.match_info.http_exception, web.HTTPNotFound) or path[-1:] != "/":
        return await handler(request)
    shorter = request.rel_url.with_path(path.rstrip("/"), encoded=True, keep_query=True)
    found = await request.app.router.resolve(request.clone(rel_url=shorter))
    if isinstance(found.http_exception, web.HTTPNotFound):
        return await handler(request)
    return web.Response(
        status=HTTPStatus.TEMPORARY_REDIRECT, headers={"Location": shorter.raw_path_qs}
    )


def shown_path(request: web.Request) -> str:
    """Give the path of a request for the log: as it was sent, so that it stays on its line."""
    return request.rel_url.raw_path[:LONGEST_SHOWN]


def add_root_path(app: web.Application, root_path: str) -> None:
    """Serve every route also below a prefix, for a proxy that does not take its own away."""
    if not root_path:
        return
    for route in list(app.router.routes()):
        assert route.resource is not None
        app.router.add_route(route.method, root_path + route.resource.canonical, route.handler)
