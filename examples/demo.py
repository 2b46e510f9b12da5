"""Serve a real model, ask it one question four times over, and watch the answers grow.

Run it with `make demo`.  It starts engine and server, and stops both at the end.
"""

import asyncio
import json
import re
import shutil
import signal
import sys
import textwrap
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp

QUESTION = (
    "I am writing a small book about the weather for children who like to ask questions. It has a "
    "chapter about the colours of the sky, with pictures of the morning, of noon and of the evening. "
    "Please explain in two or three short sentences, as you would to a child of ten: why is the sky "
    "blue in the middle of the day, and why does it turn red in the evening?"
)
SAMPLES = 4
ROWS = 18
# Rounding depends on what is computed together, so for the same answers twice the engine must make
# the same batches twice: no prefix cache, and one whole prompt per step, as two do not fit.
ENGINE_ARGUMENTS = (
    "--no-enable-prefix-caching",
    "--no-enable-chunked-prefill",
    "--max-num-batched-tokens=192",
)
REQUEST = {
    "messages": [{"role": "user", "content": QUESTION}],
    "n": SAMPLES,
    "seed": 7,
    "temperature": 0.8,
    "max_tokens": 60,
}


@asynccontextmanager
async def server() -> AsyncIterator[str]:
    """Run `umbel serve` with the sample model; gives its address."""
    command = Path(sys.executable).with_name("umbel")
    arguments = ("serve", "--port", "0", "--max-model-len", "192", "--dtype", "float32")
    process = await asyncio.create_subprocess_exec(
        command, *arguments, "--", *ENGINE_ARGUMENTS, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    log: list[str] = []
    try:
        async for raw in process.stderr:
            line = raw.decode(errors="replace").rstrip()
            log.append(line)
            if line.startswith(("umbel:", "engine:", "preparing", "the sample model")):
                print(f"  {line}", flush=True)
            if match := re.search(r"is served at (http://\S+)", line):
                # Reading on keeps the server from blocking on a full pipe.
                drain = asyncio.create_task(process.stderr.read())
                yield match[1]
                process.send_signal(signal.SIGTERM)
                await drain
                return
        raise SystemExit("the server did not start:\n" + "\n".join(log[-40:]))
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
        await process.wait()


class Columns:
    """Texts that grow side by side in a terminal; in a file, only the last state is printed."""

    def __init__(self, count: int) -> None:
        self.texts = [""] * count
        self._width = max(shutil.get_terminal_size((100, 24)).columns // count - 2, 16)
        self._drawn = 0

    def draw(self, last: bool = False) -> None:
        """Draw the texts over what was drawn before."""
        if not (last or sys.stdout.isatty()):
            return
        columns = [textwrap.wrap(text, self._width)[-ROWS:] for text in self.texts]
        height = max(self._drawn, *(len(column) for column in columns))
        up = f"\x1b[{self._drawn}A" if self._drawn else ""
        lines = []
        for row in range(height):
            cells = [column[row] if row < len(column) else "" for column in columns]
            lines.append("  ".join(cell.ljust(self._width) for cell in cells).rstrip() + "\x1b[K")
        text = up + "\n".join(lines)
        print(text if sys.stdout.isatty() else text.replace("\x1b[K", ""), flush=True)
        self._drawn = height


async def ask_streaming(client: aiohttp.ClientSession, base: str) -> tuple[list[str], object]:
    """Ask for a stream and show the answers as they come; gives them and the usage."""
    columns = Columns(SAMPLES)
    usage: object = None
    body = {**REQUEST, "stream": True, "stream_options": {"include_usage": True}}
    async with client.post(f"{base}/v1/chat/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.content:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line.removeprefix(b"data: "))
            for choice in event["choices"]:
                columns.texts[choice["index"]] += choice["delta"].get("content", "")
            usage = event.get("usage", usage)
            columns.draw()
    columns.draw(last=True)
    return columns.texts, usage


async def ask(client: aiohttp.ClientSession, base: str) -> list[str]:
    """Ask for the whole answers."""
    async with client.post(f"{base}/v1/chat/completions", json=REQUEST) as response:
        response.raise_for_status()
        choices = (await response.json())["choices"]
    return [choice["message"]["content"] for choice in choices]


async def main() -> None:
    """Run the demonstration."""
    print("Starting the engine and the server ...", flush=True)
    async with server() as base, aiohttp.ClientSession() as client:
        print(
            f"\n{textwrap.fill(QUESTION, 100)}\n\nn = {SAMPLES}, seed = {REQUEST['seed']}:\n",
            flush=True,
        )
        answers, usage = await ask_streaming(client, base)
        print(f"\nusage: {json.dumps(usage)}")
        async with client.get(f"{base}/metrics") as response:
            for line in (await response.text()).splitlines():
                if re.match(r"vllm:request_params_n_(sum|count)|vllm:request_success_total", line):
                    print(line)
        again = await ask(client, base)
        same = again == answers
        print(
            f"\nAsked again with the same seed: {'the same' if same else 'NOT the same'} answers."
        )
    print("Server and engine have stopped.")
    if not same:
        raise SystemExit(1)


if __name__ == "__main__":
    asyncio.run(main())
