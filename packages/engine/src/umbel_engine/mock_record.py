"""What a mock engine was asked, and how a test waits for it."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from umbel_engine.wire import EngineCoreRequest


class UtilityCall(NamedTuple):
    """A utility call as it arrived."""

    client_index: int
    call_id: int
    method: str
    arguments: list[object]


class Record:
    """Every message that an engine received, decoded, in the order of arrival.

    The waits raise TimeoutError after `timeout` seconds, with what was reached, and RuntimeError
    as soon as the engine has failed.
    """

    def __init__(self, timeout: float) -> None:
        self.adds: list[EngineCoreRequest] = []
        """Every ADD."""
        self.add_frames: list[list[bytes]] = []
        """The frames of every ADD after its type, the MessagePack payload first."""
        self.aborts: list[list[str]] = []
        """The ids of every ABORT message."""
        self.utilities: list[UtilityCall] = []
        """Every utility call."""
        self._timeout = timeout
        self._adds_given = 0
        self._waiters: list[asyncio.Future[None]] = []
        self._failure: Exception | None = None

    @property
    def aborted(self) -> list[str]:
        """The ids of all ABORT messages, in order."""
        return [request_id for message in self.aborts for request_id in message]

    async def next_add(self) -> EngineCoreRequest:
        """Give the next ADD that this method has not given before."""
        given = self._adds_given
        self._adds_given += 1
        return (await self.wait_adds(given + 1))[given]

    async def wait_adds(self, count: int = 1) -> list[EngineCoreRequest]:
        """Wait until `count` ADDs have arrived in all, and give all."""
        await self._wait_for(lambda: len(self.adds), count, "ADDs")
        return list(self.adds)

    async def wait_aborts(self, count: int = 1) -> list[list[str]]:
        """Wait until `count` ABORT messages have arrived in all, and give the ids of each."""
        await self._wait_for(lambda: len(self.aborts), count, "ABORT messages")
        return list(self.aborts)

    async def wait_utilities(self, count: int = 1) -> list[UtilityCall]:
        """Wait until `count` utility calls have arrived in all, and give all."""
        await self._wait_for(lambda: len(self.utilities), count, "utility calls")
        return list(self.utilities)

    async def _wait_for(self, reached: Callable[[], int], count: int, what: str) -> None:
        self._check()
        try:
            async with asyncio.timeout(self._timeout):
                while reached() < count:
                    waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiters.append(waiter)
                    await waiter
                    self._check()
        except TimeoutError:
            raise TimeoutError(
                f"{abs(reached())} {what} after {self._timeout:g} s, expected {count}"
            ) from None

    def _notify(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def _check(self) -> None:
        if self._failure is not None:
            raise RuntimeError(f"the mock engine failed: {self._failure!r}") from self._failure

    def _fail(self, error: Exception) -> None:
        self._failure = self._failure or error
        self._notify()
