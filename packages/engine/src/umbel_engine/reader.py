"""Reading a ZMQ socket on the event loop's file-descriptor readiness.

ZMQ's descriptor is edge-triggered: it tells that something changed, once, and any operation on the
socket may use that edge up.  So a reader drains until nothing is left, comes back by itself when it
stops early, and is woken after whatever else touched the socket.
"""

import asyncio
import time
from collections.abc import Callable

import zmq

# As plain numbers: zmq's own are enumerations, which take microseconds to combine.
EVENTS = int(zmq.EVENTS)
POLLIN = int(zmq.POLLIN)
RCVMORE = int(zmq.RCVMORE)
NOBLOCK = int(zmq.NOBLOCK)

MESSAGES_PER_DRAIN = 64
SECONDS_PER_DRAIN = 0.002


class Reader:
    """Drains one socket and calls back for every message.

    `on_message` takes the frames of a message.  `on_drained` is called once after each drain that
    read something.  Neither may raise.  The socket belongs to the caller, who closes the reader
    first.
    """

    def __init__(
        self,
        socket: zmq.Socket[bytes],
        on_message: Callable[[list[bytes]], None],
        on_drained: Callable[[], None] | None = None,
    ) -> None:
        self._socket = socket
        self._on_message = on_message
        self._on_drained = on_drained
        self._loop = asyncio.get_running_loop()
        self._descriptor = int(socket.fd)
        self._scheduled = False
        self._closed = False
        self._loop.add_reader(self._descriptor, self.drain)
        # An edge from before add_reader would never be reported.
        self.wake()

    def wake(self) -> None:
        """Drain in the loop's next turn if there is something; for after any other use of the socket."""
        if self._scheduled or self._closed:
            return
        # Asking costs less than to find out by a drain, and arms the descriptor again.
        if int(self._socket.get(EVENTS)) & POLLIN:
            self._scheduled = True
            self._loop.call_soon(self._drain_scheduled)

    def close(self) -> None:
        """Stop reading; may be called twice, and from within a callback."""
        if not self._closed:
            self._closed = True
            self._loop.remove_reader(self._descriptor)

    def _drain_scheduled(self) -> None:
        self._scheduled = False
        self.drain()

    def drain(self) -> None:
        """Read what is there, up to the limits of a turn."""
        deadline = time.monotonic() + SECONDS_PER_DRAIN
        count = 0
        while not self._closed:
            if count == MESSAGES_PER_DRAIN or (count and time.monotonic() > deadline):
                # Others get their turn first; the poller would not tell of what is left.
                self.wake()
                break
            try:
                frames = self._receive()
            except zmq.Again:
                break
            count += 1
            self._on_message(frames)
        if count and self._on_drained is not None:
            self._on_drained()

    def _receive(self) -> list[bytes]:
        socket = self._socket
        frames = [socket.recv(NOBLOCK)]
        while socket.get(RCVMORE):
            frames.append(socket.recv(NOBLOCK))
        return frames
