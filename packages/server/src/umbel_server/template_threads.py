"""The threads of requests that bring a chat template of their own.

Such a request takes another process, and as long as that may.  It has threads of its kind alone, so
that others, whose prompts are merely long, never wait behind it.
"""

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from aiohttp import web

from umbel_server.watch import watched

ResultT = TypeVar("ResultT")


class TemplateThreads:
    """A few threads, none of them started before it is needed."""

    def __init__(self, count: int) -> None:
        self._executor = ThreadPoolExecutor(count, "chat-template")

    async def run(self, http: web.Request, work: Callable[[], ResultT]) -> ResultT:
        """Do some work for a request when its turn comes, or never if its client goes before."""
        loop = asyncio.get_running_loop()
        result: asyncio.Future[ResultT] = loop.create_future()

        def hand_over(job: Future[ResultT]) -> None:
            # A server that stops does not wait for this, and its loop may be closed by now.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(_hand_over, job, result)

        job = self._executor.submit(work)
        job.add_done_callback(hand_over)
        try:
            return await watched(http, result)
        finally:
            job.cancel()

    def close(self) -> None:
        """Let go of the threads; what still runs ends by its own limits."""
        self._executor.shutdown(wait=False, cancel_futures=True)


def _hand_over(job: Future[ResultT], result: "asyncio.Future[ResultT]") -> None:
    # The client may have gone.
    if result.done() or job.cancelled():
        return
    if (error := job.exception()) is not None:
        result.set_exception(error)
    else:
        result.set_result(job.result())
