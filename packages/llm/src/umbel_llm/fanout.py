"""The ids and seeds of the children of one request.

The rules are those of vllm/v1/engine/parallel_sampling.py and input_processor.py.
"""

import secrets

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


def children(request_id: str, seed: int | None, n: int) -> list[Child]:
    """Give the children of a request in index order; a single one keeps the plain id."""
    parent = internal_id(request_id)
    if n == 1:
        return [Child(parent, child_seed(seed, 0))]
    return [Child(f"{index}_{parent}", child_seed(seed, index)) for index in range(n)]
