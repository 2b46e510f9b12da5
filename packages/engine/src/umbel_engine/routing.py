"""Which engine a request goes to."""

from collections.abc import Sequence

import msgspec

from umbel_engine.errors import InvalidRankError
from umbel_engine.wire import ReadyResponse, SchedulerStats

KV_USAGE_KNEE = 0.5
KV_USAGE_WEIGHT = 6.0


class Engine(msgspec.Struct, eq=False):
    """One connected engine and how busy it is.

    `identity` is its ZMQ identity; `index` its data-parallel rank.  `inflight` counts the requests
    that were sent to it from here and have not ended.
    """

    identity: bytes
    index: int
    ready: ReadyResponse
    inflight: int = 0
    waiting: int = 0
    running: int = 0
    kv_cache_usage: float = 0.0

    def update(self, stats: SchedulerStats) -> None:
        """Take over what the engine's scheduler tells of itself, as far as it can be true."""
        waiting = stats.num_waiting_reqs + stats.num_skipped_waiting_reqs
        running, usage = stats.num_running_reqs, stats.kv_cache_usage
        self.waiting = waiting if waiting > 0 else 0
        self.running = running if running > 0 else 0
        # What is no number is not above 0 either.
        self.kv_cache_usage = (usage if usage < 1.0 else 1.0) if usage > 0.0 else 0.0

    @property
    def load(self) -> float:
        """How busy the engine is; requests that wait count more when its cache is full.

        The rule is that of vllm/v1/engine/core_client.py (DPLBAsyncMPClient).
        """
        score = float(max(self.inflight, self.waiting + self.running))
        if self.waiting:
            score += self.waiting * KV_USAGE_WEIGHT * max(0.0, self.kv_cache_usage - KV_USAGE_KNEE)
        return score


class Routing:
    """Picks an engine for each request: the one with the least load, ties in rotation.

    Of several clients that share the engines, each begins its rotation at another one
    (vllm/v1/engine/core_client.py).
    """

    def __init__(
        self, engines: Sequence[Engine], client_index: int = 0, client_count: int = 1
    ) -> None:
        self.engines = sorted(engines, key=lambda engine: engine.index)
        self._by_identity = {engine.identity: engine for engine in self.engines}
        self._by_index = {engine.index: engine for engine in self.engines}
        self._start = len(self.engines) * client_index // client_count

    def check_rank(self, rank: int | None) -> None:
        """Raise InvalidRankError when no engine has this data-parallel rank."""
        if rank is not None and rank not in self._by_index:
            raise InvalidRankError(rank, len(self.engines))

    def pick(self, rank: int | None) -> Engine:
        """Choose an engine and count the request to it."""
        self.check_rank(rank)
        if rank is not None:
            engine = self._by_index[rank]
        else:
            count = len(self.engines)
            order = (self.engines[(self._start + i) % count] for i in range(count))
            engine = min(order, key=lambda engine: engine.load)
            self._start = (self._start + 1) % count
        engine.inflight += 1
        return engine

    def update(self, index: int, stats: SchedulerStats) -> None:
        """Take over what the scheduler of the engine with this rank tells."""
        if (engine := self._by_index.get(index)) is not None:
            engine.update(stats)

    def release(self, identity: bytes) -> None:
        """Count a request as ended."""
        self._by_identity[identity].inflight -= 1
