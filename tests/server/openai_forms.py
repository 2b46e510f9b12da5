"""The official client in both its forms, called in one way."""

import asyncio
from operator import attrgetter

import pytest
from openai import AsyncOpenAI, OpenAI

CHAT = "chat.completions.create"
MESSAGES = [{"role": "user", "content": "Hello"}]


class AsyncForm:
    """The client for asyncio."""

    def __init__(self, url, **options):
        self.client = AsyncOpenAI(base_url=f"{url}/v1", max_retries=0, **options)

    async def __call__(self, method, **arguments):
        return await attrgetter(method)(self.client)(**_completed(method, arguments))

    async def list_of(self, method, **arguments):
        """Give all items of a page or of a stream."""
        return [item async for item in await self(method, **arguments)]

    async def helped(self, **arguments):
        """Use the helper for streams; gives its events and what it puts together of them."""
        streaming = self.client.chat.completions.stream(**_completed(CHAT, arguments))
        async with streaming as stream:
            events = [event async for event in stream]
            return events, await stream.get_final_completion()

    async def first_of(self, **arguments):
        """Read the first chunk of a stream, then hang up."""
        stream = await self(CHAT, stream=True, **arguments)
        first = await anext(aiter(stream))
        await stream.close()
        return first

    async def close(self):
        await self.client.close()


class BlockingForm:
    """The client that blocks, on a thread."""

    def __init__(self, url, **options):
        self.client = OpenAI(base_url=f"{url}/v1", max_retries=0, **options)

    async def __call__(self, method, **arguments):
        call = attrgetter(method)(self.client)
        return await asyncio.to_thread(call, **_completed(method, arguments))

    async def list_of(self, method, **arguments):
        return await asyncio.to_thread(list, await self(method, **arguments))

    async def helped(self, **arguments):
        def read():
            streaming = self.client.chat.completions.stream(**_completed(CHAT, arguments))
            with streaming as stream:
                return list(stream), stream.get_final_completion()

        return await asyncio.to_thread(read)

    async def first_of(self, **arguments):
        def read():
            with self.client.chat.completions.create(
                stream=True, **_completed(CHAT, arguments)
            ) as stream:
                return next(iter(stream))

        return await asyncio.to_thread(read)

    async def close(self):
        self.client.close()


def _completed(method, arguments):
    if method.startswith("models"):
        return arguments
    needed = {"messages": MESSAGES} if method.startswith("chat") else {"prompt": "Hello"}
    return {"model": "smollm2", **needed, **arguments}


@pytest.fixture(params=[AsyncForm, BlockingForm], ids=["async", "blocking"])
async def connect(request):
    """Make clients of a server."""
    clients = []

    def connect(served, api_key="none", **options):
        clients.append(request.param(served.url, api_key=api_key, **options))
        return clients[-1]

    yield connect
    for client in clients:
        await client.close()
