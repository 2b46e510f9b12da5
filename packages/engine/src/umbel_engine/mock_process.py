"""The mock engine as a program: one blocking loop over the sockets of its engines."""

import logging
import math
import time
from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import zmq
from zmq.utils.monitor import parse_monitor_message

from umbel_engine.mock_batch import Batch
from umbel_engine.mock_link import DEFAULT_READY, EngineLink
from umbel_engine.mock_plan import Planner, body, failure
from umbel_engine.mock_record import UtilityCall
from umbel_engine.mock_scenario import Scenario
from umbel_engine.wire import (
    ABORT,
    ADD,
    FINISH_REASONS,
    UTILITY,
    EngineCoreOutput,
    EngineCoreOutputs,
    EngineCoreRequest,
    PrefixCacheStats,
    SchedulerStats,
    UtilityOutput,
    UtilityResult,
)

logger = logging.getLogger(__name__)

HANDSHAKE_SECONDS = 300.0
"""How long an engine waits for each answer of the handshake, as vllm/v1/engine/core.py does."""

IDLE_SECONDS = 0.5
"""How often a process without requests looks whether its frontend is still there."""

UTILITY_ANSWERS: dict[str, object] = {
    "get_supported_tasks": ["generate"],
    "is_scheduler_paused": False,
    "is_sleeping": False,
    "reset_prefix_cache": True,
    "wake_up": True,
}
"""What utility methods return; the others return nothing."""

_ABORTED = body(EngineCoreOutput("", [], finish_reason=FINISH_REASONS.index("abort")))


class MockOptions(msgspec.Struct, frozen=True):
    """How the mock engines behave; the fields are the flags of the command."""

    handshake_address: str = "tcp://127.0.0.1:29550"
    engine_count: int = 1
    output_token_chunk_size: int = 1
    vocab_size: int = 32000
    max_model_len: int = 32768
    seed: int = 0
    step_ms: float = 0.0
    log_requests: bool = False
    log_stats: bool = False
    exit_after: float = 10.0


class _Stats(SchedulerStats, frozen=True):
    """What other frontends than this project's insist on."""

    kv_cache_eviction_events: tuple[()] = ()


class FrontendGoneError(Exception):
    """Report that no frontend answers the handshake."""


class _Peer(NamedTuple):
    """An input socket, and the monitor that tells whether anyone is at its other end."""

    input: "zmq.Socket[bytes]"
    monitor: "zmq.Socket[bytes]"


class ProcessEngine:
    """One engine of the process."""

    def __init__(self, index: int, options: MockOptions, scenario: Scenario) -> None:
        self.link = EngineLink(index)
        self.peers: list[_Peer] = []
        self._options = options
        self._scenario = scenario
        self._planner = Planner(
            options.vocab_size,
            options.output_token_chunk_size,
            f"{options.seed} {index}",
            options.max_model_len,
        )
        self._batches: list[Batch] = []
        self._decoder = msgspec.msgpack.Decoder(EngineCoreRequest)

    def connect(self) -> None:
        """Go on from the frontend's answer to HELLO to READY."""
        _await_message(self.link.handshake, "answers HELLO")
        self.link.connect(self.link.handshake.recv_multipart())
        for socket in self.link.inputs:
            events = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED
            self.peers.append(_Peer(socket, socket.get_monitor_socket(events)))
            self._batches.append(Batch(self.link.index))
        ready = msgspec.structs.replace(
            DEFAULT_READY,
            max_model_len=self._options.max_model_len,
            data_parallel_size=self._options.engine_count,
        )
        self.link.register(ready)
        if self.link.coordinator is not None:
            _await_message(self.link.coordinator, "starts its coordinator")
        self.link.say_ready()

    @property
    def running(self) -> int:
        """How many requests are running."""
        return sum(map(len, self._batches))

    def receive(self, socket: "zmq.Socket[bytes]") -> None:
        """Take in every message that has arrived on an input socket."""
        while True:
            try:
                frames = socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return
            try:
                self._on_message(frames)
            except (msgspec.MsgspecError, IndexError) as error:
                logger.error("a message was dropped that cannot be decoded: %s", error)

    def step(self) -> None:
        """Send every client the next outputs of its requests."""
        stats = None
        if self._options.log_stats:
            stats = _Stats(num_running_reqs=self.running, prefix_cache_stats=PrefixCacheStats())
        now = time.monotonic()
        for client_index, batch in enumerate(self._batches):
            if len(batch) and (message := batch.step(now, stats)) is not None:
                self.link.send(client_index, (message,))
                stats = None

    def abort_all(self) -> None:
        """End every request with the reason "abort", as an engine does when it is stopped."""
        for client_index, batch in enumerate(self._batches):
            for request_id in batch.drop_all():
                self._send_single(client_index, request_id, _ABORTED)

    def forget_all(self) -> None:
        """Drop every request; nobody is there to hear of it."""
        for batch in self._batches:
            batch.drop_all()

    def _on_message(self, frames: Sequence[bytes]) -> None:
        kind, payload = frames[0], frames[1]
        if kind == ADD:
            self._on_add(self._decoder.decode(payload))
        elif kind == ABORT:
            for request_id in msgspec.msgpack.decode(payload, type=list[str]):
                found = any(batch.drop(request_id) for batch in self._batches)
                self._log("abort %s%s", request_id, "" if found else " (not running)")
        elif kind == UTILITY:
            self._on_call(msgspec.msgpack.decode(payload, type=UtilityCall))
        else:
            logger.error("a request of unknown type %r was dropped", kind)

    def _on_add(self, request: EngineCoreRequest) -> None:
        request_id, client_index = request.request_id, request.client_index
        if not 0 <= client_index < len(self._batches):
            logger.error("request %s of unknown client %d was dropped", request_id, client_index)
            return
        batch = self._batches[client_index]
        if request.sampling_params is None:
            problem = failure("a request without sampling parameters", "validation_error")
            self._send_single(client_index, request_id, problem)
        elif request_id in batch:
            problem = failure(f"request id {request_id} is running already")
            self._send_single(client_index, request_id, problem)
        else:
            rule = self._scenario.rule(request)
            plan = self._planner.plan(request, request.sampling_params, rule)
            batch.add(request_id, plan)
            self._log("add %s: %d steps", request_id, plan.step_count)

    def _on_call(self, call: UtilityCall) -> None:
        result = UtilityResult(None, UTILITY_ANSWERS.get(call.method))
        output = EngineCoreOutputs(
            engine_index=self.link.index,
            timestamp=time.monotonic(),
            utility_output=UtilityOutput(call.call_id, None, result),
        )
        self.link.send(call.client_index, (msgspec.msgpack.encode(output),))
        self._log("call %s", call.method)

    def _send_single(self, client_index: int, request_id: str, output: bytes) -> None:
        message = self._batches[client_index].single(request_id, output, time.monotonic())
        self.link.send(client_index, (message,))

    def _log(self, message: str, *arguments: object) -> None:
        if self._options.log_requests:
            logger.info(message, *arguments)


