"""A histogram in plain numbers, cheap enough for every token."""

from bisect import bisect_left
from collections.abc import Sequence

from prometheus_client.utils import floatToGoString


class Histogram:
    """How many observations fell between the bounds, and their sum.

    An observation counts for the first bound that it does not exceed, as in Prometheus.  It takes
    no lock: observe from one thread.
    """

    __slots__ = ("_bounds", "_counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Count a value, which was seen so many times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self.sum += value * times

    def buckets(self) -> list[tuple[str, float]]:
        """Give the bounds, in Prometheus' spelling, with the observations up to each of them."""
        bounds = (*self._bounds, float("inf"))
        buckets = []
        total = 0
        for bound, count in zip(bounds, self._counts, strict=True):
            total += count
            label: str = floatToGoString(bound)  # type: ignore[no-untyped-call]
            buckets.append((label, float(total)))
        return buckets
