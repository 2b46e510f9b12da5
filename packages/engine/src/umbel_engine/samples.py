"""Samples: one stream per sample, one sink per group of siblings.

A sample collects what arrives for it in one pending item, whether or not anyone reads.  A group of
siblings hands over through one sink, a plain callback that fires once per drain of the engine's
socket with the samples that became ready.  Without a sink, samples are read by async iteration.
"""

import asyncio
import logging
import warnings
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from types import TracebackType
from typing import Generic, NamedTuple, Protocol, Self, TypeVar, overload

from umbel_engine.errors import EngineError
from umbel_engine.fault_log import log_fault
from umbel_engine.messages import ABORTED, Finish, Stage, Step
from umbel_engine.wire import EncodedRequest, EngineCoreOutput, EngineCoreRequest

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

SENDS_PER_TURN = 64
"""How many children are sent before other work of the event loop gets its turn."""


class Child(NamedTuple):
    """What one engine request of a fan-out has of its own."""

    request_id: str
    seed: int | None


class Receiver(Protocol):
    """What the client knows of a sample: where its outputs go, and where it was sent."""

    request_id: str
    engine: bytes | None
    finish: Finish | None

    def feed(self, output: EngineCoreOutput, step: Step) -> None: ...

    def end(self, finish: Finish) -> None: ...


class Wakeable(Protocol):
    """Something that hands over when the current drain is done."""

    def fire(self) -> None: ...


class Submitter(Protocol):
    """The client that samples are sent through."""

    def register(self, receiver: Receiver) -> None:
        """Route outputs with the receiver's request id to it; raises when the engines are dead."""

    def send(self, receiver: Receiver, payload: bytes, rank: int | None) -> None:
        """Send the ADD of a registered receiver to an engine."""

    def abort(self, receivers: Sequence[Receiver]) -> None:
        """Take receivers off the tables and tell their engines with the next batch of aborts."""

    def wake(self, group: Wakeable) -> None:
        """Let the group hand over at the end of this drain, or in the loop's next turn."""


class Sample(Generic[ItemT]):
    """The stream of one engine request.

    Read it with `async for`, or with `take` from the sink of its group.
    """

    __slots__ = (
        "_group",
        "_has_pending",
        "_interval",
        "_is_ready",
        "_stage",
        "_tokens_since_ready",
        "_waiter",
        "engine",
        "finish",
        "index",
        "request_id",
    )

    def __init__(self, request_id: str, stage: Stage[ItemT], interval: int | None) -> None:
        self.request_id = request_id
        self.index = 0
        """Where the sample stands among those of its group."""
        self.finish: Finish | None = None
        """How the sample ended; None while it runs."""
        self.engine: bytes | None = None
        """The identity of the engine that it was sent to."""
        self._stage = stage
        self._interval = interval
        # The first token is always worth a hand-over (vllm/v1/engine/output_processor.py).
        self._tokens_since_ready = interval or 0
        self._has_pending = False
        self._is_ready = False
        self._waiter: asyncio.Future[None] | None = None
        self._group: Group[ItemT]

    def take(self) -> ItemT | None:
        """Give the pending item and clear it, without waiting; None when nothing is pending."""
        if not self._has_pending:
            return None
        self._has_pending = self._is_ready = False
        return self._stage.take()

    def take_due(self) -> ItemT | None:
        """Give the pending item if it is worth a hand-over; None while it is not."""
        return self.take() if self._is_ready or self.finish is not None else None

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ItemT:
        while (item := self.take_due()) is None:
            if self.finish is not None:
                raise StopAsyncIteration
            if self._waiter is not None:
                raise RuntimeError("this sample is already being read")
            self._group.check_no_sink()
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return item

    def feed(self, output: EngineCoreOutput, step: Step) -> None:
        """Take in an engine output; called by the client for every output of a message."""
        try:
            self.finish = self._stage.feed(output, step)
        except Exception as error:
            log_fault(
                logger, error, "request %s: its output could not be processed", self.request_id
            )
            self._end(Finish("error", error=EngineError(f"output could not be processed: {error}")))
            return
        self._has_pending = True
        if self.finish is not None:
            self._group.add_finished(self)
        elif self._interval is not None and output.new_token_ids:
            self._tokens_since_ready += len(output.new_token_ids)
            if self._tokens_since_ready >= self._interval:
                self._tokens_since_ready = 0
                # One that is ready and was not taken yet has been announced already.
                if not self._is_ready:
                    self._is_ready = True
                    self._group.add_ready(self)

    def end(self, finish: Finish) -> None:
        """End the sample from this side; called by the client when an engine is gone."""
        if self.finish is None:
            self._end(finish)

    def _end(self, finish: Finish) -> None:
        self.finish = finish
        self._has_pending = True
        self._stage.end(finish)
        self._group.add_finished(self)

    def wake_waiter(self) -> None:
        """Wake the task that awaits the next item, if there is one."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


Sink = Callable[[list[Sample[ItemT]]], None]
"""Takes the samples of a group that became ready; called from the event loop, once per drain.

