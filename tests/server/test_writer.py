"""The sink of a stream, with everything around it under control."""

import asyncio
from types import SimpleNamespace

from umbel_engine import Finish
from umbel_server import writer
from umbel_server.server import SERVER

CONNECTED = SimpleNamespace(
    transport=SimpleNamespace(is_closing=lambda: False),
    app={SERVER: SimpleNamespace(options=SimpleNamespace(sse_keep_alive_interval=0))},
)


class Events:
    """A body whose client reads when it is told to."""

    def __init__(self, http):
        self.congested = False
        self.has_begun = False
        self.read = asyncio.Event()
        self.sent = []

    async def begin(self, data):
        self.has_begun = True
        self.sent.append(data)

    def write(self, data):
        self.sent.append(data)

    async def drain(self):
        await self.read.wait()

    async def end(self, data):
        self.sent.append(data)
        return self.sent


class Sample:
    def __init__(self):
        self.index = 0
        self.finish = None
        self.pending = None

    def take(self):
        pending, self.pending = self.pending, None
        return pending


class Samples(list):
    sink = None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *error):
        return None


class Frames:
    def begin(self):
        return b""

    def item(self, position, item):
        return item

    def end(self):
        return b"."


async def turns():
    for _ in range(5):
        await asyncio.sleep(0)


async def test_an_answer_that_ends_while_its_client_is_slow_loses_nothing(monkeypatch):
    made = []
    monkeypatch.setattr(writer, "EventStream", lambda http: made.append(Events(http)) or made[0])
    sample = Sample()
    samples = Samples([sample])
    answer = asyncio.create_task(writer.stream(CONNECTED, samples, Frames()))
    await turns()

    def bring(text):
        sample.pending = (sample.pending or b"") + text
        samples.sink([sample])

    bring(b"a")
    await turns()
    (events,) = made
    events.congested = True
    bring(b"b")
    await turns()
    # The client has read, and before the answer's task gets to know, the last token comes.
    events.congested = False
    sample.finish = Finish("stop")
    bring(b"c")
    events.read.set()
    assert b"".join(await answer) == b"abc."
