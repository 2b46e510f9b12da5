"""The load generator: requests over plain sockets, whose answers are timed and counted, not parsed."""

import asyncio
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

END_OF_CHUNKS = b"\r\n0\r\n\r\n"
KEPT = 4096
"""Bytes of an answer that are kept: its end, where the usage stands."""

FIRST_TOKEN = re.compile(rb'"(?:content|text|arguments)": ?"[^"]')
USAGE = re.compile(rb'"completion_tokens": ?(\d+)')
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


class Answer(NamedTuple):
    """When the parts of an answer came; times are in seconds.

    `gaps` are those between arrivals after the first token, `tokens` what the usage counts.
    """

    first: float
    total: float
    gaps: list[float]
    tokens: int


class Connection(asyncio.Protocol):
    """A connection that is asked one thing after the other."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.gaps: list[float] = []
        self._answer: asyncio.Future[Answer] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[Answer]":
        """Send a request; gives its answer when that is complete."""
        self._answer = asyncio.get_running_loop().create_future()
        self._began = time.perf_counter()
        self._first = self._last = 0.0
        self.gaps = []
        self._end = b""
        self._left: int | None = None
        self._has_head = False
        self.transport.write(request)
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Count what came."""
        now = time.perf_counter()
        self._end = end = (self._end + data)[-KEPT:] if len(data) < KEPT else data
        if not self._has_head:
            self._read_head(data)
        if self._first:
            self.gaps.append(now - self._last)
        elif FIRST_TOKEN.search(data) is not None:
            self._first = now
        self._last = now
        if self._left is not None:
            self._left -= len(data)
        if self._left == 0 or (self._left is None and end.endswith(END_OF_CHUNKS)):
            self._finish(now)

    def _read_head(self, data: bytes) -> None:
        self._has_head = True
        if not data.startswith(b"HTTP/1.1 200"):
            self._fail(RuntimeError(f"refused: {data[:2000].decode(errors='replace')}"))
        head, separator, _ = data.partition(b"\r\n\r\n")
        if (length := LENGTH.search(head)) is not None:
            self._left = len(head) + len(separator) + int(length[1])

    def _finish(self, now: float) -> None:
        usage = USAGE.findall(self._end)
        if self._answer is None or self._answer.done():
            return
        if not usage:
            self._fail(RuntimeError(f"no usage in {self._end.decode(errors='replace')}"))
            return
        first = (self._first or now) - self._began
        self._answer.set_result(Answer(first, now - self._began, self.gaps, int(usage[-1])))

    def connection_lost(self, error: Exception | None) -> None:
        """Fail what was asked."""
        self._fail(error or ConnectionError("the frontend closed the connection"))

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)


def request_of(body: bytes, path: str = "/v1/chat/completions") -> bytes:
    """Give the bytes of a request."""
    head = f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


async def send(port: int, bodies: Sequence[bytes], at_once: int) -> list[Answer]:
    """Send requests over so many connections; gives their answers in the order of their ends."""
    requests = iter([request_of(body) for body in bodies])
    answers: list[Answer] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_once, len(bodies))):
            group.create_task(_ask_in_turn(port, requests, answers))
    return answers


async def connect(port: int) -> Connection:
    """Open a connection to a server on this machine."""
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


async def _ask_in_turn(port: int, requests: Iterator[bytes], answers: list[Answer]) -> None:
    connection = await connect(port)
    try:
        answers += [await connection.ask(request) for request in requests]
    finally:
        connection.transport.close()
