"""What a request says in its headers."""

import msgspec
from aiohttp import web

INT64_LIMIT = 2**63


class RequestHeaders(msgspec.Struct, frozen=True):
    """The headers that have a meaning to the engine; None where they were not sent."""

    request_id: str | None
    data_parallel_rank: int | None
    session_id: str | None
    priority: int | None
    trace_headers: dict[str, str] | None


def read_headers(http: web.Request) -> RequestHeaders:
    """Read the headers of a request; numbers that are none are ignored, as in vLLM."""
    traced = ((name, _text(http, name)) for name in ("traceparent", "tracestate"))
    return RequestHeaders(
        _text(http, "X-Request-Id"),
        _integer(_text(http, "X-data-parallel-rank")),
        _text(http, "X-Session-ID"),
        _integer(_text(http, "X-Vllm-Priority")),
        {name: text for name, text in traced if text is not None} or None,
    )


def _text(http: web.Request, name: str) -> str | None:
    """Give a header as vLLM's server reads it, in Latin-1: any bytes are text then.

    aiohttp takes it for UTF-8 and leaves lone surrogates where it is not, which would not encode.
    """
    value = http.headers.get(name)
    return None if value is None else value.encode("utf-8", "surrogateescape").decode("latin-1")


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -INT64_LIMIT <= number < INT64_LIMIT else None
