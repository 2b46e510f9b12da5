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
    headers = http.headers
    trace = {name: headers[name] for name in ("traceparent", "tracestate") if name in headers}
    return RequestHeaders(
        headers.get("X-Request-Id"),
        _integer(headers.get("X-data-parallel-rank")),
        headers.get("X-Session-ID"),
        _integer(headers.get("X-Vllm-Priority")),
        trace or None,
    )


def _integer(text: str | None) -> int | None:
    if text is None:
        return None
    try:
        number = int(text)
    except ValueError:
        return None
    return number if -INT64_LIMIT <= number < INT64_LIMIT else None
