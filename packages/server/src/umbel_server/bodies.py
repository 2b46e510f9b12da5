"""The bytes of a body: how many they may be, and how long they may take to arrive."""

import asyncio
from http import HTTPStatus

from aiohttp import web

from umbel_server.errors import ApiError, invalid_body
from umbel_server.server import SERVER
from umbel_server.watch import ClientDisconnectedError


async def read_body(http: web.Request) -> bytes:
    """Read the whole body of a request.

    Raises ApiError for one that is packed, or did not arrive in time, HTTPRequestEntityTooLarge for
    one that is too long, as soon as that is known, and ClientDisconnectedError.
    """
    _check_head(http)
    timeout = http.app[SERVER].options.body_timeout
    try:
        if http.content.is_eof():
            # It has arrived already, as most do.
            return await http.read()
        async with asyncio.timeout(timeout):
            return await http.read()
    except TimeoutError:
        raise ApiError(
            HTTPStatus.REQUEST_TIMEOUT,
            f"The body did not arrive within {timeout:g} seconds.",
            "Request Timeout",
        ) from None
    except web.RequestPayloadError as error:
        # What aiohttp says of it repeats a part of it.
        raise invalid_body("The body could not be read: it is not framed as HTTP says.") from error
    except ConnectionError as error:
        raise ClientDisconnectedError from error


def _check_head(http: web.Request) -> None:
    """Refuse a body by its head: nothing is unpacked here, and what is too long is not read."""
    limit = http.client_max_size
    if http.content_length is not None and http.content_length > limit:
        raise web.HTTPRequestEntityTooLarge(limit, http.content_length)
    for name, plain in (("Content-Encoding", "identity"), ("Transfer-Encoding", "chunked")):
        value = http.headers.get(name)
        if value is not None and value.strip().lower() != plain:
            raise ApiError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
                f"{name} must be `{plain}` or left out: a body has to be sent as it is.",
                "Unsupported Media Type",
            )
