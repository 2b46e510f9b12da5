"""Sends the rows of a table to a server and steps the engine behind it.

The engine makes a step only after the server has handled the one before, so that what comes
together is the same on every run: another request is running next to that of the row, and has its
token of every step behind those of the row.
"""

import asyncio
from contextlib import asynccontextmanager

import aiohttp

from umbel_engine.mock import MockStep, child_index

from .engine import prompt_index
from .observed import Answer, normal_headers, normal_text, wire_of
from .servers import KEY, MODEL_NAMES

ANSWERED_WITHIN = 20
"""Seconds for a row."""

PACE_PROMPT = [300, 300, 301, 301, 302]
PACE = {"model": MODEL_NAMES[0], "prompt": PACE_PROMPT, "stream": True}
"""What sets the pace: a prompt that no row has."""


class RowError(Exception):
    """Report a row that got no answer."""


class Driver:
    """Asks one server."""

    def __init__(self, base, engine, session):
        self._base = base
        self._engine = engine
        self._session = session

    @classmethod
    @asynccontextmanager
    async def connect(cls, base, engine):
        timeout = aiohttp.ClientTimeout(total=None)
        # vLLM hangs up after some errors, which must be no concern of the next row.
        connector = aiohttp.TCPConnector(force_close=True)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as session:
            yield cls(base, engine, session)

    async def ask(self, row):
        """Give what is observed of a row; raises RowError when there is nothing in time."""
        seen = len(self._engine.adds), len(self._engine.aborts)
        request = asyncio.create_task(self._request(row))
        try:
            async with asyncio.timeout(ANSWERED_WITHIN):
                await self._serve(row, request, seen[0])
                status, headers, text = await request
                await self._settle()
        except TimeoutError:
            raise RowError(f"{row.name}: {self._state(row, request, seen[0])}") from None
        finally:
            request.cancel()
            await asyncio.wait((request,))
        adds = [self._engine.adds[i] for i in range(seen[0], len(self._engine.adds))]
        pairs = zip(adds, self._engine.add_frames[seen[0] :], strict=True)
        # Several prompts may come in any order.
        ordered = sorted(pairs, key=lambda pair: (prompt_index(pair[0]), child_index(pair[0])))
        wire = [wire_of(frames[0]) for add, frames in ordered if not is_pace(add)]
        names = {add.request_id: name_of(add) for add in adds}
        aborted = sorted(
            names[request_id]
            for message in self._engine.aborts[seen[1] :]
            for request_id in message
            if request_id in names
        )
        return Answer(status, headers, normal_text(text, headers), wire, aborted)

    async def _serve(self, row, request, seen):
        """See the request of a row through, which may be answered without the engine."""
        self._engine.answer(row.says, row.n)
        self._engine.weight_version = row.weight_version
        # One that is to be refused may not be.
        expected = seen + max(1, row.samples)
        all_here = asyncio.create_task(self._engine.wait_adds(expected))
        await asyncio.wait((request, all_here), return_when=asyncio.FIRST_COMPLETED)
        all_here.cancel()
        if not request.done():
            await self._step_on(request)

    async def _step_on(self, request):
        """Step until the request of the row is answered."""
        done = False
        answer = self._engine.script

        def script(request):
            # A sample of the row may come late.
            return pace() if is_pace(request) else answer(request)

        def pace():
            while not done:
                yield MockStep(token_ids=(300,))
            yield MockStep(token_ids=(300,), finish="length")

        self._engine.script = script
        seen = len(self._engine.adds)
        headers = {"Authorization": f"Bearer {KEY}"}
        posted = asyncio.create_task(
            self._session.post(f"{self._base}/v1/completions", json=PACE, headers=headers)
        )
        while not any(map(is_pace, self._engine.adds[seen:])):
            await self._engine.wait_adds(len(self._engine.adds) + 1)
        await self._engine.step()
        async with await posted as response:
            while True:
                line = await response.content.readline()
                while not line.startswith(b"data: "):
                    line = await response.content.readline()
                if line == b"data: [DONE]\n":
                    return
                if done:
                    continue
                # What the row's last step brought may be on its way.
                if not self._rest():
                    await asyncio.wait((request,), timeout=5)
                done = request.done()
                await self._take_turns()
                await self._engine.step()

    async def _take_turns(self):
        """Give the server time for what takes a turn or two more than the pace, like headers."""
        async with self._session.get(f"{self._base}/ping"):
            pass

    def _rest(self):
        """Give the running requests of the row."""
        running = set(self._engine.running)
        return [add for add in self._engine.adds if add.request_id in running and not is_pace(add)]

    async def _settle(self):
        """Wait until what the row left running has been aborted."""
        while self._rest():
            await self._engine.wait_aborts(len(self._engine.aborts) + 1)

    async def _request(self, row):
        async with self._session.request(
            row.method,
            self._base + row.path,
            data=row.content,
            headers=row.headers,
            allow_redirects=False,
            skip_auto_headers=("Content-Type",),
        ) as response:
            text = (await response.read()).decode()
            return response.status, normal_headers(response.headers), text

    def _state(self, row, request, seen):
        came = [add for add in self._engine.adds[seen:] if not is_pace(add)]
        return (
            f"{'an' if request.done() else 'no'} answer after {ANSWERED_WITHIN} s; "
            f"{len(came)} of {row.samples} samples came to the engine, "
            f"{len(self._rest())} are running"
        )


def is_pace(add):
    """Tell whether a request is the one that sets the pace."""
    return add.prompt_token_ids == PACE_PROMPT


def name_of(add):
    return f"{prompt_index(add)}.{child_index(add)}"
