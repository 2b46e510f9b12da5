"""Serve text over Starlette: umbel's layers inside a server that is not umbel's own.

One route streams n continuations of a prompt, a line of JSON for each piece of text:

    curl -N http://127.0.0.1:8001/generate -d '{"prompt": "an umbel has", "n": 3, "max_tokens": 8}'

A client that hangs up stops its samples.  Without --model and --handshake-address, a mock engine
answers in words that it picks at random.
"""

import argparse
import json
import secrets
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import tokenizers
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from tokenizers import models, pre_tokenizers

from umbel_engine import EngineClient, EngineOptions, Samples
from umbel_engine.mock import MockEngine, sampled
from umbel_llm import Llm
from umbel_text import (
    InvalidRequestError,
    SamplingOptions,
    TextDelta,
    TextLlm,
    TextRequest,
    load_text_model,
    resolve_model_folder,
)

WORDS = ["an", "umbel", "has", "many", "rays", "and", "small", "white", "flowers", "?"]

MAX_N = 64


class Body(msgspec.Struct, frozen=True):
    """What a client asks for."""

    prompt: str
    n: int = 1
    max_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    stop: list[str] = []


class SamplesResponse(StreamingResponse):
    """Streams samples; however the response ends, what still runs of them is aborted."""

    def __init__(self, samples: Samples[TextDelta]) -> None:
        super().__init__(lines(samples), media_type="application/x-ndjson")
        self._samples = samples

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response; returns early when the client has gone."""
        async with self._samples:
            await super().__call__(scope, receive, send)


async def lines(samples: Samples[TextDelta]) -> AsyncIterator[str]:
    """Give a line for each piece of text; a sample that failed says so, its siblings go on."""
    async for index, delta in samples:
        line: dict[str, object] = {"index": index, "text": delta.text}
        if delta.finish is not None:
            line["finish_reason"] = delta.finish.reason
            if delta.finish.error is not None:
                line["error"] = str(delta.finish.error)
        yield json.dumps(line) + "\n"


async def generate(http: Request) -> Response:
    """Continue a prompt n times."""
    text: TextLlm = http.app.state.text
    try:
        body = msgspec.json.decode(await http.body(), type=Body)
        if not 1 <= body.n <= MAX_N:
            raise InvalidRequestError(f"n must be between 1 and {MAX_N}.", "n")
        lowered = text.lower(text_request(body), body.n)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidRequestError) as error:
        return JSONResponse({"error": str(error)}, 400)
    return SamplesResponse(text.generate_n(lowered, body.n))


def text_request(body: Body) -> TextRequest:
    """Put a body in the text layer's terms."""
    sampling = SamplingOptions(
        max_tokens=body.max_tokens, temperature=body.temperature, seed=body.seed, stop=body.stop
    )
    return TextRequest(
        request_id=secrets.token_hex(8),
        prompt=body.prompt,
        sampling=sampling,
    )


def make_app(options: argparse.Namespace) -> Starlette:
    """Make the application; the engine is connected while it runs."""

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            if options.model is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                write_tokenizer(folder)
            else:
                folder = resolve_model_folder(options.model)
            address = options.handshake_address or EngineOptions().handshake_address
            client = await stack.enter_async_context(EngineClient(EngineOptions(address)))
            if options.handshake_address is None:
                words = sampled(vocabulary=range(len(WORDS)))
                engine = MockEngine(words, step_seconds=0.05)
                await stack.enter_async_context(engine.serve(client))
            else:
                print(f"waiting for an engine at {client.handshake_address}", file=sys.stderr)
                await client.wait_ready()
            app.state.text = TextLlm(load_text_model(folder, client.max_model_len), Llm(client))
            yield

    return Starlette(routes=[Route("/generate", generate, methods=["POST"])], lifespan=lifespan)


def write_tokenizer(folder: Path) -> None:
    """Write a tokenizer of a few words; every other word is the last one."""
    vocabulary = {word: token_id for token_id, word in enumerate(WORDS)}
    backend = tokenizers.Tokenizer(models.WordLevel(vocabulary, unk_token=WORDS[-1]))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.save(str(folder / "tokenizer.json"))


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", help="a folder or hub repository, for its tokenizer")
    parser.add_argument(
        "--handshake-address", metavar="ADDRESS", help="where a real engine says HELLO"
    )
    parser.add_argument("--host", default="127.0.0.1", help="(%(default)s)")
    parser.add_argument("--port", type=int, default=8001, help="(%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    options = parse_arguments()
    uvicorn.run(make_app(options), host=options.host, port=options.port)
