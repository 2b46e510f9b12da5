"""How engines find their frontend: HELLO, INIT, registration, READY.

The frontend binds three sockets; every engine says HELLO on the handshake socket, is told the
addresses of the other two, loads its model, registers on the input socket and says READY
(vllm/v1/engine/utils.py and core.py).
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import msgspec
import zmq

from umbel_engine.errors import EngineStartError
from umbel_engine.reader import Reader
from umbel_engine.routing import Engine
from umbel_engine.wire import UNDECODABLE, Addresses, Hello, Init, ReadyResponse

logger = logging.getLogger(__name__)

IDENTITY_LENGTH = 2
MAX_ENGINES = 65536
"""An engine's identity is its index in two bytes."""


class Handshake:
    """Brings a number of engines from HELLO to READY.

    Feed it the messages of the handshake socket; it answers through `reply`.
    """

    def __init__(
        self, engine_count: int, addresses: Addresses, reply: Callable[[bytes, bytes], None]
    ) -> None:
        self._engine_count = engine_count
        self._init = msgspec.msgpack.encode(Init(addresses))
        self._reply = reply
        self._greeted: set[bytes] = set()
        self._ready: set[bytes] = set()

    @property
    def done(self) -> bool:
        """Whether every engine is ready."""
        return len(self._ready) == self._engine_count

    @property
    def stage(self) -> str:
        """What has been reached, in words."""
        total = self._engine_count
        if len(self._greeted) < total:
            return f"{len(self._greeted)} of {total} engines have connected (HELLO)"
        return (
            f"all {total} engines have connected, {len(self._ready)} of them have loaded "
            "their model (READY)"
        )

    def feed(self, frames: list[bytes]) -> None:
        """Take in a message of the handshake socket; raises EngineStartError on a wrong one."""
        identity = frames[0]
        if len(identity) != IDENTITY_LENGTH:
            logger.warning("someone who is no engine spoke on the handshake port; ignored")
            return
        index = check_index(identity, self._engine_count, "handshake")
        if len(frames) != 2:
            raise EngineStartError(f"handshake: expected 2 frames, got {len(frames)}")
        payload = frames[1]
        try:
            message = msgspec.msgpack.decode(payload, type=Hello)
        except UNDECODABLE as error:
            raise EngineStartError(
                f"handshake: engine {index} sent no HELLO or READY: {error}"
            ) from error
        if message.status == "HELLO":
            if identity in self._greeted:
                raise EngineStartError(f"handshake: engine {index} said HELLO twice")
            self._greeted.add(identity)
            self._reply(identity, self._init)
            logger.info("engine %d has connected and loads its model", index)
        elif message.status == "READY":
            if identity not in self._greeted or identity in self._ready:
                raise EngineStartError(f"handshake: unexpected READY from engine {index}")
            self._ready.add(identity)
            logger.info("engine %d is ready", index)
        else:
            raise EngineStartError(f"handshake: engine {index} sent status {message.status!r}")


class Registrations:
    """Collects what engines tell of themselves; feed it the messages of an input socket."""

    def __init__(self, engine_count: int) -> None:
        self._engine_count = engine_count
        self._registered: dict[bytes, ReadyResponse] = {}

    @property
    def done(self) -> bool:
        """Whether every engine has registered."""
        return len(self._registered) == self._engine_count

    @property
    def stage(self) -> str:
        """What has been reached, in words."""
        return f"{len(self._registered)} of {self._engine_count} engines have registered"

    @property
    def engines(self) -> list[Engine]:
        """The engines that have registered."""
        return [
            Engine(identity, int.from_bytes(identity, "little"), ready)
            for identity, ready in self._registered.items()
        ]

    def feed(self, frames: list[bytes]) -> None:
        """Take in a message of the input socket; raises EngineStartError on a wrong one."""
        if len(frames) != 2:
            raise EngineStartError(f"registration: expected 2 frames, got {len(frames)}")
        identity, payload = frames
        index = check_index(identity, self._engine_count, "registration")
        try:
            self._registered[identity] = msgspec.msgpack.decode(payload, type=ReadyResponse)
        except UNDECODABLE as error:
            raise EngineStartError(
                f"registration: engine {index} sent no ready response: {error}"
            ) from error


def check_count(engine_count: int) -> None:
    """Refuse a number of engines that cannot be; raises EngineStartError."""
    if not 1 <= engine_count <= MAX_ENGINES:
        raise EngineStartError(
            f"data parallel size must be in [1, {MAX_ENGINES}], got {engine_count}"
        )


def check_index(identity: bytes, engine_count: int, stage: str) -> int:
    """Give the index of an engine; raises EngineStartError for one that is not expected."""
    index = int.from_bytes(identity, "little")
    if index >= engine_count:
        raise EngineStartError(f"{stage}: engine {index} is not one of the {engine_count} expected")
    return index


class Stage(Protocol):
    """A part of the way to readiness."""

    @property
    def done(self) -> bool: ...

    @property
    def stage(self) -> str: ...

    def feed(self, frames: list[bytes]) -> None: ...


class Part(NamedTuple):
    """A stage, and the socket that its messages come from."""

    stage: Stage
    socket: zmq.Socket[bytes]


async def perform(
    parts: Sequence[Part], timeout: float, readers: list[Reader], report_every: float = 15.0
) -> None:
    """Wait until all stages are done.

    The sockets' readers are put into `readers` too, for whoever closes the sockets.  `timeout` and
    `report_every` are in seconds; while waiting, what has been reached is logged.  Raises
    EngineStartError, which tells of it as well, on a time-out or a wrong message.
    """
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def guarded(stage: Stage) -> Callable[[list[bytes]], None]:
        def on_message(frames: list[bytes]) -> None:
            if outcome.done():
                return
            try:
                stage.feed(frames)
            except EngineStartError as error:
                outcome.set_exception(error)
            else:
                if all(part.stage.done for part in parts):
                    outcome.set_result(None)

        return on_message

    mine = [Reader(part.socket, guarded(part.stage)) for part in parts]
    readers += mine
    start = time.monotonic()
    try:
        while True:
            left = timeout - (time.monotonic() - start)
            done, _ = await asyncio.wait((outcome,), timeout=max(0.0, min(report_every, left)))
            if done:
                return outcome.result()
            reached = next(part.stage.stage for part in parts if not part.stage.done)
            if left <= report_every:
                raise EngineStartError(f"engines were not ready after {timeout:g} s: {reached}")
            logger.info("waiting for engines (%.0f s): %s", time.monotonic() - start, reached)
    finally:
        for reader in mine:
            reader.close()
        if not outcome.done():
            outcome.cancel()
