"""The memory of a server: what it has loaded, it keeps; what loading took, it gives back."""

import asyncio
import ctypes
import gc

from umbel_text import TextModel

COLLECT_EVERY = 20_000
"""Objects more than before after which the garbage collector looks at the young ones.

A request makes hundreds of objects that go without it; at Python's own threshold, a tenth of what a
request costs goes into looking at those of the others.
"""


def settle(model: TextModel) -> None:
    """Keep what has been loaded from the garbage collector, and let the model get faster aside.

    To be called on the event loop when everything is loaded.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(COLLECT_EVERY, *gc.get_threshold()[1:])
    give_back()
    asyncio.get_running_loop().run_in_executor(None, _speed_up, model)


def _speed_up(model: TextModel) -> None:
    if model.tokenizer.use_fastokens():
        give_back()


def give_back() -> None:
    """Give free memory back to the system, where the C library can (that is glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
