"""The client of engine cores: its sockets, its tables, its way of dying."""

import asyncio
import itertools
import logging
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from umbel_engine.errors import EngineDeadError, EngineStartError, UtilityError
from umbel_engine.fault_log import log_fault
from umbel_engine.greeter import EngineGreeter
from umbel_engine.handshake import Part, Registrations, perform
from umbel_engine.messages import ABORTED, Finish, Step
from umbel_engine.reader import Reader
from umbel_engine.routing import Engine, Routing
from umbel_engine.samples import Fanout, Receiver, Samples, Wakeable
from umbel_engine.sockets import bind, endpoint, open_socket
from umbel_engine.stall import StallWatch
from umbel_engine.wire import (
    ABORT,
    ADD,
    ENGINE_CORE_DEAD,
    UNDECODABLE,
    UTILITY,
    Addresses,
    EngineCoreOutputs,
    SchedulerStats,
    UtilityOutput,
)

logger = logging.getLogger(__name__)

ItemT = TypeVar("ItemT")

# As plain numbers: zmq's own are enumerations, which take microseconds to combine.
LAST_PART = int(zmq.NOBLOCK)
MORE_PARTS = int(zmq.NOBLOCK | zmq.SNDMORE)

WILDCARDS = frozenset({"0.0.0.0", "*", "[::]"})  # noqa: S104
"""Hosts that one can listen on and nobody can connect to."""

LAST_WORDS_WITHIN = 0.5
"""Seconds that are left to read what an engine said before it closed its connection, and to learn
how it ended from whoever runs it."""

StepListener = Callable[[EngineCoreOutputs, Step], None]
"""Sees every message of an engine before its outputs are handed to their samples."""


class EngineOptions(msgspec.Struct, frozen=True):
    """How engines are found.

    `handshake_address` is `tcp://host:port` (port 0 or `*` for a free one) or `ipc://path`.
    With `local_engines`, requests and outputs travel over ipc whatever the handshake uses.
    `ready_timeout` is in seconds.  With a `stall_timeout`, in seconds too, engines that neither say
    anything nor answer a ping for that long are given up.  Of `client_count` clients that share the engines this is the one
    with `client_index`; with more than one, somebody else shakes hands (`EngineGreeter`).
    """

    handshake_address: str = "tcp://127.0.0.1:0"
    engine_count: int = 1
    local_engines: bool = False
    ready_timeout: float = 600.0
    stall_timeout: float | None = None
    client_index: int = 0
    client_count: int = 1