A sample may have nothing to take when it comes to its turn.
"""


class Group(Generic[ItemT]):
    """What the samples of one `Samples` share; owned by it."""

    __slots__ = (
        "_done",
        "_ready",
        "_submitter",
        "error",
        "has_news",
        "parts",
        "samples",
        "sink",
        "unfinished",
        "waiter",
    )

    def __init__(self, submitter: Submitter, fanouts: "Sequence[Fanout[ItemT]]") -> None:
        self.samples: list[Sample[ItemT]] = []
        """Those that have been made so far; they are when they are sent."""
        self.sink: Sink[ItemT] | None = None
        self.waiter: asyncio.Future[None] | None = None
        self.unfinished = 0
        for fanout in fanouts:
            self.unfinished += len(fanout.children)
        self.error: Exception | None = None
        self.has_news = False
        """Whether something has become ready since the flag was taken down."""
        self.parts = [OpenFanout(fanout, self, submitter) for fanout in fanouts]
        self._submitter = submitter
        self._ready: list[Sample[ItemT]] = []
        self._done: asyncio.Future[None] | None = None

    def add(self, sample: Sample[ItemT]) -> None:
        """Take in a sample that has just been made."""
        sample.index = len(self.samples)
        sample._group = self
        self.samples.append(sample)

    def add_ready(self, sample: Sample[ItemT]) -> None:
        """Hand the sample over with the next firing of the sink."""
        if not self._ready:
            self._submitter.wake(self)
        self._ready.append(sample)

    def add_finished(self, sample: Sample[ItemT]) -> None:
        """Hand over the end of a sample."""
        self.unfinished -= 1
        self.add_ready(sample)

    def check_no_sink(self) -> None:
        """Raise when the group is not to be read by iteration."""
        if self.sink is not None:
            raise RuntimeError("these samples have a sink, which takes their items")

    def fire(self) -> None:
        """Hand over the ready samples; a sink that fails, fails this group alone."""
        ready, self._ready = self._ready, []
        if self.sink is not None:
            try:
                self.sink(ready)
            except Exception as error:
                log_fault(logger, error, "a sink failed; its samples are aborted")
                self._fail(error)
        else:
            self.has_news = True
            for sample in ready:
                sample.wake_waiter()
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
        if self._done is not None and self.unfinished == 0 and not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        self.error = error
        self.sink = None
        self.abort()

    def abort(self) -> int:
        """End every sample that runs, or is yet to be sent, with "abort"; gives their number."""
        return sum(part.abort() for part in self.parts)

    def close(self) -> None:
        """Abort what still runs, and let go of each other.

        So all of it is freed at once, and need not wait for the garbage collector.
        """
        self.sink = None
        for part in self.parts:
            part.close()
        self.parts = []
        for sample in self.samples:
            # It has ended, and has nothing more to announce.
            del sample._group

    async def wait(self) -> None:
        """Wait until every sample has been handed over to its end; raises the sink's error."""
        if self.unfinished or self._ready:
            if self._done is None:
                self._done = asyncio.get_running_loop().create_future()
            await asyncio.shield(self._done)
        if self.error is not None:
            raise self.error


class Fanout(NamedTuple, Generic[ItemT]):
    """One request and its children, as they will be sent.

    `new_stage` makes the stage of a child when its turn to be sent has come.  A sample is handed
    over every `interval` tokens, or, with None, only at its end.  `on_open` is called once, before
    the first child is sent, and may refuse them all by raising; it is told whether this is the
    first fan-out of those that are sent together.  `on_close` is called once after that, when
    nothing runs any more.
    """

    request: EngineCoreRequest
    children: Sequence[Child]
    new_stage: Callable[[Child], Stage[ItemT]]
    interval: int | None
    on_open: "Callable[[OpenFanout[ItemT], bool], None]" = lambda fanout, is_first: None
    on_close: Callable[[], None] = lambda: None


