"""`python -m bench.calls`: what the server does for a request and a token, counted, not timed.

A request goes through the whole server by way of a connection without a socket, and its engine's
messages are handed in one after the other, so that every run does exactly the same.  Counted are
the calls of functions, in Python and in C.  The figures that are recorded in `calls.json` may not
grow by more than 5%; `--record` writes them anew.
"""

import argparse
import asyncio
import json
import platform
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import msgspec
from aiohttp import web
from prometheus_client import CollectorRegistry

from bench.loads import TOOLS
from umbel_chat import ChatLlm, ChatModel, ChatTemplate, load_chat_template
from umbel_chat.parsers.hermes import HERMES
from umbel_engine import EngineClient, EngineCoreOutput, EngineCoreOutputs, EngineOptions
from umbel_engine.mock import MockEngine, made_up_logprobs
from umbel_engine.sample_model import prepare_sample_model
from umbel_engine.tensors import inline_array
from umbel_engine.wire import LogprobsArrays, PrefillStats, SchedulerStats
from umbel_llm import Llm, LlmMetrics
from umbel_server import ServerOptions, create_app
from umbel_text import TextLlm, Tokenizer, load_text_model

RECORD = Path(__file__).with_name("calls.json")
ALLOWED = 1.05
MAX_MODEL_LEN = 8192
STEPS = 200
FIRST_TOKEN = 1000
COUNTED = re.compile(r"/umbel_(?!engine/mock)[a-z]+/")
"""The files whose calls count; those of the mock engine, which is in the same process, do not."""

TURNS = 30
"""Turns of the event loop after which everything that was under way is done."""


class Case(NamedTuple):
    """A kind of request; `opening` is what every sample begins with."""

    name: str
    n: int
    fields: dict[str, object]
    opening: str = ""


CALL = '<tool_call>\n{"name": "get_weather", "arguments": {"place": "'
"""How a sample begins whose other tokens are arguments of a call."""

CASES = (
    Case("chat, n = 1", 1, {}),
    Case("chat, n = 8", 8, {"n": 8}),
    Case("chat, n = 1, logprobs = 5", 1, {"logprobs": True, "top_logprobs": 5}),
    Case("chat, n = 8, not streamed", 8, {"n": 8, "stream": False}),
    Case("chat, n = 8, text beside tools", 8, {"n": 8, "tools": TOOLS}),
    Case("chat, n = 8, a call", 8, {"n": 8, "tools": TOOLS}, CALL),
)


class Figures(NamedTuple):
    """How many calls a request takes from its arrival to the engine, and then each token."""

    per_request: float
    per_token: float


class Wire(asyncio.Transport):
    """A connection without a socket, whose client reads everything at once."""

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1)})
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Take what the server sends."""
        self.written += data

    def is_closing(self) -> bool:
        """Stay open."""
        return False

    def get_write_buffer_size(self) -> int:
        """Have nothing to send."""
        return 0

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """Give some limits."""
        return 16384, 65536

    def close(self) -> None:
        """Stay open."""

    def pause_reading(self) -> None:
        """Go on reading."""

    def resume_reading(self) -> None:
        """Go on reading."""


class Counter:
    """Counts the calls that the code of the server makes while it is on.

    Those within libraries do not count, so that a new release of one changes nothing, and the event
    loop turns more often here than anywhere else.
    """

    def __init__(self) -> None:
        self.calls = 0
        self._counted: dict[CodeType, bool] = {}

    def __enter__(self) -> "Counter":
        sys.setprofile(self._on_event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if code not in self._counted:
            self._counted[code] = COUNTED.search(code.co_filename) is not None
        if self._counted[code] and event in ("call", "c_call"):
            self.calls += 1


class Bench:
    """The server, its engine client and a connection to it."""

    def __init__(
        self,
        client: EngineClient,
        engine: MockEngine,
        wire: Wire,
        protocol: asyncio.Protocol,
        tokenizer: Tokenizer,
    ) -> None:
        self._client = client
        self._engine = engine
        self._wire = wire
        self._protocol = protocol
        self._tokenizer = tokenizer

    async def measure(self, case: Case) -> Figures:
        """Run a request through and count."""
        before = len(self._engine.adds)
        with Counter() as asked:
            self._protocol.data_received(request_of(case))
            await turns()
        await self._engine.wait_adds(before + case.n)
        ids = [add.request_id for add in self._engine.adds[before:]]
        messages = [self._message(ids, step, case) for step in range(STEPS + 1)]
        # The first brings what comes once, such as headers.
        await self._feed(messages[0])
        with Counter() as told:
            for frames in messages[1:]:
                await self._feed(frames)
        assert b'"usage"' in self._wire.written, bytes(self._wire.written[-500:])
        self._wire.written.clear()
        return Figures(asked.calls, round(told.calls / (STEPS * case.n), 2))

    async def _feed(self, frames: list[bytes]) -> None:
        self._client._on_output(frames)
        self._client._on_drained()
        await turns()

    def _message(self, ids: list[str], step: int, case: Case) -> list[bytes]:
        opening = [] if step else self._tokenizer.encode(case.opening, False)
        outputs = [
            EngineCoreOutput(
                request_id,
                [*opening, FIRST_TOKEN + step],
                new_logprobs=logprobs_of(FIRST_TOKEN + step) if "logprobs" in case.fields else None,
                finish_reason=1 if step == STEPS else None,
                prefill_stats=None if step else PrefillStats(20, 20),
            )
            for request_id in ids
        ]
        message = EngineCoreOutputs(
            0, outputs, SchedulerStats(num_running_reqs=len(ids)), float(step)
        )
        return [msgspec.msgpack.encode(message)]


def logprobs_of(token_id: int) -> LogprobsArrays:
    """Make up what the engine says of a token's probability."""
    made = made_up_logprobs((token_id,), 5)
    return LogprobsArrays(
        inline_array(made.token_ids), inline_array(made.logprobs), inline_array(made.ranks)
    )


