"""From text to tokens and back; no engine is asked."""

import msgspec
from aiohttp import web

from umbel_chat import ChatRequest
from umbel_server.exchange import aside, lower_chat_aside, read_request
from umbel_server.requests.served import check_media_arguments
from umbel_server.requests.tokenize import (
    TokenizeChatRequest,
    TokenizeRequest,
    read_detokenize_request,
    read_tokenize_request,
)
from umbel_server.requests.tools import tools_of
from umbel_server.responses.tokenize import DetokenizeResponse, TokenizeResponse, tokenizer_info
from umbel_server.server import SERVER, Server
from umbel_text import SamplingOptions
from umbel_text.truncation import check_text


async def tokenize(http: web.Request) -> web.Response:
    """Give the tokens of a text or of a conversation, also of more than the model reads."""
    server = http.app[SERVER]
    body = await read_request(http, read_tokenize_request)
    server.check_model(body.model)
    if not isinstance(body, TokenizeChatRequest):
        return _json(await aside(http, _tokenize, server, body, body.prompt))
    check_media_arguments(body)
    request = _chat_request(body)

    def work() -> bytes:
        return _tokenize(server, body, server.chat.render(request))

    return _json(await lower_chat_aside(http, request, False, work))


async def detokenize(http: web.Request) -> web.Response:
    """Give the text of tokens, special ones included."""
    server = http.app[SERVER]
    body = await read_request(http, read_detokenize_request)
    server.check_model(body.model)
    decode = server.chat.text.model.tokenizer.decode
    text = await aside(http, decode, body.tokens, skip_special_tokens=False)
    return _json(msgspec.json.encode(DetokenizeResponse(text)))


async def describe_tokenizer(http: web.Request) -> web.Response:
    """Give the tokenizer's configuration."""
    chat = http.app[SERVER].chat
    return _json(tokenizer_info(chat.text.model.tokenizer, chat.model.template.source))


def _tokenize(server: Server, body: TokenizeRequest, text: str) -> bytes:
    model = server.chat.text.model
    check_text(text, model)
    token_ids = model.tokenizer.encode(text, body.add_special_tokens)
    pieces = model.tokenizer.pieces(token_ids) if body.return_token_strs else None
    return msgspec.json.encode(
        TokenizeResponse(len(token_ids), model.max_model_len, token_ids, pieces)
    )


def _chat_request(body: TokenizeChatRequest) -> ChatRequest:
    return ChatRequest(
        request_id="tokenize",
        messages=list(body.messages),
        sampling=SamplingOptions(),
        add_generation_prompt=body.add_generation_prompt,
        tools=tools_of(body.tools),
        continue_final_message=body.continue_final_message,
        template_arguments=body.chat_template_kwargs or {},
        chat_template=body.chat_template,
    )


def _json(body: bytes) -> web.Response:
    return web.Response(body=body, content_type="application/json")


def add_tokenize_routes(app: web.Application) -> None:
    """Add the routes of this module; that of the tokenizer's description only when it is wanted."""
    app.router.add_post("/tokenize", tokenize)
    app.router.add_post("/detokenize", detokenize)
    if app[SERVER].options.enable_tokenizer_info_endpoint:
        app.router.add_get("/tokenizer_info", describe_tokenizer, allow_head=False)