class OpenFanout(Generic[ItemT]):
    """A fan-out whose samples are being sent, or run.

    Children are made one by one, on their turn to be sent: a thousand at once would stall
    everything else.
    """

    __slots__ = ("_fanout", "_group", "_is_aborted", "_is_open", "_samples", "_submitter")

    def __init__(self, fanout: Fanout[ItemT], group: Group[ItemT], submitter: Submitter) -> None:
        self._fanout = fanout
        self._group = group
        self._submitter = submitter
        self._samples: list[Sample[ItemT]] = []
        self._is_open = False
        self._is_aborted = False

    @property
    def fanout(self) -> Fanout[ItemT]:
        """What is sent."""
        return self._fanout

    def open(self, is_first: bool) -> None:
        """Tell whoever made the fan-out that its children are about to be sent."""
        self._fanout.on_open(self, is_first)
        self._is_open = True

    def send(self) -> Iterator[None]:
        """Send the children, one with each step of the iterator."""
        fanout, group, submitter = self._fanout, self._group, self._submitter
        encoded = EncodedRequest(fanout.request)
        rank = fanout.request.data_parallel_rank
        for child in fanout.children:
            sample = Sample(child.request_id, fanout.new_stage(child), fanout.interval)
            group.add(sample)
            self._samples.append(sample)
            if self._is_aborted:
                sample.end(ABORTED)
            else:
                submitter.register(sample)
                submitter.send(sample, encoded.payload(child.request_id, child.seed), rank)
            yield

    def abort(self) -> int:
        """End every child that runs, or is yet to be sent, with "abort"; gives their number."""
        if not self._is_open or self._is_aborted:
            return 0
        self._is_aborted = True
        running = [sample for sample in self._samples if sample.finish is None]
        self._submitter.abort(running)
        for sample in running:
            sample.end(ABORTED)
        return len(running) + len(self._fanout.children) - len(self._samples)

    def close(self) -> None:
        """Abort what still runs and let go of the fan-out."""
        if self._is_open:
            self.abort()
            self._is_open = False
            self._fanout.on_close()


class Samples(Generic[ItemT]):
    """The streams of one or several fan-outs, in index order.

    Nothing is sent before `async with samples:` is entered, and there are no samples to read before
    that; on the way out, however it is left, whatever still runs is aborted.
    """

    def __init__(self, submitter: Submitter, fanouts: Sequence[Fanout[ItemT]]) -> None:
        self._submitter = submitter
        self._group = Group(submitter, fanouts)
        self._count = self._group.unfinished
        self._state = "new"

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> Sample[ItemT]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Sample[ItemT]]: ...

    def __getitem__(self, index: int | slice) -> Sample[ItemT] | Sequence[Sample[ItemT]]:
        return self._group.samples[index]

    def __iter__(self) -> Iterator[Sample[ItemT]]:
        return iter(self._group.samples)

    @property
    def sink(self) -> Sink[ItemT] | None:
        """The callback that takes ready samples; None when they are read by iteration."""
        return self._group.sink

    @sink.setter
    def sink(self, sink: Sink[ItemT] | None) -> None:
        self._group.sink = sink

    @property
    def error(self) -> BaseException | None:
        """What the sink raised, if it did."""
        return self._group.error

    async def __aiter__(self) -> AsyncIterator[tuple[int, ItemT]]:
        """Iterate over (index, item) of all samples as they come; in index order what came at once."""
        group = self._group
        group.check_no_sink()
        while True:
            group.has_news = False
            last = group.unfinished == 0
            for index, sample in enumerate(group.samples):
                if (item := sample.take_due()) is not None:
                    yield index, item
            if last:
                return
            if group.has_news:
                continue  # it came while the reader was busy with an item
            if group.waiter is not None:
                raise RuntimeError("these samples are already being read")
            group.waiter = asyncio.get_running_loop().create_future()
            try:
                await group.waiter
            finally:
                group.waiter = None

    async def finished(self) -> None:
        """Wait until the last finish has been handed over; raises what the sink raised."""
        await self._group.wait()

    async def __aenter__(self) -> Self:
        if self._state != "new":
            raise RuntimeError("samples can be entered once")
        self._state = "open"
        try:
            await self._send()
        except BaseException:
            self.close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    async def _send(self) -> None:
        parts = self._group.parts
        for part in parts:
            part.open(is_first=part is parts[0])
        sent = 0
        for part in parts:
            for _ in part.send():
                sent += 1
                if sent % SENDS_PER_TURN == 0:
                    await asyncio.sleep(0)

    def abort(self) -> int:
        """End every unfinished sample with the reason "abort"; gives their number.

        Their reader gets that finish.
        """
        return self._group.abort()

    def close(self) -> None:
        """Abort what still runs and end the hand-over; also done by leaving `async with`."""
        if self._state == "open":
            self._group.close()
        self._state = "closed"

    def merge_into(self) -> "Sequence[Fanout[ItemT]]":
        """Give up the fan-outs to a group that is being merged from this one."""
        if self._state != "new":
            raise RuntimeError("only samples that were not entered yet can be merged")
        self._state = "merged"
        fanouts = [part.fanout for part in self._group.parts]
        self._group.close()
        return fanouts

    def __del__(self) -> None:
        if getattr(self, "_state", "new") == "open":
            warnings.warn(
                "samples were dropped without being closed", ResourceWarning, stacklevel=1
            )
            self.close()


def merge(*groups: Samples[ItemT]) -> Samples[ItemT]:
    """Join groups into one, with one sink and one lifecycle, in the order given.

    Raises ValueError for no groups and for groups of different clients.
    """
    if len({id(group._submitter) for group in groups}) != 1:
        raise ValueError("only groups of one client can be merged, and at least one")
    first = groups[0]
    fanouts = [fanout for group in groups for fanout in group.merge_into()]
    return Samples(first._submitter, fanouts)
