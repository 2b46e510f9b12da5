"""What a server does with its memory once everything is loaded."""

import asyncio
import gc
from types import SimpleNamespace

import pytest

from umbel_server import memory


@pytest.fixture
def collector():
    """The garbage collector, as it was before afterwards."""
    thresholds = gc.get_threshold()
    yield gc
    gc.set_threshold(*thresholds)
    gc.unfreeze()


@pytest.fixture
def given_back(monkeypatch):
    calls = []
    monkeypatch.setattr(memory, "give_back", lambda: calls.append(True))
    return calls


class Tokenizer:
    def __init__(self, has_fastokens):
        self.has_fastokens = has_fastokens
        self.asked = 0

    def use_fastokens(self):
        self.asked += 1
        return self.has_fastokens


def settle(tokenizer):
    async def run():
        memory.settle(SimpleNamespace(tokenizer=tokenizer))

    # At its end it waits for what runs aside.
    asyncio.run(run())


def test_what_is_loaded_is_kept_from_the_collector(collector):
    before = collector.get_freeze_count()
    settle(Tokenizer(has_fastokens=False))
    assert collector.get_freeze_count() > before + 10_000
    assert collector.get_threshold()[0] == memory.COLLECT_EVERY


@pytest.mark.parametrize(("has_fastokens", "times"), [(False, 1), (True, 2)])
def test_the_tokenizer_gets_faster_aside_and_what_loading_took_is_given_back(
    collector, given_back, has_fastokens, times
):
    tokenizer = Tokenizer(has_fastokens)
    settle(tokenizer)
    assert tokenizer.asked == 1
    assert len(given_back) == times


def test_free_memory_is_given_back_as_far_as_the_c_library_can(monkeypatch):
    kept = []
    monkeypatch.setattr(
        memory.ctypes, "CDLL", lambda name: SimpleNamespace(malloc_trim=kept.append)
    )
    memory.give_back()
    assert kept == [0]
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: SimpleNamespace())
    memory.give_back()
    assert kept == [0]
