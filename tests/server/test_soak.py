"""A short soak; `tox -e soak` runs a long one."""

import pytest

from umbel_engine.sample_model import prepare_sample_model

from ..soak.run import soak

MAY_GROW = 0.15
"""Of the memory after the warm-up: some 20 MiB, or 7 KiB a request of 3,000.

What the allocator takes until it has enough is more than a small leak in so few requests; a long
soak finds that.
"""


@pytest.fixture(scope="module")
def sample_model():
    return prepare_sample_model()


@pytest.mark.parametrize(
    ("processes", "requests", "warm_up"), [(1, 5000, 2000), (2, 1500, 500)], ids=["one", "two"]
)
async def test_nothing_is_left_of_many_requests(
    sample_model, tmp_path, processes, requests, warm_up
):
    report = await soak(
        sample_model,
        tmp_path,
        requests=requests,
        warm_up=warm_up,
        may_grow=MAY_GROW,
        seed=1,
        processes=processes,
    )
    assert report.problems == [], str(report)
    assert report.requests == requests
