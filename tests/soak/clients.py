"""The clients: they ask, read or do not, leave when they like, and count what comes of it."""

import asyncio
import contextlib
import json
from itertools import islice

from .answers import WrongAnswerError, check
from .connection import ClosedError, connect
from .counts import Counts
from .mix import ABORT, post

AT_ONCE = 64
PATIENCE = 60
"""Seconds that an answer may take; none takes that long unless something is broken."""

KEEPS_CONNECTION = 50
"""Requests after which a client takes a new connection."""

ABORT_EVERY = 0.05
MOST_PROBLEMS = 20


class Clients:
    """Many clients of one server at once."""

    def __init__(self, port, mix):
        self.counts = Counts()
        self.problems = []
        self.done = 0
        self.stuck = []
        """Connections that nobody reads from."""
        self._port = port
        self._mix = mix

    async def ask(self, number):
        """Make so many requests; gives up early when too much is wrong."""
        asks = islice(self._mix, number)
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self._ask_in_turn(asks))

    async def check_stuck(self):
        """Check that those who do not read have been cut off, and leave."""
        for ask, connection in self.stuck:
            try:
                async with asyncio.timeout(PATIENCE):
                    await connection.closed()
                if b"[DONE]" in connection.received:
                    self.problems.append(f"request {ask.number}: sent all to who does not read")
            except TimeoutError:
                self.problems.append(
                    f"request {ask.number} ({ask.kind}, {ask.path}): its client was not cut off, "
                    f"and got {len(connection.received)} bytes: {bytes(connection.received[:200])!r}"
                )
            connection.close()
        self.stuck.clear()

    async def _ask_in_turn(self, asks):
        connection = None
        for ask in asks:
            if len(self.problems) > MOST_PROBLEMS:
                break
            try:
                async with asyncio.timeout(PATIENCE):
                    connection = await getattr(self, ask.client)(ask, connection)
            except (ClosedError, WrongAnswerError, TimeoutError, OSError, ValueError) as error:
                self.problems.append(
                    f"request {ask.number} ({ask.kind}, {ask.path}): {type(error).__name__}: {error}"
                )
                if connection is not None:
                    connection.close()
                connection = None
            self.done += 1
        if connection is not None:
            connection.close()

    async def _begin(self, ask, **options):
        connection = await connect(self._port, **options)
        connection.send(ask.wire)
        return connection

    # What clients do; each gives the connection that the next request may use.

    async def read(self, ask, connection):
        if connection is None or connection.is_closed:
            connection = await connect(self._port)
        try:
            connection.send(ask.wire)
            answer = await connection.answer()
            self._read(ask, answer)
        except BaseException:
            connection.close()
            raise
        if answer.is_last or ask.number % KEEPS_CONNECTION == 0:
            connection.close()
            return None
        return connection

    async def read_and_leave(self, ask, connection):
        own = await self._begin(ask)
        try:
            self._read(ask, await own.answer())
        finally:
            own.close()
        return connection

    def _read(self, ask, answer):
        check(ask, answer)
        counts = self.counts
        counts.answered(ask.handler, answer.status)
        if ask.fails:
            # One sample has failed, so the others are aborted.
            counts.add("aborted", "abandoned", sure=ask.samples - 1)
            counts.add("logged failures", sure=answer.status == 500)
        elif ask.samples and answer.status == 200:
            counts.finished(ask.finish, ask.samples)

    async def leave_in_head(self, ask, connection):
        own = await connect(self._port)
        own.send(ask.wire[:40])
        await asyncio.sleep(ask.delay)
        own.close()
        return connection

    async def leave_in_body(self, ask, connection):
        own = await connect(self._port)
        own.send(ask.wire[:-20])
        await asyncio.sleep(ask.delay)
        own.close()
        self._left(ask, 0, 0)
        return connection

    async def leave_unanswered(self, ask, connection):
        own = await self._begin(ask)
        await asyncio.sleep(ask.delay)
        own.close()
        # It may not have come to the engine yet.
        self._left(ask, 0, ask.samples)
        return connection

    async def leave_stream(self, ask, connection):
        own = await self._begin(ask)
        await own.first_bytes()
        await asyncio.sleep(ask.delay)
        own.close()
        self._left(ask, ask.samples, 0)
        return connection

    def _left(self, ask, sure, unsure):
        self.counts.answered(ask.handler, 400)
        self.counts.add("disconnects")
        self.counts.add("aborted", "abandoned", sure=sure, unsure=unsure)

    async def leave_sometime(self, ask, connection):
        own = await self._begin(ask)
        await asyncio.sleep(ask.delay)
        own.close()
        self.counts.answered(ask.handler, 200, 400)
        self.counts.add("disconnects", sure=0, unsure=1)
        self.counts.add("aborted", "abandoned", sure=0, unsure=ask.samples)
        self.counts.add("success", ask.finish, sure=0, unsure=ask.samples)
        return connection

    async def never_read(self, ask, connection):
        self.stuck.append((ask, await self._begin(ask, reads=False)))
        self._left(ask, ask.samples, 0)
        self.counts.add("write timeouts")
        return connection

    async def abort(self, ask, connection):
        own = await self._begin(ask)
        try:
            if ask.streams:
                await own.first_bytes()
            waiting = asyncio.ensure_future(own.answer())
            try:
                while not waiting.done():
                    await self._abort(ask)
                    await asyncio.wait((waiting,), timeout=ABORT_EVERY)
                self._read(ask, waiting.result())
            finally:
                waiting.cancel()
        finally:
            own.close()
        return connection

    async def _abort(self, ask):
        connection = await connect(self._port)
        try:
            body = json.dumps({"request_ids": [ask.response_id, "unknown"]}).encode()
            connection.send(post(ABORT, body))
            answer = await connection.answer()
            if answer.status != 200:
                raise WrongAnswerError(f"the abort was answered with {answer.status}")
            self.counts.answered(ABORT, 200)
        finally:
            connection.close()


async def until(look, seconds):
    """Look until there is nothing to say; gives what is left to say after so many seconds."""
    found = await look()
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while found:
                await asyncio.sleep(0.1)
                found = await look()
    return found
