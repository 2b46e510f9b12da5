"""The ids and seeds of the children of one request.

The rules are those of vllm/v1/engine/parallel_sampling.py and input_processor.py.
"""

import secrets
from collections.abc import Iterator, Sequence
from typing import overload

from umbel_engine import Child

UNSEEDED = -1
"""A seed that means no seed."""


def internal_id(request_id: str) -> str:
    """Make the engine's id of a request: the caller's with eight random hex digits.

    Two requests may come with the same id; the engine must still tell them apart.
    """
    return f"{request_id}-{secrets.token_hex(4)}"


def child_seed(seed: int | None, index: int) -> int | None:
    """Give the seed of a child: the request's plus its index, wrapping at 64 bits signed.

    Without a seed, or with -1, no child has one.
    """
    if seed is None or seed == UNSEEDED:
        return None
    return (seed + index + 2**63) % 2**64 - 2**63


class Children(Sequence[Child]):
    """The children of a request in index order, each made when it is asked for.

    A single one keeps the plain id.
    """

    def __init__(self, request_id: str, seed: int | None, n: int) -> None:
        self._parent = internal_id(request_id)
        self._seed = seed
        self._n = n

    def __len__(self) -> int:
        return self._n

    def __iter__(self) -> Iterator[Child]:
        return map(self._child, range(self._n))

    @overload
    def __getitem__(self, index: int) -> Child: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Child]: ...

    def __getitem__(self, index: int | slice) -> Child | Sequence[Child]:
        if isinstance(index, slice):
            return [self._child(position) for position in range(self._n)[index]]
        return self._child(range(self._n)[index])

    def _child(self, index: int) -> Child:
        request_id = self._parent if self._n == 1 else f"{index}_{self._parent}"
        return Child(request_id, child_seed(self._seed, index))
