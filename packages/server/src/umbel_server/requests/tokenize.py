"""The bodies of `POST /tokenize`, which has two forms, and of `POST /detokenize`."""

from typing import Annotated

from msgspec import Meta, Struct

from umbel_server.requests.chat import Message, MessagesReader, check_generation_prompt
from umbel_server.requests.faults import Faults
from umbel_server.requests.fields import INT64_MAX, StructReader
from umbel_server.requests.tools import Tool

TokenId = Annotated[int, Meta(ge=0, le=INT64_MAX)]


class TokenizeCompletionRequest(Struct, frozen=True, kw_only=True):
    """A request for the tokens of a text.

    Fields, order, types and defaults are those of vllm/entrypoints/serve/tokenize/protocol.py, as
    in the other requests of this module.
    """

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    return_token_strs: bool | None = False


class TokenizeChatRequest(Struct, frozen=True, kw_only=True):
    """A request for the tokens of the prompt that a conversation becomes."""

    model: str | None = None
    messages: list[Message]
    add_generation_prompt: bool = True
    return_token_strs: bool | None = False
    continue_final_message: bool = False
    add_special_tokens: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, object] | None = None
    media_io_kwargs: dict[str, dict[str, object]] | None = None
    mm_processor_kwargs: dict[str, object] | None = None
    tools: list[Tool] | None = None


class DetokenizeRequest(Struct, frozen=True, kw_only=True):
    """A request for the text of tokens."""

    model: str | None = None
    tokens: list[TokenId]


TokenizeRequest = TokenizeCompletionRequest | TokenizeChatRequest

CHAT_ONLY = frozenset(TokenizeChatRequest.__struct_fields__) - {
    "messages",
    *TokenizeCompletionRequest.__struct_fields__,
}
"""Fields that a body of the chat form alone has, besides the messages."""


def read_tokenize_request(body: dict[str, object]) -> TokenizeRequest:
    """Read a decoded body as the form that it has; raises ApiError.

    Of a body that has both forms the one with more of its fields counts, as pydantic chooses among
    the types of a union; of one that has neither, the faults of both are listed.
    """
    check_generation_prompt(body)
    faults, chat_faults = Faults(), Faults()
    completion = _COMPLETION_READER.read(body, ("body",), faults)
    chat = _CHAT_READER.read(body, ("body",), chat_faults)
    if chat is not None and (completion is None or _is_rather_chat(chat, body)):
        return chat
    if completion is not None:
        return completion
    faults.extend(chat_faults)
    raise faults.error()


def _is_rather_chat(chat: TokenizeChatRequest, body: dict[str, object]) -> bool:
    # The fields of messages are counted as well.
    return bool(chat.messages) or not CHAT_ONLY.isdisjoint(body)


def read_detokenize_request(body: dict[str, object]) -> DetokenizeRequest:
    """Read a decoded body; raises ApiError."""
    return _DETOKENIZE_READER.convert(body)


_COMPLETION_READER = StructReader(TokenizeCompletionRequest)
_CHAT_READER = StructReader(TokenizeChatRequest, {"messages": MessagesReader()})
_DETOKENIZE_READER = StructReader(DetokenizeRequest)
