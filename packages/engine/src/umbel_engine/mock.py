"""A mock engine for tests: it lives in the test's event loop and speaks the real wire.

::

    async with (
        EngineClient(EngineOptions()) as client,
        MockEngine(lambda request: tokens(1, 2, 3)).serve(client) as engine,
    ):
        ...  # send requests through the client
        added = await engine.wait_adds(4)  # what it was asked, decoded
        await engine.wait_aborts()  # one entry per ABORT message

A script (see `umbel_engine.mock_script`) decides what each request gets.  All running requests step
together, one message per step and client, unless a script's pause holds one back.  With
`paused=True` the engine steps only when told to (`await engine.step()`) until `resume()`.  Like
the real engine it does not answer an ABORT: the request is dropped.  What no script can say goes
out by `send_outputs`, `send_stats`, `send_dead` or `send`.

Waits give up after `timeout` seconds, with what was reached.  A script that raises, or a message
that the engine cannot decode, fails every wait and `close`.
"""

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

import msgspec

from umbel_engine.client import EngineClient
from umbel_engine.mock_link import DEFAULT_READY, EngineLink
from umbel_engine.mock_record import Record, UtilityCall
from umbel_engine.mock_run import Run
from umbel_engine.mock_script import (
    MockStep,
    Script,
    child_index,
    made_up_logprobs,
    per_child,
    sampled,
    tokens,
)
from umbel_engine.reader import Reader
from umbel_engine.wire import (
    ABORT,
    ADD,
    ENGINE_CORE_DEAD,
    UTILITY,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    ReadyResponse,
    SchedulerStats,
    UtilityOutput,
    UtilityResult,
)

__all__ = [
    "DEFAULT_READY",
    "DEFAULT_UTILITIES",
    "MockEngine",
    "MockStep",
    "Script",
    "Utility",
    "UtilityCall",
    "child_index",
    "made_up_logprobs",
    "per_child",
    "sampled",
    "tokens",
]

OUTPUT_FIELDS_0_32 = 18

Utility = Callable[..., object]
"""Answers a utility call; what it raises is the failure, and an awaitable is answered when done."""

DEFAULT_UTILITIES: Mapping[str, Utility] = {
    "get_supported_tasks": lambda: ["generate"],
    "is_sleeping": lambda: False,
    "reset_prefix_cache": lambda *_: True,
}


