"""Chat completions."""

import asyncio
import time

from aiohttp import web

from umbel_chat import ChatRequest, LoweredChat
from umbel_server.collect import collect
from umbel_server.exchange import (
    Exchange,
    answer_context,
    aside,
    begin,
    is_constrained,
    lower_chat_aside,
    parsed_context,
    read_request,
    stream_interval,
)
from umbel_server.load_report import load_report
from umbel_server.requests.chat import ChatCompletionRequest, read_chat_request
from umbel_server.requests.reused_prompt import reused_prompt_token_ids
from umbel_server.requests.sampling import sampling_options
from umbel_server.requests.served import check_chat_served
from umbel_server.requests.tools import tool_choice_of, tools_of
from umbel_server.responses.chat import chat_completion
from umbel_server.responses.chat_frames import ChatFrames
from umbel_server.server import SERVER, Server
from umbel_server.writer import stream
from umbel_text import TextModel, decode_prompt_logprobs


async def create_chat_completion(http: web.Request) -> web.StreamResponse:
    """Answer a conversation n times."""
    arrival_time = time.time()
    with http.app[SERVER].counted():
        body = await read_request(http, read_chat_request)
        return await answer_chat(http, body, arrival_time)


async def answer_chat(
    http: web.Request, body: ChatCompletionRequest, arrival_time: float
) -> web.StreamResponse:
    """Answer a conversation that has been read; the time is in seconds of the wall clock."""
    server = http.app[SERVER]
    exchange, request = await aside(http, _begin_chat, http, server, body, arrival_time)
    with server.admitted(exchange.n):
        lowered = await lower_chat_aside(
            http, request, is_constrained(body), server.chat.lower, request, exchange.n
        )
        return await _answer(http, server, body, exchange, request, lowered)


async def read_chat(
    http: web.Request, server: Server
) -> tuple[ChatCompletionRequest, Exchange, ChatRequest]:
    """Read and check a chat request as far as that goes without its prompt."""
    arrival_time = time.time()
    body = await read_request(http, read_chat_request)
    return body, *await aside(http, _begin_chat, http, server, body, arrival_time)


def _begin_chat(
    http: web.Request, server: Server, body: ChatCompletionRequest, arrival_time: float
) -> tuple[Exchange, ChatRequest]:
    exchange = begin(http, server, body, "chatcmpl", arrival_time)
    parsers = server.chat.parsers
    check_chat_served(body, parsers is not None and parsers.tool is not None)
    return exchange, _chat_request(body, exchange, server.chat.text.model)


async def _answer(
    http: web.Request,
    server: Server,
    body: ChatCompletionRequest,
    exchange: Exchange,
    request: ChatRequest,
    lowered: LoweredChat,
) -> web.StreamResponse:
    role, echo = server.options.response_role, ""
    if body.echo or not body.add_generation_prompt:
        role, echo = await lower_chat_aside(
            http, request, False, _role_and_echo, server, body, request
        )
    rendered = lowered.text.request.prompt
    prompt_text = rendered if body.return_prompt_text and isinstance(rendered, str) else None
    context = answer_context(
        server, exchange, body, [lowered.text], _top_logprobs(body), prompt_text
    )
    context = parsed_context(context, server, body)
    samples = server.chat.chat_n(lowered, exchange.n)
    if body.stream:
        return await stream(http, samples, ChatFrames(context, role, echo, exchange.n))
    deltas = await collect(http, samples)
    number = lowered.text.sampling.prompt_logprobs
    if number is None:
        answer = chat_completion(context, role, echo, deltas)
    else:
        tokenizer = server.chat.text.model.tokenizer

        def render() -> bytes:
            prompt = decode_prompt_logprobs(tokenizer, deltas[0].prompt_logprobs, number)
            return chat_completion(context, role, echo, deltas, prompt)

        # Every token of the prompt gets a text, which takes long for a long prompt.
        answer = await asyncio.to_thread(render)
    headers = load_report(http, server.chat.text.llm)
    return web.Response(body=answer, headers=headers, content_type="application/json")


def _top_logprobs(body: ChatCompletionRequest) -> int | None:
    return body.top_logprobs if body.logprobs else None


def _prompt_logprobs(body: ChatCompletionRequest) -> int | None:
    """Give the log-probabilities that are wanted of the prompt; a stream has no place for them."""
    if body.stream:
        return None
    if body.prompt_logprobs is None and body.echo:
        return body.top_logprobs
    return body.prompt_logprobs


def _role_and_echo(
    server: Server, body: ChatCompletionRequest, request: ChatRequest
) -> tuple[str, str]:
    """Give the role of the answer, and the text of the last message if it is to be echoed."""
    role = server.options.response_role
    last = server.chat.read(request)[-1]
    if not body.add_generation_prompt:
        role = str(last["role"])
    if not body.echo or last["role"] != role:
        return role, ""
    content = last.get("content")
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content)
    return role, content if isinstance(content, str) else ""


def _chat_request(body: ChatCompletionRequest, exchange: Exchange, model: TextModel) -> ChatRequest:
    by_new_name = body.max_completion_tokens is not None
    max_tokens = body.max_completion_tokens if by_new_name else body.max_tokens
    return ChatRequest(
        request_id=exchange.id,
        messages=list(body.messages),
        sampling=sampling_options(body, max_tokens, _top_logprobs(body), _prompt_logprobs(body)),
        arrival_time=exchange.arrival_time,
        tools=tools_of(body.tools),
        tool_choice=tool_choice_of(body.tool_choice),
        parallel_tool_calls=body.parallel_tool_calls is not False,
        include_reasoning=body.include_reasoning,
        add_generation_prompt=body.add_generation_prompt,
        continue_final_message=body.continue_final_message,
        template_arguments=_template_arguments(body),
        documents=body.documents,
        chat_template=body.chat_template,
        prompt_token_ids=reused_prompt_token_ids(body, model),
        add_special_tokens=body.add_special_tokens,
        max_tokens_name="max_completion_tokens" if by_new_name else "max_tokens",
        truncate_prompt_tokens=body.truncate_prompt_tokens,
        truncation_side=body.truncation_side,
        return_token_offsets=bool(body.return_token_offsets),
        stream_interval=stream_interval(body),
        cache_salt=body.cache_salt,
        data_parallel_rank=exchange.data_parallel_rank,
        priority=exchange.priority,
        session_id=exchange.session_id,
        trace_headers=exchange.trace_headers,
    )


def _template_arguments(body: ChatCompletionRequest) -> dict[str, object]:
    """Give the template's arguments; how much to reason is one of them, under two names."""
    arguments = dict(body.chat_template_kwargs or {})
    if (effort := body.reasoning_effort) is not None:
        arguments.setdefault("enable_thinking", effort != "none")
        arguments["reasoning_effort"] = effort
    return arguments


def add_chat_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/v1/chat/completions", create_chat_completion)
