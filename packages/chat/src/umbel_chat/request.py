"""A request in messages."""

import time

import msgspec

from umbel_chat.tools import Tool, ToolChoice
from umbel_text import SamplingOptions
from umbel_text.request import TruncationSide


class AnswerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What a request says of the answers to it.

    `tools` may be called as `tool_choice` says; with `parallel_tool_calls` false at most one call is
    shown.  `include_reasoning` says whether reasoning is.
    """

    tools: list[Tool] | None = None
    tool_choice: ToolChoice = "none"
    parallel_tool_calls: bool = True
    include_reasoning: bool = True

    @property
    def allows_calls(self) -> bool:
        """Whether there are tools that may be called."""
        return bool(self.tools) and self.tool_choice != "none"


class ChatRequest(AnswerRequest, frozen=True, kw_only=True):
    """A conversation to continue, for every sample alike.

    `messages` are OpenAI's, decoded from JSON.  The model sees the tools whatever the choice among
    them is.  `template_arguments` and `documents` are handed to the chat template; `chat_template`
    is the source of another one, which the model has to allow.
    `prompt_token_ids` is what they were rendered to before, if it is known: they are not rendered
    again then.
    See `umbel_text.TextRequest` for the other fields.
    """

    request_id: str
    messages: list[object]
    sampling: SamplingOptions
    arrival_time: float = msgspec.field(default_factory=time.time)
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    template_arguments: dict[str, object] = {}
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    prompt_token_ids: list[int] | None = None
    add_special_tokens: bool = False
    max_tokens_name: str = "max_tokens"
    truncate_prompt_tokens: int | None = None
    truncation_side: TruncationSide | None = None
    return_token_offsets: bool = False
    stream_interval: int | None = 1
    cache_salt: str | None = None
    data_parallel_rank: int | None = None
    priority: int = 0
    session_id: str | None = None
    trace_headers: dict[str, str] | None = None
