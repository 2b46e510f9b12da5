"""A line in the log for every request: what it was and what became of it, never its text."""

import json
import logging
import time
from contextvars import ContextVar
from typing import Any

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from umbel_llm import RequestSummary
from umbel_server.paths import shown_path

logger = logging.getLogger(__name__)

UNLOGGED = frozenset({"/metrics", "/health", "/load", "/ping"})
"""What is asked for every few seconds by whoever watches the server."""

DISCONNECTED = "disconnected"


class RequestLog:
    """Writes the lines; the llm layer's listener is to be `note`."""

    def __init__(self) -> None:
        # One for each prompt of the request that the current task answers.
        self._summaries: ContextVar[list[RequestSummary] | None] = ContextVar(
            "summaries", default=None
        )

    def note(self, summary: RequestSummary) -> None:
        """Take in what became of a prompt of the request that the current task answers."""
        summaries = self._summaries.get()
        if summaries is not None:
            summaries.append(summary)

    @property
    def middleware(self) -> Middleware:
        """The middleware that writes the line when a request has been answered."""

        @web.middleware
        async def log(request: web.Request, handler: Handler) -> web.StreamResponse:
            if request.path in UNLOGGED:
                return await handler(request)
            summaries: list[RequestSummary] = []
            self._summaries.set(summaries)
            start = time.perf_counter()
            status: int | str = DISCONNECTED
            try:
                response = await handler(request)
                if request.transport is not None and not request.transport.is_closing():
                    status = response.status
                return response
            except web.HTTPException as error:
                status = error.status
                raise
            except Exception:
                status = 500
                raise
            finally:
                facts = facts_of(request, status, time.perf_counter() - start, summaries)
                logger.info("%s", line_of(facts), extra={"request": facts})

        return log


def facts_of(
    request: web.Request, status: int | str, seconds: float, summaries: list[RequestSummary]
) -> dict[str, Any]:
    """Give what there is to say about a request, by name; times are in seconds."""
    facts: dict[str, Any] = {
        "method": request.method,
        "path": shown_path(request),
        "status": status,
        "seconds": round(seconds, 3),
    }
    if not summaries:
        return facts
    reasons: dict[str, int] = {}
    for summary in summaries:
        for reason, count in summary.finish_reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    first = [item.time_to_first_token for item in summaries if item.time_to_first_token is not None]
    facts |= {
        "id": summaries[0].response_id,
        "n": summaries[0].n,
        "prompts": len(summaries),
        "prompt_tokens": sum(summary.num_prompt_tokens for summary in summaries),
        "completion_tokens": sum(summary.num_generation_tokens for summary in summaries),
        "finish_reasons": reasons,
        "time_to_first_token": round(min(first), 3) if first else None,
    }
    return facts


def line_of(facts: dict[str, Any]) -> str:
    """Write facts as a line: the four that all requests have, then name=value for the others."""
    head = f"{facts['method']} {facts['path']} {facts['status']} in {facts['seconds']:.3f} s"
    rest = [
        f"{name}={json.dumps(value)}"
        for name, value in facts.items()
        if name not in ("method", "path", "status", "seconds")
    ]
    return " ".join([head, *rest])
