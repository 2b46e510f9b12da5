"""Who is let in: limits on what waits for the engines and on what runs there."""

from collections.abc import Callable, Iterator
from typing import NoReturn, Protocol

import msgspec

from umbel_llm.errors import QueueFullError

BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a "
    "different instance."
)
BACKLOG = (
    "The engine has reached its prefill token backlog limit. Please try again later or on a "
    "different instance."
)


class Counters(Protocol):
    """Numbers of samples, one for each of the clients that share engines; a list will do."""

    def __getitem__(self, index: int, /) -> int: ...

    def __setitem__(self, index: int, value: int, /) -> None: ...

    def __iter__(self) -> Iterator[int]: ...


class AdmissionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """How much is let in; None is no limit.  The limits are vLLM's (vllm/config/scheduler.py).

    `max_num_queued_reqs` is the number of samples that have not ended, whether they wait or run; n
    count as n.  `max_num_queued_tokens` is the number of prompt tokens of samples that have brought
    no output yet: once it is reached, nobody else is let in.
    """

    max_num_queued_reqs: int | None = None
    max_num_queued_tokens: int | None = None


class Admission:
    """Counts what has been let in, and turns away what would be too much.

    Of several clients that share the engines, each counts its samples in its own place of
    `counters`, at `index`; the limit on samples holds for all of them together.  `on_rejection` is
    called with the name of the limit for everyone who is turned away.
    """

    def __init__(
        self,
        limits: AdmissionLimits,
        counters: Counters,
        index: int,
        on_rejection: Callable[[str], None],
    ) -> None:
        self._limits = limits
        self._counters = counters
        self._index = index
        self._on_rejection = on_rejection
        self._queued_tokens = 0

    @property
    def unfinished(self) -> int:
        """How many samples have not ended, those of other clients included."""
        return sum(self._counters)

    @property
    def queued_tokens(self) -> int:
        """How many prompt tokens belong to samples without any output yet."""
        return self._queued_tokens

    def check(self, n: int, with_backlog: bool = True) -> None:
        """Raise QueueFullError when n samples more would be too many; counts nothing.

        Without `with_backlog`, prompts that wait do not matter.
        """
        most, most_tokens = self._limits.max_num_queued_reqs, self._limits.max_num_queued_tokens
        if most is not None and self.unfinished + n > most:
            self._reject("max_num_queued_reqs", BUSY)
        if with_backlog and most_tokens is not None and self._queued_tokens >= most_tokens:
            self._reject("max_num_queued_tokens", BACKLOG)

    def _reject(self, reason: str, message: str) -> NoReturn:
        self._on_rejection(reason)
        raise QueueFullError(reason, message)

    def enter(self, n: int, prompt_tokens: int) -> None:
        """Count n samples, each with a prompt of so many tokens."""
        self._counters[self._index] += n
        self._queued_tokens += n * prompt_tokens

    def prefilled(self, prompt_tokens: int) -> None:
        """Count a prompt of so many tokens as read, or as given up."""
        self._queued_tokens -= prompt_tokens

    def leave(self, n: int = 1) -> None:
        """Count n samples as ended."""
        self._counters[self._index] -= n
