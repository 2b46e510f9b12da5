"""Amazon SageMaker's one route for requests of every kind."""

import time

from aiohttp import web

from umbel_server.errors import UNREADABLE, ApiError, bad_request
from umbel_server.exchange import read_request
from umbel_server.requests.chat import ChatCompletionRequest, read_chat_request
from umbel_server.requests.completion import CompletionRequest, read_completion_request
from umbel_server.routes.chat import answer_chat
from umbel_server.routes.completions import answer_completion
from umbel_server.server import SERVER, Server

ADAPTER_HEADER = "X-Amzn-SageMaker-Adapter-Identifier"

NO_KIND = (
    "Cannot find suitable handler for request. "
    "Expected one of: ['ChatCompletionRequest', 'CompletionRequest']"
)


async def invoke(http: web.Request) -> web.StreamResponse:
    """Answer a body as the kind of request that it is.

    As in vLLM (vllm/entrypoints/serve/sagemaker), the first kind that it is valid for counts, and
    the model is the one that SageMaker names in a header, or the one that is served; what the body
    says of it does not matter.
    """
    server = http.app[SERVER]
    arrival_time = time.time()
    with server.counted():
        body = await read_request(http, _read, server, http.headers.get(ADAPTER_HEADER))
        if isinstance(body, ChatCompletionRequest):
            return await answer_chat(http, body, arrival_time)
        return await answer_completion(http, body, arrival_time)


def _read(
    data: dict[str, object], server: Server, model: str | None
) -> ChatCompletionRequest | CompletionRequest:
    data["model"] = model
    try:
        return read_chat_request(dict(data))
    except ApiError as error:
        _check_unreadable(error)
    try:
        return read_completion_request(data, server.options.max_completion_prompts)
    except ApiError as error:
        _check_unreadable(error)
        raise bad_request(NO_KIND) from None


def _check_unreadable(error: ApiError) -> None:
    """Raise an error that tells of more than fields of the wrong kind: it ends the search."""
    if error.type != UNREADABLE:
        raise error


def add_invocation_routes(app: web.Application) -> None:
    """Add the routes of this module."""
    app.router.add_post("/invocations", invoke)
