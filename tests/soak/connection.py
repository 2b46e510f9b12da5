"""Connections that cost little: plain bytes, one request after the other, answers checked elsewhere."""

import asyncio
import re
import socket
from typing import NamedTuple

END_OF_CHUNKS = b"\r\n0\r\n\r\n"
END_OF_HEAD = b"\r\n\r\n"
LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
CLOSE = re.compile(rb"\r\nconnection: *close", re.IGNORECASE)

SMALL_BUFFER = 4096
SMALL_SEGMENT = 536
"""Bytes; what the system keeps for a connection depends on the size of its segments."""


class Answer(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    is_last: bool
    """Whether the server closes the connection after it."""


class ClosedError(Exception):
    """The server closed the connection before the answer was whole."""


class Connection(asyncio.Protocol):
    """A connection, and what has been received of the answer that is under way."""

    def __init__(self):
        self.received = bytearray()
        self.is_closed = False
        self._waiter = None
        self._waits_for_all = False
        self._size = None

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        self.received += data
        if self._waiter is not None and (not self._waits_for_all or self._is_whole()):
            self._wake()

    def connection_lost(self, exc):
        self.is_closed = True
        self._wake()

    def _wake(self):
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _is_whole(self):
        if self._size is None:
            end = self.received.find(END_OF_HEAD)
            if end < 0:
                return False
            head = self.received[:end]
            length = LENGTH.search(head)
            if length is not None:
                self._size = end + len(END_OF_HEAD) + int(length[1])
            else:
                self._size = 0 if b"chunked" in head else end + len(END_OF_HEAD)
        if self._size:
            return len(self.received) >= self._size
        return self.received.endswith(END_OF_CHUNKS)

    def send(self, wire):
        self.received.clear()
        self._size = None
        self.transport.write(wire)

    async def _wait(self, for_all):
        self._waits_for_all = for_all
        self._waiter = asyncio.get_running_loop().create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    async def first_bytes(self):
        """Wait until something of the answer has come."""
        while not self.received:
            if self.is_closed:
                raise ClosedError("closed before the first byte")
            await self._wait(for_all=False)

    async def answer(self):
        """Wait for the whole answer."""
        while not self._is_whole():
            if self.is_closed:
                raise ClosedError(f"closed after {bytes(self.received[-500:])!r}")
            await self._wait(for_all=True)
        head, _, body = bytes(self.received).partition(END_OF_HEAD)
        status = int(head[9:12])
        return Answer(
            status, body if self._size else unchunked(body), CLOSE.search(head) is not None
        )

    async def closed(self):
        """Read on until the server closes the connection."""
        self.transport.resume_reading()
        while not self.is_closed:
            await self._wait(for_all=True)

    def close(self):
        """Leave, whatever is under way."""
        self.transport.abort()


def unchunked(body):
    """Put a body together from its chunks."""
    parts = []
    start = 0
    while True:
        end = body.index(b"\r\n", start)
        size = int(body[start:end], 16)
        if size == 0:
            return b"".join(parts)
        start = end + 2
        parts.append(body[start : start + size])
        if body[start + size : start + size + 2] != b"\r\n":
            raise ClosedError("a chunk is not as long as it says")
        start += size + 2


async def connect(port, reads=True):
    """Connect; who does not read has small buffers, and never reads before `closed`."""
    loop = asyncio.get_running_loop()
    sock = socket.socket()
    try:
        sock.setblocking(False)
        if not reads:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_BUFFER)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT)
        await loop.sock_connect(sock, ("127.0.0.1", port))
        _, connection = await loop.create_connection(Connection, sock=sock)
    except BaseException:
        sock.close()
        raise
    if not reads:
        connection.transport.pause_reading()
    return connection


async def get(port, path):
    """Get something over a connection of its own; gives the body."""
    connection = await connect(port)
    try:
        connection.send(f"GET {path} HTTP/1.1\r\nHost: soak\r\n\r\n".encode())
        answer = await connection.answer()
    finally:
        connection.close()
    if answer.status != 200:
        raise ClosedError(f"{path} was answered with {answer.status}")
    return answer.body
