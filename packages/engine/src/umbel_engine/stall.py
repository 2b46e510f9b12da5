"""Engines that are there and do nothing: asked for a sign of life, and given up without one."""

import asyncio
from collections.abc import Callable, Sequence

from umbel_engine.routing import Engine

TICKS = 4
"""How many looks at the engines make up a timeout."""


class StallWatch:
    """Looks at engines a few times per timeout and tells of one that is stuck.

    An engine that sent nothing since the last look is pinged, once; any message counts as life, so
    an engine at work is never asked.  `on_stall` takes the engine that has been silent for
    `timeout` seconds since its ping.  Looks are counted, not seconds: a process that was itself
    stopped for a while must not take its engines for stuck.
    """

    def __init__(
        self,
        engines: Sequence[Engine],
        timeout: float,
        ping: Callable[[Engine], None],
        on_stall: Callable[[Engine], None],
    ) -> None:
        self._engines = engines
        self._every = timeout / TICKS
        self._ping = ping
        self._on_stall = on_stall
        self._heard: set[int] = set()
        self._silent = dict.fromkeys((engine.index for engine in engines), 0)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(self._every, self._look)

    def heard(self, engine_index: int) -> None:
        """Take note of a message of the engine with this rank."""
        self._heard.add(engine_index)

    def cancel(self) -> None:
        """Look no more."""
        self._timer.cancel()

    def _look(self) -> None:
        # Set before anything else: what follows may cancel it.
        self._timer = self._loop.call_later(self._every, self._look)
        heard, self._heard = self._heard, set()
        for engine in self._engines:
            if engine.index in heard:
                self._silent[engine.index] = 0
                continue
            looks = self._silent[engine.index]
            if looks == TICKS:
                self._on_stall(engine)
                return
            self._silent[engine.index] = looks + 1
            if looks == 0:
                self._ping(engine)
