"""The answer that does not stream: every sample's one item, when all are there."""

import asyncio
from typing import TypeVar

from aiohttp import web

from umbel_engine import Sample, Samples
from umbel_server.watch import watched

ItemT = TypeVar("ItemT")


async def collect(http: web.Request, samples: Samples[ItemT]) -> list[ItemT]:
    """Give the item of every sample, in index order.

    The samples must be handed over at their end only.  The first that ends with an error fails
    the request with it, and its siblings are aborted.  Raises ClientDisconnectedError.
    """
    items: dict[int, ItemT] = {}
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def take(ready: list[Sample[ItemT]]) -> None:
        for sample in ready:
            finish = sample.finish
            if finish is not None and finish.error is not None:
                raise finish.error
            if (item := sample.take()) is not None:
                items[sample.index] = item

    def sink(ready: list[Sample[ItemT]]) -> None:
        if done.done():
            return
        try:
            take(ready)
        except Exception as error:
            done.set_exception(error)
        else:
            if len(items) == len(samples):
                done.set_result(None)

    samples.sink = sink
    try:
        async with samples:
            await watched(http, done)
    finally:
        if not done.cancel() and not done.cancelled():
            # The client may have gone in the same turn; an error nobody asks for is reported.
            done.exception()
    return [items[index] for index in range(len(samples))]
