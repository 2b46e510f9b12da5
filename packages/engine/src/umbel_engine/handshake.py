"""How engines find their frontend: HELLO, INIT, registration, READY.

The frontend binds three sockets; every engine says HELLO on the handshake socket, is told the
addresses of the other two, loads its model, registers on the input socket and says READY
(vllm/v1/engine/utils.py and core.py).
"""

import asyncio
import logging
import time
from collections.abc import Callable

import msgspec
import zmq

from umbel_engine.errors import EngineStartError
from umbel_engine.reader import Reader
from umbel_engine.routing import Engine
from umbel_engine.wire import Addresses, Hello, Init, ReadyResponse

logger = logging.getLogger(__name__)

IDENTITY_LENGTH = 2
MAX_ENGINES = 65536
"""An engine's identity is its index in two bytes."""


class Handshake:
    """Brings a number of engines from HELLO to READY.

    Feed it the messages of the handshake socket and of the input socket; it answers through
    `reply`.  It is done when every engine is ready and registered.
    """

    def __init__(
        self, engine_count: int, addresses: Addresses, reply: Callable[[bytes, bytes], None]
    ) -> None:
        if not 1 <= engine_count <= MAX_ENGINES:
            raise EngineStartError(
                f"data parallel size must be in [1, {MAX_ENGINES}], got {engine_count}"
            )
        self._engine_count = engine_count
        self._init = msgspec.msgpack.encode(Init(addresses))
        self._reply = reply
        self._greeted: set[bytes] = set()
        self._ready: set[bytes] = set()
        self._registered: dict[bytes, ReadyResponse] = {}

    @property
    def done(self) -> bool:
        """Whether every engine is ready."""
        return len(self._ready) == len(self._registered) == self._engine_count

    @property
    def engines(self) -> list[Engine]:
        """The engines that have registered."""
        return [
            Engine(identity, int.from_bytes(identity, "little"), ready)
            for identity, ready in self._registered.items()
        ]

    @property
    def stage(self) -> str:
        """What has been reached, in words."""
        total = self._engine_count
        if len(self._greeted) < total:
            return f"{len(self._greeted)} of {total} engines have connected (HELLO)"
        if len(self._ready) < total:
            return (
                f"all {total} engines have connected, {len(self._ready)} of them have loaded "
                "their model (READY)"
            )
        return f"all {total} engines are ready, {len(self._registered)} of them have registered"

    def on_handshake(self, frames: list[bytes]) -> None:
        """Take in a message of the handshake socket; raises EngineStartError on a wrong one."""
        identity = frames[0]
        if len(identity) != IDENTITY_LENGTH:
            logger.warning("someone who is no engine spoke on the handshake port; ignored")
            return
        index = int.from_bytes(identity, "little")
        if index >= self._engine_count:
            raise EngineStartError(
                f"handshake: engine {index} is not one of the {self._engine_count} expected"
            )
        if len(frames) != 2:
            raise EngineStartError(f"handshake: expected 2 frames, got {len(frames)}")
        payload = frames[1]
        try:
            message = msgspec.msgpack.decode(payload, type=Hello)
        except (msgspec.MsgspecError, RecursionError) as error:
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

    def on_registration(self, frames: list[bytes]) -> None:
        """Take in a message of the input socket; raises EngineStartError on a wrong one."""
        if len(frames) != 2:
            raise EngineStartError(f"registration: expected 2 frames, got {len(frames)}")
        identity, payload = frames
        index = int.from_bytes(identity, "little")
        if identity not in self._greeted:
            raise EngineStartError(f"registration: engine {index} has not said HELLO")
        try:
            self._registered[identity] = msgspec.msgpack.decode(payload, type=ReadyResponse)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise EngineStartError(
                f"registration: engine {index} sent no ready response: {error}"
            ) from error


async def perform(
    handshake: Handshake,
    handshake_socket: zmq.Socket[bytes],
    input_socket: zmq.Socket[bytes],
    timeout: float,
    readers: list[Reader],
    report_every: float = 15.0,
) -> list[Engine]:
    """Wait until every engine is ready and give the engines.

    The sockets' readers are put into `readers` too, for whoever closes the sockets.  `timeout` and `report_every` are in seconds; while waiting, the stage is logged.  Raises
    EngineStartError, which names the stage that was reached, on a time-out or a wrong message.
    """
    outcome: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def guarded(handle: Callable[[list[bytes]], None]) -> Callable[[list[bytes]], None]:
        def on_message(frames: list[bytes]) -> None:
            if outcome.done():
                return
            try:
                handle(frames)
            except EngineStartError as error:
                outcome.set_exception(error)
            else:
                if handshake.done:
                    outcome.set_result(None)

        return on_message

    handshake_reader = Reader(handshake_socket, guarded(handshake.on_handshake))
    input_reader = Reader(input_socket, guarded(handshake.on_registration))
    readers += (handshake_reader, input_reader)
    start = time.monotonic()
    try:
        while True:
            elapsed = time.monotonic() - start
            step = min(report_every, timeout - elapsed)
            if step <= 0:
                raise EngineStartError(
                    f"engines were not ready after {timeout:g} s: {handshake.stage}"
                )
            done, _ = await asyncio.wait((outcome,), timeout=step)
            if done:
                outcome.result()
                return handshake.engines
            logger.info(
                "waiting for engines (%.0f s): %s", time.monotonic() - start, handshake.stage
            )
    finally:
        handshake_reader.close()
        input_reader.close()
        if not outcome.done():
            outcome.cancel()
