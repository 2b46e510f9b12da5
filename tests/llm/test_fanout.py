import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from umbel_llm.fanout import Children, child_seed, internal_id

LOWEST, HIGHEST = -(2**63), 2**63 - 1

seeds = st.integers(LOWEST, HIGHEST)


def test_an_internal_id_is_the_callers_with_eight_random_hex_digits() -> None:
    assert re.fullmatch(r"chatcmpl-1-[0-9a-f]{8}", internal_id("chatcmpl-1"))
    assert len({internal_id("x") for _ in range(100)}) == 100


def test_siblings_have_their_index_before_one_internal_id() -> None:
    family = Children("cmpl-1-0", None, 12)
    indexes, ids = zip(*(child.request_id.split("_", 1) for child in family), strict=True)
    assert indexes == tuple(map(str, range(12)))
    assert len(set(ids)) == 1
    assert re.fullmatch(r"cmpl-1-0-[0-9a-f]{8}", ids[0])


def test_an_only_child_has_the_plain_id() -> None:
    (child,) = Children("x", 7, 1)
    assert re.fullmatch(r"x-[0-9a-f]{8}", child.request_id)
    assert child.seed == 7


@pytest.mark.parametrize(
    ("seed", "expected"),
    [
        (0, [0, 1, 2]),
        (40, [40, 41, 42]),
        (-3, [-3, -2, -1]),
        (-2, [-2, -1, 0]),
        (HIGHEST, [HIGHEST, LOWEST, LOWEST + 1]),
        (HIGHEST - 1, [HIGHEST - 1, HIGHEST, LOWEST]),
        (LOWEST, [LOWEST, LOWEST + 1, LOWEST + 2]),
        (None, [None, None, None]),
        (-1, [None, None, None]),
    ],
)
def test_every_child_has_the_seed_of_the_request_plus_its_index(
    seed: int | None, expected: list[int | None]
) -> None:
    assert [child.seed for child in Children("x", seed, 3)] == expected
    assert [child.seed for child in Children("x", seed, 1)] == expected[:1]


@given(seeds.filter(lambda seed: seed != -1), st.integers(0, 16384))
def test_seeds_wrap_at_64_bits(seed: int, index: int) -> None:
    given_seed = child_seed(seed, index)
    assert given_seed is not None
    assert LOWEST <= given_seed <= HIGHEST
    assert (given_seed - seed - index) % 2**64 == 0


@given(seeds)
def test_seeded_siblings_have_seeds_of_their_own(seed: int) -> None:
    family = Children("x", seed, 64)
    assert len({child.seed for child in family}) == (1 if seed == -1 else 64)
