"""Messages in, messages out, n times: chat templates and one output processor per sample."""

from umbel_chat.chat import ChatLlm, ChatModel
from umbel_chat.errors import (
    ChatError,
    ChatTemplateError,
    InvalidChatError,
    InvalidMessageError,
)
from umbel_chat.output import (
    ContentDelta,
    OutputEvent,
    OutputProcessor,
    OutputProcessorFactory,
    PlainTextProcessor,
)
from umbel_chat.processes import TemplateLimits
from umbel_chat.request import ChatRequest
from umbel_chat.stage import ChatDelta
from umbel_chat.template import ChatTemplate, load_chat_template

__all__ = [
    "ChatDelta",
    "ChatError",
    "ChatLlm",
    "ChatModel",
    "ChatRequest",
    "ChatTemplate",
    "ChatTemplateError",
    "ContentDelta",
    "InvalidChatError",
    "InvalidMessageError",
    "OutputEvent",
    "OutputProcessor",
    "OutputProcessorFactory",
    "PlainTextProcessor",
    "TemplateLimits",
    "load_chat_template",
]
