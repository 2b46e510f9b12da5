"""Request bodies: decoding them, their fields, and the checks that need nothing but the request."""

from umbel_server.requests.body import decode_body
from umbel_server.requests.chat import ChatCompletionRequest, read_chat_request
from umbel_server.requests.completion import CompletionRequest, read_completion_request
from umbel_server.requests.limits import check_n, read_max_n
from umbel_server.requests.served import check_chat_served, check_completion_served
from umbel_server.requests.shared import StreamOptions

__all__ = [
    "ChatCompletionRequest",
    "CompletionRequest",
    "StreamOptions",
    "check_chat_served",
    "check_completion_served",
    "check_n",
    "decode_body",
    "read_chat_request",
    "read_completion_request",
    "read_max_n",
]