class MockEngine(Record):
    """An engine without a model, driven by a script.

    `index` is its data-parallel rank, `ready` what it tells of itself; a version of 0.32 there
    makes it send outputs of 0.32.  `step_seconds` is the pause between two steps.  `utilities`
    are answered on top of `DEFAULT_UTILITIES`.  `log_stats` puts the QUEUED and SCHEDULED events
    on first outputs, `report_finished` puts ended and aborted ids into `finished_requests`, as
    behind a load balancer.  `clock` is the engine's monotonic clock, in seconds.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        index: int = 0,
        ready: ReadyResponse = DEFAULT_READY,
        paused: bool = False,
        step_seconds: float = 0.0,
        utilities: Mapping[str, Utility] | None = None,
        log_stats: bool = True,
        report_finished: bool = False,
        local: bool = False,
        headless: bool = True,
        clock: Callable[[], float] = time.monotonic,
        timeout: float = 10.0,
    ) -> None:
        super().__init__(timeout)
        self.script = script if script is not None else sampled()
        """Gives the steps of requests that arrive from now on; may be replaced at any time."""
        self._ready = ready
        self._paused = paused
        self._step_seconds = step_seconds
        self._utilities = {**DEFAULT_UTILITIES, **(utilities or {})}
        self._log_stats = log_stats
        self._report_finished = report_finished
        self._clock = clock
        self.weight_version: str | None = None
        """The label that messages carry of the weights that sample."""
        self._link = EngineLink(index, local, headless)
        self._readers: list[Reader] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._runs: dict[str, Run] = {}
        self._finished: dict[int, list[str]] = {}
        self._work = asyncio.Event()
        self._closed = False

    # Coming up and going away.

    @asynccontextmanager
    async def serve(self, client: EngineClient) -> AsyncIterator[Self]:
        """Connect to a client, which must expect one engine, and wait until it is ready.

        On the way out the client is closed first, so that it does not take the end for a death.
        """
        async with self._lifetime():
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self.start(client.handshake_address))
                    group.create_task(client.wait_ready())
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None
            try:
                yield self
            finally:
                client.close()

    @asynccontextmanager
    async def connect(self, handshake_address: str) -> AsyncIterator[Self]:
        """Connect to a frontend that answers by itself, in another task or process."""
        async with self._lifetime():
            await self.start(handshake_address)
            yield self

    async def start(self, handshake_address: str) -> None:
        """Go through the whole handshake; `close` is then up to the caller."""
        await self.say_hello(handshake_address)
        self.register()
        self.say_ready()

    async def say_hello(self, handshake_address: str) -> None:
        """Announce the engine and connect to the addresses of the answer."""
        answer: asyncio.Future[list[bytes]] = asyncio.get_running_loop().create_future()

        def on_answer(frames: list[bytes]) -> None:
            if not answer.done():
                answer.set_result(frames)

        self._link.say_hello(handshake_address)
        reader = Reader(self._link.handshake, on_answer)
        try:
            async with asyncio.timeout(self._timeout):
                self._link.connect(await answer)
        finally:
            reader.close()

    def register(self) -> None:
        """Send the ready response to every client and begin to serve."""
        if self._link.coordinator is not None:
            raise RuntimeError("the frontend has a coordinator, which this mock engine cannot use")
        self._link.register(self._ready)
        self._readers = [Reader(socket, self._on_message) for socket in self._link.inputs]
        self._spawn(self._step_on())

    def say_ready(self) -> None:
        """Tell the frontend that the model is loaded."""
        self._link.say_ready()

    async def close(self) -> None:
        """Go away; raises what went wrong in the engine, if anything did."""
        tasks = list(self._tasks)
        self.kill()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._check()

    def kill(self) -> None:
        """Vanish at once, like a process that was killed."""
        if self._closed:
            return
        self._closed = True
        for reader in self._readers:
            reader.close()
        for task in self._tasks:
            task.cancel()
        self._link.close()

    @asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        try:
            yield
        except BaseException:
            # The first error is the one that counts.
            with suppress(Exception):
                await self.close()
            raise
        await self.close()

    @property
    def index(self) -> int:
        """The engine's data-parallel rank."""
        return self._link.index

    @property
    def running(self) -> list[str]:
        """The ids of the requests that have neither ended nor been aborted."""
        return list(self._runs)

    async def wait_idle(self) -> None:
        """Wait until no request is running."""
        await self._wait_for(lambda: -len(self._runs), 0, "running requests")

    # What it answers.

    async def step(self) -> None:
        """Make one step: send the next piece of every request that is not held back.

        Waits until there is one.  Meant for an engine that is paused.
        """
        async with asyncio.timeout(self._timeout):
            await self._step()

    def pause(self) -> None:
        """Step no more by itself."""
        self._paused = True

    def resume(self) -> None:
        """Step by itself from now on."""
        self._paused = False
        self._work.set()

    def send(self, frames: Sequence[bytes], client_index: int = 0) -> None:
        """Send frames as they are to a client's output socket."""
        self._link.send(client_index, frames)

    def send_outputs(self, *outputs: EngineCoreOutput, client_index: int = 0) -> None:
        """Send a message with these outputs, whether or not such requests are running."""
        self._send_message(client_index, EngineCoreOutputs(outputs=list(outputs)))

    def send_stats(self, stats: SchedulerStats, client_index: int = 0) -> None:
        """Send a message with statistics of the scheduler alone."""
        self._send_message(client_index, EngineCoreOutputs(scheduler_stats=stats))

    def send_dead(self) -> None:
        """Tell every client that the engine core has died."""
        for client_index in range(len(self._link.outputs)):
            self.send((ENGINE_CORE_DEAD,), client_index)

    # Stepping.

    async def _step_on(self) -> None:
        while True:
            while self._paused:
                self._work.clear()
                await self._work.wait()
            await self._step(by_itself=True)
            await asyncio.sleep(self._step_seconds)

    async def _step(self, by_itself: bool = False) -> None:
        while True:
            self._work.clear()
            if not (by_itself and self._paused):
                batch = [(run, step) for run in self._runs.values() if (step := run.take())]
                if batch:
                    break
            await self._work.wait()
        self._send_batch(batch)
        self._notify()

    def _send_batch(self, batch: Sequence[tuple[Run, MockStep]]) -> None:
        by_client: dict[int, list[tuple[Run, MockStep]]] = {}
        for run, step in batch:
            by_client.setdefault(run.request.client_index, []).append((run, step))
        for client_index, pairs in by_client.items():
            now = self._clock()
            frames: list[bytes] = []
            outputs = [run.output(step, frames, now, self._log_stats) for run, step in pairs]
            for run, step in pairs:
                if step.reason is not None:
                    self._drop(run.request.request_id)
            finished = self._finished.pop(client_index, None)
            message = EngineCoreOutputs(outputs=outputs, finished_requests=finished)
            self._send_message(client_index, message, frames)

    def _send_message(
        self, client_index: int, message: EngineCoreOutputs, frames: Sequence[bytes] = ()
    ) -> None:
        index, now = self._link.index, self._clock()
        message = msgspec.structs.replace(
            message, engine_index=index, timestamp=now, weight_version=self.weight_version
        )
        fields = list(msgspec.structs.astuple(message))
        if self._ready.vllm_version.startswith("0.32"):
            fields[1] = [
                msgspec.structs.astuple(output)[:OUTPUT_FIELDS_0_32] for output in message.outputs
            ]
        self.send((msgspec.msgpack.encode(fields), *frames), client_index)

    def _drop(self, request_id: str) -> None:
        run = self._runs.pop(request_id, None)
        if run is not None:
            run.close()
            if self._report_finished:
                self._finished.setdefault(run.request.client_index, []).append(request_id)

    # Requests.

    def _on_message(self, frames: list[bytes]) -> None:
        try:
            kind, *payload = frames
            if kind == ADD:
                self._on_add(payload)
            elif kind == ABORT:
                self.aborts.append(msgspec.msgpack.decode(payload[0], type=list[str]))
                for request_id in self.aborts[-1]:
                    self._drop(request_id)
            elif kind == UTILITY:
                self.utilities.append(msgspec.msgpack.decode(payload[0], type=UtilityCall))
                self._answer(self.utilities[-1])
            else:
                raise ValueError(f"a request of unknown type {kind!r}")
        except Exception as error:
            self._fail(error)
        self._notify()

    def _on_add(self, payload: list[bytes]) -> None:
        request = msgspec.msgpack.decode(payload[0], type=EngineCoreRequest)
        self.adds.append(request)
        self.add_frames.append(payload)
        self._runs[request.request_id] = Run(
            request, self.script, self._clock(), self._work.set, self._spawn
        )
        self._work.set()

    def _answer(self, call: UtilityCall) -> None:
        def reply(failure: str | None, value: object) -> None:
            result = None if failure is not None else UtilityResult(None, value)
            output = UtilityOutput(call.call_id, failure, result)
            self._send_message(call.client_index, EngineCoreOutputs(utility_output=output))

        def refuse(error: Exception) -> None:
            reply(f"Call to {call.method} method failed: {error}", None)

        async def answer_later(value: Awaitable[object]) -> None:
            try:
                reply(None, await value)
            except Exception as error:
                refuse(error)

        try:
            if call.method not in self._utilities:
                raise AttributeError(f"'EngineCoreProc' object has no attribute '{call.method}'")
            value = self._utilities[call.method](*call.arguments)
        except Exception as error:
            refuse(error)
            return
        if inspect.isawaitable(value):
            self._spawn(answer_later(value))
        else:
            reply(None, value)

    def _spawn(self, work: Coroutine[object, object, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self._fail(error)
