"""Being told to end."""

import asyncio
import signal
from collections.abc import Coroutine

SAME_SIGNAL_WITHIN = 0.5
"""Seconds in which a second signal is the first once more: a wrapper passes on what a terminal has
sent to the whole process group."""


class Stop:
    """Told by SIGINT or SIGTERM that the server is to end; a second one ends it at once."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._requested = self._loop.create_future()
        self._requested_at = 0.0
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.add_signal_handler(number, self._on_signal)

    def _on_signal(self) -> None:
        if not self._requested.done():
            self._requested_at = self._loop.time()
            self._requested.set_result(None)
        elif self._loop.time() - self._requested_at > SAME_SIGNAL_WITHIN:
            # The engine's supervisor sees that this process is gone and stops the engine.
            signal.raise_signal(signal.SIGKILL)

    async def requested(self) -> None:
        """Wait until told to stop."""
        await asyncio.wait((self._requested,))

    async def unless_stopped(self, work: Coroutine[object, object, None]) -> bool:
        """Wait for something, or until told to stop; says whether it was finished."""
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._requested), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.wait((task,))
        if task.cancelled():
            return False
        task.result()
        return True

    def close(self) -> None:
        """Give the signals back."""
        for number in (signal.SIGINT, signal.SIGTERM):
            self._loop.remove_signal_handler(number)
