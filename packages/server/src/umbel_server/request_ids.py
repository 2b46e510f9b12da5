"""The id of a request, in the headers of its answer."""

import uuid

from aiohttp import web


async def add_request_id(request: web.Request, response: web.StreamResponse) -> None:
    """Send back the id that came with the request, or a new one; for `on_response_prepare`.

    As in vLLM (vllm/entrypoints/serve/middleware/x_request_id.py), a new one is not the id in the
    body.
    """
    given = request.headers.get("X-Request-Id")
    response.headers["X-Request-Id"] = uuid.uuid4().hex if given is None else sendable(given)


def sendable(text: str) -> str:
    """Give what a client sent in a header as it can be sent back.

    aiohttp reads headers as UTF-8, leaves lone surrogates where they are not, and cannot write
    these.
    """
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
