"""Every exception that a request can meet, and the answer that it becomes."""

from umbel_chat import InvalidChatError, InvalidMessageError
from umbel_engine import EngineDeadError, EngineRequestError, InvalidRankError
from umbel_llm import QueueFullError
from umbel_server.errors import (
    ApiError,
    bad_request,
    internal,
    invalid_body,
    overloaded,
    service_unavailable,
    validation_error,
)
from umbel_text import InvalidRequestError

ENGINE_DEAD = "The server had an error while processing your request."


def api_error_of(error: Exception) -> ApiError:
    """Give the answer to a request that met an exception.

    The rows are those of vllm/entrypoints/serve/exception_handling; what is not known is a fault of
    this server, and its words stay in the log.
    """
    match error:
        case ApiError():
            return error
        case InvalidMessageError():
            return invalid_body(str(error), error.parameter)
        case InvalidRequestError() | InvalidChatError():
            return validation_error(str(error), error.parameter, error.value)
        case InvalidRankError():
            return bad_request(str(error))
        case EngineRequestError(code="validation_error"):
            return bad_request(str(error), error.parameter)
        case EngineRequestError(retryable=True):
            return service_unavailable(str(error))
        case EngineRequestError():
            return internal(str(error))
        case QueueFullError():
            return overloaded(str(error))
        case EngineDeadError():
            return internal(ENGINE_DEAD)
        case _:
            return internal()
