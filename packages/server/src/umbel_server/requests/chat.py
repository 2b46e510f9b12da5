"""The body of `POST /v1/chat/completions`."""

from typing import Literal

from msgspec import Struct, field

from umbel_engine import RepetitionDetection
from umbel_server.errors import bad_request, validation_error
from umbel_server.requests.faults import Faults, Location
from umbel_server.requests.fields import StructReader
from umbel_server.requests.shared import (
    CacheSalt,
    ExtraArgument,
    Int64,
    MultimodalPayload,
    NonNegative,
    Positive,
    Stop,
    StreamOptions,
    TruncatePromptTokens,
    TruncationSide,
    apply_multimodal_alias,
    apply_thinking_token_budget,
    check_cache_salt,
    check_logprobs_number,
    check_logprobs_range,
    check_prompt_logprobs,
    check_stream_options,
    new_request_id,
)
from umbel_server.requests.structured import (
    CHECKED_FIELDS,
    ResponseFormat,
    StructuredOutputsRequest,
    check_response_format,
    count_constraints,
)
from umbel_server.requests.tools import Tool, ToolChoice, check_tools

Message = dict[str, object]
"""A message as the client wrote it, with a `role`; the chat layer knows what the rest means."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]


class ChatCompletionRequest(Struct, frozen=True, kw_only=True):
    """A request for a chat completion, as the client made it.

    Fields, order, types and defaults are those of ChatCompletionRequest in
    vllm/entrypoints/openai/chat_completion/protocol.py; None means that the client left the value
    to the server.
    """

    messages: list[Message]
    model: str | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    logprobs: bool | None = False
    top_logprobs: int = 0
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    n: int | None = 1
    presence_penalty: float | None = None
    response_format: ResponseFormat | None = None
    seed: Int64 | None = None
    stop: Stop = []
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    temperature: float | None = None
    top_p: float | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice = "none"
    reasoning_effort: ReasoningEffort | None = None
    thinking_token_budget: int | None = None
    include_reasoning: bool = True
    parallel_tool_calls: bool | None = True
    user: str | None = None
    use_beam_search: bool = False
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    watermarking: bool | None = None
    length_penalty: float = 1.0
    stop_token_ids: list[int] | None = []
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    min_tokens: int = 0
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool = True
    truncate_prompt_tokens: TruncatePromptTokens | None = None
    truncation_side: TruncationSide | None = None
    prompt_logprobs: int | None = None
    logprob_token_ids: list[int] | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] = []
    echo: bool = False
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    add_special_tokens: bool = False
    documents: list[dict[str, str]] | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, object] | None = None
    media_io_kwargs: dict[str, dict[str, object]] | None = None
    mm_processor_kwargs: dict[str, object] | None = None
    structured_outputs: StructuredOutputsRequest | None = None
    priority: Int64 = 0
    request_id: str = field(default_factory=new_request_id)
    session_id: str | None = None
    return_tokens_as_token_ids: bool | None = None
    return_token_ids: bool | None = None
    return_weight_versions: bool = False
    routed_experts_prompt_start: NonNegative = 0
    return_token_offsets: bool | None = False
    return_prompt_text: bool | None = None
    mm_payload: MultimodalPayload = "tensors"
    return_mm_kwargs: bool | None = None
    cache_salt: CacheSalt | None = None
    kv_transfer_params: dict[str, object] | None = None
    ec_transfer_params: dict[str, object] | None = None
    vllm_xargs: dict[str, ExtraArgument] | None = None
    repetition_detection: RepetitionDetection | None = None
    stream_interval: Positive | None = None


def read_chat_request(body: dict[str, object]) -> ChatCompletionRequest:
    """Read a decoded body, which is not to be used afterwards.

    Raises ApiError, or umbel_text.InvalidRequestError for values that no field allows.

    The checks come in the order of vLLM's validators, so a body with several faults is answered for
    the same one.
    """
    _check_iterable_messages(body)
    check_generation_prompt(body)
    check_tools(body)
    _check_structured_outputs(body)
    _check_logprobs(body)
    check_stream_options(body)
    check_response_format(body)
    _normalize_messages(body)
    check_cache_salt(body)
    apply_multimodal_alias(body)
    apply_thinking_token_budget(body)
    if body.get("top_logprobs") is None:
        body.pop("top_logprobs", None)
    return _READER.convert(body)


def _check_iterable_messages(body: dict[str, object]) -> None:
    messages = body.get("messages", [])
    if not isinstance(messages, (list, dict, str)):
        raise bad_request(f"'{type(messages).__name__}' object is not iterable")


def check_generation_prompt(body: dict[str, object]) -> None:
    """Refuse to both continue the last message and begin a new one."""
    if body.get("continue_final_message") and body.get("add_generation_prompt"):
        raise bad_request(
            "Cannot set both `continue_final_message` and `add_generation_prompt` to True."
        )


def _check_structured_outputs(body: dict[str, object]) -> None:
    count = count_constraints(body, None)
    if count and body.get("tool_choice", "none") not in ("none", "auto", "required"):
        raise bad_request(
            "You can only either use constraints for structured outputs or tools, not both."
        )


def _check_logprobs(body: dict[str, object]) -> None:
    if body.get("logprob_token_ids"):
        if body.get("use_beam_search"):
            raise validation_error(
                "`logprob_token_ids` is not supported with beam search.", "logprob_token_ids"
            )
        if not body.get("logprobs"):
            raise validation_error(
                "when using `logprob_token_ids`, `logprobs` must be set to true.",
                "logprob_token_ids",
            )
    prompt_logprobs = check_logprobs_number(body, "prompt_logprobs")
    top_logprobs = check_logprobs_number(body, "top_logprobs")
    check_prompt_logprobs(body, prompt_logprobs)
    if top_logprobs is None:
        return
    check_logprobs_range("top_logprobs", top_logprobs)
    if (top_logprobs > 0 or top_logprobs == -1) and not body.get("logprobs"):
        raise validation_error(
            "when using `top_logprobs`, `logprobs` must be set to true.", "top_logprobs"
        )


def _normalize_messages(body: dict[str, object]) -> None:
    """Bring messages to the form that templates expect: `reasoning`, not `reasoning_content`."""
    messages = body.get("messages")
    if not isinstance(messages, list):
        return
    for message in messages:
        if not isinstance(message, dict):
            continue
        tool_calls = message.get("tool_calls")
        if not isinstance(tool_calls, (list, dict, str, type(None))):
            raise bad_request(f"'{type(tool_calls).__name__}' object is not iterable")
        reasoning = message.pop("reasoning_content", None)
        if reasoning is not None and message.get("reasoning") is None:
            message["reasoning"] = reasoning


class MessageReader:
    """Checks what every message must have; vLLM reads messages as one of several types.

    A role is needed, content is text or an array of parts, and null where the role may do without.
    A name has no type where the API knows none.
    """

    # vLLM names the first of its message types in the place of a fault, whatever the role is.
    _TYPE_NAME = "ChatCompletionDeveloperMessageParam"

    def read(self, value: object, at: Location, faults: Faults) -> object:
        at = (*at, self._TYPE_NAME)
        if not isinstance(value, dict):
            faults.add("dict_type", at, "must be an object", value)
            return None
        if not _has_valid_content(value):
            message = "`content` must be a string or an array of content parts"
            faults.add("string_type", (*at, "content"), message, value.get("content"))
        elif "role" not in value:
            faults.add("missing", _place(value, at), "`role` is required", value)
        elif not isinstance(value["role"], str):
            message = "`role` must be a string"
            faults.add("string_type", _place(value, at), message, value["role"])
        elif not _is_nameless(value) and not isinstance(value.get("name", ""), str):
            message = "`name` must be a string"
            faults.add("string_type", _place(value, at), message, value["name"])
        elif not isinstance(value.get("tool_calls"), (list, type(None))):
            message = "`tool_calls` must be an array"
            faults.add("list_type", _place(value, at), message, value["tool_calls"])
        return value


def _is_nameless(message: Message) -> bool:
    """Tell whether a message has no field for a name: the answer of a tool to a call."""
    return message["role"] == "tool" and isinstance(message.get("tool_call_id"), str)


def _has_valid_content(message: Message) -> bool:
    if message.get("content", "") is None:
        role = message.get("role")
        return role == "assistant" or (role == "function" and isinstance(message.get("name"), str))
    return isinstance(message.get("content", ""), (str, list))


def _place(message: Message, at: Location) -> Location:
    """Give the first field of vLLM's first message type that such a message does not satisfy."""
    if "content" not in message:
        return (*at, "content")
    return (*at, "name" if message.get("role") == "developer" else "role")


class MessagesReader:
    """Reads the list of messages."""

    _message = MessageReader()

    def read(self, value: object, at: Location, faults: Faults) -> object:
        if not isinstance(value, list):
            faults.add("list_type", at, "must be an array", value)
            return None
        for index, message in enumerate(value):
            if faults.enough:
                break
            self._message.read(message, (*at, index), faults)
        return value


_READER = StructReader(ChatCompletionRequest, {"messages": MessagesReader(), **CHECKED_FIELDS})
