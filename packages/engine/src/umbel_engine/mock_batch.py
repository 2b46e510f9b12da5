"""The running requests of a mock engine, for one client, and the message that a step makes."""

import itertools
import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from umbel_engine.mock_plan import Plan, head
from umbel_engine.wire import SchedulerStats

_NIL = b"\xc0"
_ENVELOPE = b"\x99"  # an array of 9 elements
_NO_MORE = _NIL * 5  # utility output, finished requests, waves, weight version


class _Run(NamedTuple):
    head: bytes
    bodies: Iterator[bytes]
    first_step: int
    last_step: int


class Batch:
    """Requests that step together; each step is one message.

    It is known from the start at which step each request ends, so that a step looks at none of
    them: heads and bodies are two lists, joined.
    """

    def __init__(self, engine_index: int) -> None:
        self._prefix = _ENVELOPE + msgspec.msgpack.encode(engine_index)
        self._step = 0
        self._runs: dict[str, _Run] = {}
        self._changes: dict[int, list[str]] = {}
        self._heads: list[bytes] = []
        self._bodies: list[Iterator[bytes]] = []
        self._stale = False

    def __len__(self) -> int:
        return len(self._runs)

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._runs

    def add(self, request_id: str, plan: Plan) -> None:
        """Take a request in."""
        first = self._step + plan.delay
        last = first + plan.step_count - 1
        self._runs[request_id] = _Run(head(request_id), plan.bodies, first, last)
        self._changes.setdefault(last, []).append(request_id)
        self._stale = True

    def drop(self, request_id: str) -> bool:
        """Take a request out before its end; tells whether it was there."""
        if self._runs.pop(request_id, None) is None:
            return False
        self._stale = True
        return True

    def drop_all(self) -> list[str]:
        """Take every request out; gives their ids."""
        request_ids = list(self._runs)
        self._runs.clear()
        self._stale = True
        return request_ids

    def step(self, now: float, stats: SchedulerStats | None) -> bytes | None:
        """Give the next message; None when no request has an output in this step."""
        if self._stale:
            self._rebuild()
        count = len(self._heads)
        message = None
        if count:
            outputs = zip(self._heads, map(next, self._bodies), strict=True)
            message = b"".join(
                (
                    self._prefix,
                    _array_header(count),
                    *itertools.chain.from_iterable(outputs),
                    _NIL if stats is None else msgspec.msgpack.encode(stats),
                    struct.pack(">Bd", 0xCB, now),
                    _NO_MORE,
                )
            )
        for request_id in self._changes.pop(self._step, ()):
            run = self._runs.get(request_id)
            # The id may have been dropped, and come back, since.
            if run is not None and run.last_step == self._step:
                del self._runs[request_id]
            self._stale = True
        self._step += 1
        return message

    def single(self, request_id: str, body: bytes, now: float) -> bytes:
        """Give a message with one output, of a request that is not running."""
        output = head(request_id) + body
        end = _NIL + struct.pack(">Bd", 0xCB, now) + _NO_MORE
        return self._prefix + _array_header(1) + output + end

    def _rebuild(self) -> None:
        runs = [run for run in self._runs.values() if run.first_step <= self._step]
        self._heads = [run.head for run in runs]
        self._bodies = [run.bodies for run in runs]
        # One that is still to begin makes the lists stale again.
        self._stale = len(runs) < len(self._runs)


def _array_header(count: int) -> bytes:
    if count < 1 << 16:
        return struct.pack(">BH", 0xDC, count)
    return struct.pack(">BI", 0xDD, count)
