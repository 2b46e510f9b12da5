"""Ways to bring outputs to samples, and to read them."""

import asyncio

import msgspec

from umbel_engine.wire import EngineCoreOutputs


def message(*outputs, **fields):
    return [msgspec.msgpack.encode(EngineCoreOutputs(outputs=list(outputs), **fields))]


async def collect(samples):
    """Read every sample to its end; gives the token ids and the finish of each."""
    token_ids = [[] for _ in samples]
    finishes = [None] * len(samples)
    async with asyncio.timeout(20):
        async for index, delta in samples:
            token_ids[index] += delta.token_ids
            finishes[index] = delta.finish
    return token_ids, finishes