class MockProcess:
    """Several engines in one loop."""

    def __init__(self, options: MockOptions, scenario: Scenario) -> None:
        self._options = options
        self._poller = zmq.Poller()
        self._connected: set[zmq.Socket[bytes]] = set()
        self._gone_since: float | None = None
        self.engines = [
            ProcessEngine(index, options, scenario) for index in range(options.engine_count)
        ]

    def connect(self) -> None:
        """Bring every engine from HELLO to READY."""
        for engine in self.engines:
            engine.link.say_hello(self._options.handshake_address)
        for engine in self.engines:
            engine.connect()
            for peer in engine.peers:
                self._poller.register(peer.input, zmq.POLLIN)
                self._poller.register(peer.monitor, zmq.POLLIN)
                # The monitor may have come too late to tell.
                self._connected.add(peer.input)

    def run(self) -> None:
        """Serve until the frontend has been gone for `exit_after` seconds."""
        period = self._options.step_ms / 1000
        next_step = time.monotonic()
        while self._frontend_is_there():
            running = any(engine.running for engine in self.engines)
            wait = max(0.0, next_step - time.monotonic()) if running else IDLE_SECONDS
            self._receive(dict(self._poller.poll(math.ceil(wait * 1000))))
            now = time.monotonic()
            if not running:
                # The step clock starts with the first request.
                next_step = now
            elif now >= next_step:
                # A step that came late does not delay the ones after it, up to one period.
                next_step = max(next_step, now - period) + period
                for engine in self.engines:
                    engine.step()

    def close(self) -> None:
        """End what runs and go away."""
        for engine in self.engines:
            engine.abort_all()
            for peer in engine.peers:
                peer.input.disable_monitor()
            engine.link.close(linger=1000 if self._connected else 0)

    def _receive(self, readable: dict[object, int]) -> None:
        for engine in self.engines:
            for peer in engine.peers:
                if peer.monitor in readable:
                    self._on_monitor(peer)
                if peer.input in readable:
                    engine.receive(peer.input)

    def _on_monitor(self, peer: _Peer) -> None:
        event = parse_monitor_message(peer.monitor.recv_multipart())["event"]
        if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
            self._connected.add(peer.input)
        elif event == zmq.EVENT_DISCONNECTED:
            self._connected.discard(peer.input)

    def _frontend_is_there(self) -> bool:
        if self._connected:
            self._gone_since = None
            return True
        if self._gone_since is None:
            self._gone_since = time.monotonic()
            for engine in self.engines:
                engine.forget_all()
        return time.monotonic() - self._gone_since < self._options.exit_after


def _await_message(socket: "zmq.Socket[bytes]", what: str) -> None:
    if not socket.poll(int(HANDSHAKE_SECONDS * 1000)):
        raise FrontendGoneError(f"no frontend {what} within {HANDSHAKE_SECONDS:g} s")
