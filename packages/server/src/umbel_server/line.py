"""The line between server processes: each can tell the others something, or ask them.

The supervisor's end is the exchange, which passes messages on as they are.
"""

import asyncio
import itertools
from collections.abc import Callable
from typing import Literal

import msgspec
import zmq

from umbel_engine import Addresses, SchedulerStats
from umbel_engine.reader import Reader

ALL = b""
"""The address of all processes but the sender."""

SUPERVISOR = b"supervisor"

ANSWERED_WITHIN = 2.0
"""Seconds that the others get to answer a question; who is late is left out."""


class Listening(msgspec.Struct, frozen=True, tag=True):
    """A process has bound its sockets for engines, and tells where."""

    addresses: Addresses


class Serving(msgspec.Struct, frozen=True, tag=True):
    """A process accepts connections."""


class Statistics(msgspec.Struct, frozen=True, tag=True):
    """What an engine's scheduler told one process, and no other."""

    engine_index: int
    stats: SchedulerStats


class Abort(msgspec.Struct, frozen=True, tag=True):
    """Responses that somebody wants aborted, wherever they are."""

    response_ids: list[str]


class Question(msgspec.Struct, frozen=True, tag=True):
    """Something that every process knows its part of."""

    number: int
    subject: Literal["metrics", "load"]


class Reply(msgspec.Struct, frozen=True, tag=True):
    """A process' part of the answer to a question, encoded."""

    number: int
    content: bytes


Message = Listening | Serving | Statistics | Abort | Question | Reply

_decoder = msgspec.msgpack.Decoder(Message)


class Exchange:
    """The supervisor's end: passes messages on, and takes those that are for the supervisor.

    `on_message` gets the index of the sender.
    """

    def __init__(self, address: str, on_message: Callable[[int, Message], None]) -> None:
        self._on_message = on_message
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.ROUTER)
        self._socket.linger = 0
        self._socket.rcvhwm = self._socket.sndhwm = 0
        self._socket.bind(address)
        self._members: set[bytes] = set()
        self._reader = Reader(self._socket, self._pass_on)

    def _pass_on(self, frames: list[bytes]) -> None:
        sender, to, payload = frames
        self._members.add(sender)
        if to == SUPERVISOR:
            self._on_message(int(sender), _decoder.decode(payload))
            return
        for member in [to] if to else self._members - {sender}:
            self._socket.send_multipart([member, sender, payload], zmq.NOBLOCK)
        self._reader.wake()

    def close(self) -> None:
        """Close the line."""
        self._reader.close()
        self._context.destroy(linger=0)


class Line:
    """A server process' end.

    `answer` gives this process' part of the answer to a question; `on_message` takes what the
    others tell.
    """

    def __init__(
        self,
        address: str,
        index: int,
        count: int,
        on_message: Callable[[Statistics | Abort], None],
        answer: Callable[[str], bytes],
    ) -> None:
        self._others = count - 1
        self._on_message = on_message
        self._answer = answer
        self._numbers = itertools.count()
        self._asked: dict[int, asyncio.Queue[bytes]] = {}
        self._context = zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.linger = 0
        self._socket.rcvhwm = self._socket.sndhwm = 0
        self._socket.identity = str(index).encode()
        self._socket.connect(address)
        self._reader = Reader(self._socket, self._receive)

    def tell(self, message: Message, to: bytes = ALL) -> None:
        """Send a message."""
        self._socket.send_multipart([to, msgspec.msgpack.encode(message)], zmq.NOBLOCK)
        self._reader.wake()

    async def ask(self, subject: Literal["metrics", "load"]) -> list[bytes]:
        """Ask the others; gives the answers of all that answer in time."""
        number = next(self._numbers)
        answers = self._asked[number] = asyncio.Queue()
        self.tell(Question(number, subject))
        found: list[bytes] = []
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                while len(found) < self._others:
                    found.append(await answers.get())
        except TimeoutError:
            pass
        finally:
            del self._asked[number]
        return found

    def _receive(self, frames: list[bytes]) -> None:
        sender, payload = frames
        message = _decoder.decode(payload)
        match message:
            case Question(number, subject):
                self.tell(Reply(number, self._answer(subject)), sender)
            case Reply(number, content):
                if (answers := self._asked.get(number)) is not None:
                    answers.put_nowait(content)
            case Statistics() | Abort():
                self._on_message(message)

    def close(self) -> None:
        """Close the line."""
        self._reader.close()
        self._context.destroy(linger=100)
