"""Messages in, messages out, n times: templates, tools, and one output parser per sample."""

from umbel_chat.chat import ChatLlm, ChatModel, LoweredChat
from umbel_chat.errors import (
    ChatError,
    ChatTemplateError,
    InvalidChatError,
    InvalidMessageError,
)
from umbel_chat.events import (
    ArgumentsDelta,
    ContentDelta,
    OutputEvent,
    ReasoningDelta,
    ToolCallEnd,
    ToolCallStart,
)
from umbel_chat.output import OutputProcessor, OutputProcessorFactory, PlainTextProcessor
from umbel_chat.processes import TemplateLimits
from umbel_chat.request import AnswerRequest, ChatRequest
from umbel_chat.stage import ChatDelta
from umbel_chat.template import ChatTemplate
from umbel_chat.template_files import load_chat_template, load_tool_template
from umbel_chat.tools import NamedTool, Tool, ToolChoice

__all__ = [
    "AnswerRequest",
    "ArgumentsDelta",
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
    "LoweredChat",
    "NamedTool",
    "OutputEvent",
    "OutputProcessor",
    "OutputProcessorFactory",
    "PlainTextProcessor",
    "ReasoningDelta",
    "TemplateLimits",
    "Tool",
    "ToolCallEnd",
    "ToolCallStart",
    "ToolChoice",
    "load_chat_template",
    "load_tool_template",
]
