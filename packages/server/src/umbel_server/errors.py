"""What a client is told when a request is not answered, and what stops a start.

Exception
├── ApiError        a request is answered with a status and an error object
└── OptionError     an option or an environment variable is invalid; stops the start

The rows are those of vLLM's handlers (vllm/entrypoints/serve/exception_handling).
"""

import re

import msgspec

UNREADABLE = "Bad Request"
"""The error type of a body that is not of the form that it should have."""

RETRY_AFTER = "1"
"""Seconds after which a request that was turned away may come again."""

LONGEST_MESSAGE = 16 * 1024
"""Characters of a message that a client is sent; it may quote what the client has sent."""


class OptionError(Exception):
    """Report an invalid option in one line, for whoever starts the server."""


class ApiError(Exception):
    """Answer a request with an error.

    `message` is what the client sees, cut where it is very long: addresses, traceback lines and file paths are taken out, and
    it always encodes as UTF-8.  `type` is the error type of the body, `param` the field that is at
    fault, `status` the HTTP status, which is also the body's `code`.
    """

    def __init__(self, status: int, message: str, type: str, param: str | None = None) -> None:  # noqa: A002
        self.status = status
        self.message = _encodable(sanitize_message(_shortened(message)))
        self.type = type
        self.param = None if param is None else _encodable(param)
        super().__init__(self.message)

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the answer: whoever was turned away may come again, soon."""
        return {"Retry-After": RETRY_AFTER} if self.status == 503 else {}


class ErrorInfo(msgspec.Struct, frozen=True):
    """What is wrong, as the body of an answer says it; `code` is the HTTP status."""

    message: str
    type: str
    param: str | None
    code: int


class ErrorResponse(msgspec.Struct, frozen=True):
    """The body of an answer that reports an error."""

    error: ErrorInfo


def error_response(error: ApiError) -> ErrorResponse:
    """Give the error object, for a body or for an event of a stream."""
    return ErrorResponse(ErrorInfo(error.message, error.type, error.param, error.status))


def error_body(error: ApiError) -> bytes:
    """Encode the error object as compact JSON."""
    return msgspec.json.encode(error_response(error))


def bad_request(message: str, param: str | None = None) -> ApiError:
    """Report a request that can be read and cannot be served."""
    return ApiError(400, message, "BadRequestError", param)


def validation_error(
    message: str, parameter: str | None = None, value: object = msgspec.UNSET
) -> ApiError:
    """Report a parameter that is out of its range; the message ends with its name and value.

    The form is that of vllm/exceptions.py, VLLMValidationError: ` (parameter=X, value=Y)`.
    """
    extras = [] if parameter is None else [f"parameter={parameter}"]
    if value is not msgspec.UNSET:
        extras.append(f"value={display(value)}")
    suffix = f" ({', '.join(extras)})" if extras else ""
    return bad_request(message + suffix, parameter)


def invalid_body(message: str, param: str | None = None) -> ApiError:
    """Report a body that cannot be read as the request it should be."""
    return ApiError(400, message, UNREADABLE, param)


def permission_denied(message: str) -> ApiError:
    """Report a route that this server does not open."""
    return ApiError(403, message, "PermissionDeniedError")


def not_found(message: str, param: str | None = None) -> ApiError:
    """Report something that is named in a request and does not exist, such as a model."""
    return ApiError(404, message, "NotFoundError", param)


def internal(message: str = "Internal server error") -> ApiError:
    """Report a fault of this server or of its engines."""
    return ApiError(500, message, "InternalServerError")


def service_unavailable(message: str) -> ApiError:
    """Report a request that an engine gave back and that may be sent again."""
    return ApiError(503, message, "ServiceUnavailableError")


def overloaded(message: str) -> ApiError:
    """Report a request that was not admitted because of the load."""
    return ApiError(503, message, "Service Unavailable")


def display(value: object) -> str:
    """Give the text of a value, also of one that is too long or too deep to have one."""
    try:
        return str(value)
    except (ValueError, RecursionError):
        return f"<{type(value).__name__}>"


# Whatever a client sends may end up in a message, so each expression takes linear time: a run of
# characters is matched as a whole (possessively) and then kept or replaced, never tried again from
# its second character.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+>")
_TRACEBACK = re.compile(
    r'(?P<space>\s++)?(?P<line>File "[^"]++", line \d++, in \S++(?:\n\s++[^\n]*+)?)|\s++'
)
_SYSTEM_PATH = re.compile(r"/(?:home|usr|opt|var|tmp|root|lib|mnt|srv)(?:/[\w.\-]++)++")
_FILE_PATH = re.compile(r"(?P<path>(?:/[\w\-]++)++)(?P<suffix>\.\w++)?")


def _without_line(match: re.Match[str]) -> str:
    return "" if match["line"] else match[0]


def _without_file(match: re.Match[str]) -> str:
    if match["suffix"] and match["path"].count("/") > 1:
        return "<path>"
    return match[0]


def sanitize_message(message: str) -> str:
    """Take memory addresses, traceback lines and file paths out of a message.

    Paths become `<path>`: those below a system folder, and others of two parts or more that end in
    a file name with an extension.  The rule is that of vLLM's sanitize_message.
    """
    message = _ADDRESS.sub(">", message)
    if 'File "' in message:
        message = _TRACEBACK.sub(_without_line, message)
    if "/" in message:
        message = _SYSTEM_PATH.sub("<path>", message)
        message = _FILE_PATH.sub(_without_file, message)
    return message.strip()


def _shortened(message: str) -> str:
    if len(message) <= LONGEST_MESSAGE:
        return message
    return f"{message[:LONGEST_MESSAGE]}... ({len(message)} characters)"


def _encodable(text: str) -> str:
    """Replace lone surrogates, which JSON text can hold and UTF-8 cannot."""
    return text.encode("utf-8", "replace").decode() if not text.isascii() else text
