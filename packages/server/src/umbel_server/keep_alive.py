"""Comments in streams that have nothing to say, so that no proxy takes them for dead."""

import asyncio
from collections.abc import Callable

COMMENT = b": keep-alive\n\n"
"""vLLM's (vllm/entrypoints/serve/utils/sse_keep_alive.py); clients ignore it."""

TICKS_PER_INTERVAL = 4


class KeepAlive:
    """Calls `on_silence` when nothing was written for `interval` seconds.

    `written` tells how much has been written.  It is looked at now and then, so that a write costs
    nothing; a silence may therefore be a quarter of an interval longer.
    """

    def __init__(
        self, interval: float, written: Callable[[], int], on_silence: Callable[[], None]
    ) -> None:
        self._interval = interval
        self._written = written
        self._on_silence = on_silence
        self._seen = 0
        self._silent_ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._schedule(asyncio.get_running_loop())

    def _schedule(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(self._interval / TICKS_PER_INTERVAL, self._tick, loop)

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        written = self._written()
        self._silent_ticks = self._silent_ticks + 1 if written == self._seen else 0
        if self._silent_ticks == TICKS_PER_INTERVAL:
            self._silent_ticks = 0
            self._on_silence()
        self._seen = self._written()
        self._schedule(loop)

    def __exit__(self, *error: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