def request_of(case: Case) -> bytes:
    """Write a request."""
    body = {
        "messages": [{"role": "user", "content": "What is the capital of France?"}],
        "max_tokens": 1000,
        "ignore_eos": True,
        "stream": True,
        **({"stream_options": {"include_usage": True}} if case.fields.get("stream", True) else {}),
        **case.fields,
    }
    content = json.dumps(body).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(content) + content


async def turns() -> None:
    """Let the event loop do what there is to do."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


@asynccontextmanager
async def bench() -> AsyncIterator[Bench]:
    """Bring a server up whose engine only listens."""
    folder = prepare_sample_model()
    engine = MockEngine(paused=True)
    async with EngineClient(EngineOptions()) as client, engine.serve(client):
        text_model = load_text_model(folder, MAX_MODEL_LEN)
        metrics = LlmMetrics.of(client, "bench")
        registry = CollectorRegistry()
        registry.register(metrics)
        template = ChatTemplate(load_chat_template(folder), text_model.tokenizer.special_tokens)
        model = ChatModel("bench", template, tool_format=HERMES)
        chat = ChatLlm(model, TextLlm(text_model, Llm(client, metrics)))
        app = create_app(
            chat, ServerOptions(served_model_names=("bench",), model_root="bench"), registry
        )
        runner = web.AppRunner(app, access_log=None, handler_cancellation=True)
        await runner.setup()
        try:
            assert runner.server is not None
            protocol, wire = runner.server(), Wire()
            protocol.connection_made(wire)
            yield Bench(client, engine, wire, protocol, text_model.tokenizer)
        finally:
            await runner.cleanup()


async def count() -> dict[str, Figures]:
    """Count every case; each is run twice, so that nothing is done for the first time."""
    async with bench() as server:
        figures = {}
        for case in CASES:
            await server.measure(case)
            figures[case.name] = await server.measure(case)
        return figures


def main() -> int:
    """Count, and compare with what is recorded; gives the exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.calls", description=__doc__)
    parser.add_argument("--record", action="store_true", help="write the figures down")
    options = parser.parse_args()
    figures = asyncio.run(count())
    if options.record:
        kept = {name: item._asdict() for name, item in figures.items()}
        RECORD.write_text(json.dumps(kept, indent=2) + "\n")
    recorded = json.loads(RECORD.read_text())
    too_many = 0
    for name, item in figures.items():
        for figure, value in item._asdict().items():
            limit = recorded[name][figure] * ALLOWED
            too_many += value > limit
            verdict = f"more than {limit:.1f}" if value > limit else "as recorded or less"
            print(f"{name}: {value:g} calls {figure.replace('_', ' ')}, {verdict}")
    if too_many:
        version = platform.python_version()
        print(f"\n{too_many} figures have grown (Python {version}); see bench/calls.py.")
    return 1 if too_many else 0


if __name__ == "__main__":
    sys.exit(main())