class EngineClient:
    """A connection to one or more engine cores.

    It binds its sockets when it is made, so that engines can be started with
    `handshake_address`; `wait_ready` returns when they are there.  It belongs to the event loop
    that it was made in.  Use it with `async with`, or call `close`.
    """

    def __init__(self, options: EngineOptions) -> None:
        self._options = options
        self.index = options.client_index
        """Which of the clients that share the engines this is; a request has to say so."""
        self._loop = asyncio.get_running_loop()
        self._context = zmq.Context()
        self._directory: tempfile.TemporaryDirectory[str] | None = None
        self._readers: list[Reader] = []
        self._input_reader: Reader | None = None
        self._routing: Routing | None = None
        self._receivers: dict[str, Receiver] = {}
        self._calls: dict[int, asyncio.Future[object]] = {}
        self._call_ids = itertools.count(1)
        self._woken: list[Wakeable] = []
        self._aborts: dict[bytes, list[str]] = {}
        self._draining = False
        self._flush_scheduled = False
        self._closed = False
        self._ended = False
        self._last_words: asyncio.TimerHandle | None = None
        self._stall_watch: StallWatch | None = None
        self._peers: set[int] = set()
        self._decoder = msgspec.msgpack.Decoder(EngineCoreOutputs)
        self.step_listener: StepListener | None = None
        self.error: EngineDeadError | None = None
        """Why no request can be served any more; None while the engines live."""
        self.aborted_samples = {"stop_string": 0, "abandoned": 0}
        """How many samples engines were told to abort: their text was complete, or nobody waited
        for it any more."""
        self._death: asyncio.Future[EngineDeadError] = self._loop.create_future()
        try:
            self._bind()
        except BaseException:
            self.close()
            raise

    def _bind(self) -> None:
        options = self._options
        address = options.handshake_address
        self._greeter: EngineGreeter | None = None
        if options.client_count == 1:
            self._greeter = EngineGreeter(address, options.engine_count, self._context)
        self._input_socket = open_socket(self._context, zmq.ROUTER, self._data_address)
        self._output_socket = open_socket(self._context, zmq.PULL, self._data_address)
        # Without it, what is sent to an engine that is gone vanishes.
        self._input_socket.router_mandatory = True
        self._monitor_socket = self._input_socket.get_monitor_socket(
            zmq.EVENT_ACCEPTED | zmq.EVENT_DISCONNECTED
        )
        self._monitor_reader = Reader(self._monitor_socket, self._on_monitor)
        self._readers.append(self._monitor_reader)
        self._bind_data_sockets()

    @property
    def handshake_address(self) -> str:
        """Where engines are to say HELLO, with the real port."""
        assert self._greeter is not None, "engines are shared, and greeted by somebody else"
        return self._greeter.handshake_address

    @property
    def addresses(self) -> Addresses:
        """Where engines find this client."""
        return Addresses([endpoint(self._input_socket)], [endpoint(self._output_socket)])

    @property
    def _data_address(self) -> str:
        """What requests and outputs travel over: the transport, and the host if it has one."""
        return "ipc://" if self._options.local_engines else self._options.handshake_address

    def _bind_data_sockets(self) -> None:
        address = self._data_address
        if address.startswith("ipc://"):
            self._directory = tempfile.TemporaryDirectory(prefix="umbel-")
            for name, socket in (("input", self._input_socket), ("output", self._output_socket)):
                bind(socket, f"ipc://{Path(self._directory.name) / name}")
            return
        host = address.removeprefix("tcp://").rpartition(":")[0]
        if host in WILDCARDS:
            raise EngineStartError(
                f"engines are told to connect to {host}, which is no address to connect to; give the "
                "one under which they reach this host"
            )
        bind(self._input_socket, f"tcp://{host}:0")
        bind(self._output_socket, f"tcp://{host}:0")

    async def wait_ready(self) -> None:
        """Wait for the engines; raises EngineStartError, which says how far they came."""
        options = self._options
        registrations = Registrations(options.engine_count)
        parts = [Part(registrations, self._input_socket)]
        if self._greeter is not None:
            parts.insert(0, self._greeter.part(self.addresses))
        await self._unless_closed(perform(parts, options.ready_timeout, self._readers))
        # Who is connected by now is an engine; who comes later is not.
        self._monitor_reader.drain()
        self._routing = Routing(registrations.engines, options.client_index, options.client_count)
        self._input_reader = Reader(self._input_socket, self._on_registration)
        output_reader = Reader(self._output_socket, self._on_output, self._on_drained)
        self._readers += (self._input_reader, output_reader)
        if options.stall_timeout is not None:
            self._stall_watch = StallWatch(
                self._routing.engines, options.stall_timeout, self._ping, self._on_stall
            )

    async def _unless_closed(self, work: Coroutine[object, object, ItemT]) -> ItemT:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._death), return_when=asyncio.FIRST_COMPLETED)
            if self.error is not None:
                raise EngineStartError(*self.error.args)
            return await task
        finally:
            if task.cancel():
                await asyncio.wait((task,))

    @property
    def engines(self) -> Sequence[Engine]:
        """The connected engines, in rank order; empty before they are ready."""
        return self._routing.engines if self._routing is not None else ()

    @property
    def max_model_len(self) -> int:
        """The longest prompt plus output, in tokens, that every engine takes."""
        return min(engine.ready.max_model_len for engine in self._ready_routing().engines)

    @property
    def in_flight(self) -> int:
        """How many samples are registered."""
        return len(self._receivers)

    @property
    def calls_in_flight(self) -> int:
        """How many utility calls of engines are not answered yet."""
        return len(self._calls)

    async def died(self) -> EngineDeadError:
        """Wait until the engines are gone, and tell why."""
        return await asyncio.shield(self._death)

    def check_alive(self) -> None:
        """Raise EngineDeadError when the engines are gone."""
        if self.error is not None:
            raise EngineDeadError(*self.error.args)

    def check_rank(self, rank: int | None) -> None:
        """Raise InvalidRankError when no engine has this data-parallel rank."""
        self._ready_routing().check_rank(rank)

    def fan_out(self, fanout: Fanout[ItemT]) -> Samples[ItemT]:
        """Prepare the samples of a request; nothing is made or sent before they are entered."""
        if fanout.request.client_index != self.index:
            # The engine answers to the client that a request names.
            request = msgspec.structs.replace(fanout.request, client_index=self.index)
            fanout = fanout._replace(request=request)
        return Samples(self, [fanout])

    # What samples need of their client (umbel_engine.samples.Submitter).

    def register(self, receiver: Receiver) -> None:
        self.check_alive()
        if receiver.request_id in self._receivers:
            raise ValueError(f"request id {receiver.request_id!r} is already in use")
        self._receivers[receiver.request_id] = receiver

    def send(self, receiver: Receiver, payload: bytes, rank: int | None) -> None:
        self.check_alive()
        engine = self._ready_routing().pick(rank)
        receiver.engine = engine.identity
        self._send(engine.identity, ADD, payload)

    def abort(self, receivers: Sequence[Receiver]) -> None:
        for receiver in receivers:
            self._forget(receiver)
            if receiver.engine is not None and self.error is None:
                finish = receiver.finish
                is_complete = finish is not None and finish.error is None
                self.aborted_samples["stop_string" if is_complete else "abandoned"] += 1
                self._aborts.setdefault(receiver.engine, []).append(receiver.request_id)
        self._schedule_flush()

    def wake(self, group: Wakeable) -> None:
        self._woken.append(group)
        if not self._draining:
            self._schedule_flush()

    def update_stats(self, engine_index: int, stats: SchedulerStats) -> None:
        """Take over what an engine's scheduler told another client that shares it."""
        self._ready_routing().update(engine_index, stats)

    async def call(self, method: str, *arguments: object) -> list[object]:
        """Call a utility method on every engine; gives the results in rank order.

        Raises UtilityError with the first failure, after every engine has answered.
        """
        self.check_alive()
        futures: dict[int, asyncio.Future[object]] = {}
        try:
            for engine in self._ready_routing().engines:
                call_id = next(self._call_ids)
                futures[call_id] = self._calls[call_id] = self._loop.create_future()
                payload = msgspec.msgpack.encode((self.index, call_id, method, arguments))
                self._send(engine.identity, UTILITY, payload)
            results = await asyncio.gather(*futures.values(), return_exceptions=True)
        finally:
            for call_id in futures:
                self._calls.pop(call_id, None)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def die(self, error: EngineDeadError) -> None:
        """End every sample and every call with this error, now."""
        if self._ended or self._closed:
            return
        self.error = error
        self._end_dead()

    def lose(self, error: EngineDeadError) -> None:
        """Take no request any more, and die when what the engines have said before is read.

        An engine that is told to stop sends the ends of its requests before it goes.  Of several
        errors the last one counts: whoever runs an engine learns later how it ended.
        """
        if self._ended or self._closed:
            return
        self.error = error
        self._aborts.clear()
        if self._stall_watch is not None:
            self._stall_watch.cancel()
        if self._last_words is None:
            self._last_words = self._loop.call_later(LAST_WORDS_WITHIN, self._end_dead)

    def _end_dead(self) -> None:
        assert self.error is not None
        logger.error("%s", self.error)
        self._aborts.clear()
        self._end_all(self.error, Finish("error", error=self.error))
        self._schedule_flush()

    def _end_all(self, error: EngineDeadError, finish: Finish) -> None:
        self.error = error
        self._ended = True
        for timer in (self._last_words, self._stall_watch):
            if timer is not None:
                timer.cancel()
        self._death.set_result(error)
        receivers = list(self._receivers.values())
        self._receivers.clear()
        for receiver in receivers:
            receiver.end(finish)
        for call in self._calls.values():
            if not call.done():
                call.set_exception(error)

    def close(self) -> None:
        """Abort what still runs, close the sockets and end every waiter."""
        if self._closed:
            return
        if self.error is None:
            running = list(self._receivers.values())
            self.abort(running)
            for receiver in running:
                receiver.end(ABORTED)
            self._flush()
            self._end_all(EngineDeadError("the engine client was closed"), ABORTED)
        elif not self._ended:
            self._end_dead()
        self._flush()
        self._closed = True
        for reader in self._readers:
            reader.close()
        if hasattr(self, "_monitor_socket"):
            self._input_socket.disable_monitor()
        # Aborts that were just written are worth a moment.
        self._context.destroy(linger=100)
        if self._directory is not None:
            self._directory.cleanup()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _ready_routing(self) -> Routing:
        if self._routing is None:
            raise RuntimeError("the engines are not ready; await wait_ready() first")
        return self._routing

    def _send(self, identity: bytes, kind: bytes, payload: bytes) -> None:
        send = self._input_socket.send
        try:
            send(identity, MORE_PARTS)
            send(kind, MORE_PARTS)
            send(payload, LAST_PART)
        except zmq.ZMQError as error:
            dead = EngineDeadError(f"an engine cannot be reached: {error}")
            self.lose(dead)
            raise dead from error
        if self._input_reader is not None:
            self._input_reader.wake()

    def _on_output(self, frames: list[bytes]) -> None:
        if self._ended:
            return
        self._draining = True
        if len(frames) == 1 and frames[0] == ENGINE_CORE_DEAD:
            self.die(EngineDeadError("the engine core has died; its log says why"))
            return
        try:
            outputs = self._decoder.decode(frames[0])
        except UNDECODABLE as error:
            self.die(EngineDeadError(f"an engine sent an output that cannot be decoded: {error}"))
            return
        if self._stall_watch is not None:
            self._stall_watch.heard(outputs.engine_index)
        step = Step(
            outputs.engine_index, outputs.timestamp, time.time(), frames, outputs.weight_version
        )
        self._tell_listener(outputs, step)
        receivers = self._receivers
        for output in outputs.outputs:
            receiver = receivers.get(output.request_id)
            if receiver is None:
                continue  # it was aborted here while the output was under way
            receiver.feed(output, step)
            if receiver.finish is not None:
                if output.finish_reason is None:
                    self.abort((receiver,))
                else:
                    self._forget(receiver)
        if outputs.scheduler_stats is not None:
            self._ready_routing().update(outputs.engine_index, outputs.scheduler_stats)
        if outputs.utility_output is not None:
            self._resolve(outputs.utility_output)
        for request_id in outputs.finished_requests or ():
            if (receiver := receivers.get(request_id)) is not None:
                self._forget(receiver)
                receiver.end(ABORTED)

    def _tell_listener(self, outputs: EngineCoreOutputs, step: Step) -> None:
        if self.step_listener is not None:
            try:
                self.step_listener(outputs, step)
            except Exception as error:
                log_fault(logger, error, "the step listener failed; serving goes on")

    def _resolve(self, output: UtilityOutput) -> None:
        call = self._calls.get(output.call_id)
        if call is None or call.done():
            return
        if output.failure_message is not None:
            call.set_exception(UtilityError(output.failure_message))
        else:
            call.set_result(output.result.value if output.result is not None else None)

    def _ping(self, engine: Engine) -> None:
        """Ask an engine something; nobody waits for the answer, which is a message like any other."""
        payload = msgspec.msgpack.encode((self.index, next(self._call_ids), "is_sleeping", ()))
        with suppress(EngineDeadError):
            self._send(engine.identity, UTILITY, payload)

    def _on_stall(self, engine: Engine) -> None:
        timeout = self._options.stall_timeout
        self.die(
            EngineDeadError(
                f"engine {engine.index} is stuck: it has sent nothing for {timeout:g} s, not even "
                "the answer to a ping"
            )
        )

    def _forget(self, receiver: Receiver) -> None:
        if self._receivers.get(receiver.request_id) is receiver:
            del self._receivers[receiver.request_id]
            if receiver.engine is not None:
                self._ready_routing().release(receiver.engine)

    def _on_drained(self) -> None:
        self._draining = False
        self._flush()

    def _schedule_flush(self) -> None:
        if not self._draining and not self._flush_scheduled and not self._closed:
            self._flush_scheduled = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        """Let woken groups hand over, then send the batched aborts, one message per engine."""
        self._flush_scheduled = False
        # A sink may wake its group again, by aborting it.
        while self._woken:
            woken, self._woken = self._woken, []
            for group in woken:
                group.fire()
        if self._closed:
            return
        aborts, self._aborts = self._aborts, {}
        for identity, request_ids in aborts.items():
            try:
                self._send(identity, ABORT, msgspec.msgpack.encode(request_ids))
            except EngineDeadError:
                break

    def _on_registration(self, frames: list[bytes]) -> None:
        index = int.from_bytes(frames[0], "little")
        logger.warning("engine %d registered again and is ignored; restart this server", index)

    def _on_monitor(self, frames: list[bytes]) -> None:
        event = parse_monitor_message(frames)
        descriptor = event["value"]
        if event["event"] == zmq.EVENT_ACCEPTED:
            if self._routing is None:
                self._peers.add(descriptor)
        elif descriptor in self._peers:
            self._peers.discard(descriptor)
            if self._routing is not None and self.error is None:
                self.lose(EngineDeadError("an engine has closed its connection"))
