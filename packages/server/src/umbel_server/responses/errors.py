"""Errors as events, for an answer that has begun."""

import json

import msgspec

from umbel_engine import EngineRequestError
from umbel_server.errors import ApiError, error_body, error_response
from umbel_server.failures import api_error_of


def chat_failure(error: Exception) -> bytes:
    """Give the event that ends a chat answer.

    An engine's failure has one type here, whatever its status
    (vllm/entrypoints/openai/chat_completion/serving.py).
    """
    failure = api_error_of(error)
    if isinstance(error, EngineRequestError) and failure.status >= 500:
        failure = ApiError(failure.status, failure.message, "InternalServerError", failure.param)
    return b"data: %b\n\n" % error_body(failure)


def completion_failure(error: Exception) -> bytes:
    """Give the event that ends a completion; vLLM writes it with spaces."""
    body = msgspec.to_builtins(error_response(api_error_of(error)))
    return b"data: %b\n\n" % json.dumps(body).encode()
