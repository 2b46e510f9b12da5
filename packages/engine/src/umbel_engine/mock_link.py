"""The engine's end of the wire, for the mock engines: sockets, HELLO, registration, READY.

The order is that of vllm/v1/engine/core.py.  A link reads nothing by itself, so that it serves an
event loop and a blocking program alike.
"""

from collections.abc import Sequence

import msgspec
import zmq

from umbel_engine.wire import Addresses, Hello, Init, ReadyResponse

DEFAULT_READY = ReadyResponse(
    max_model_len=2048,
    num_gpu_blocks=1024,
    dtype="float32",
    vllm_version="0.33.0",
    max_num_seqs=256,
    max_num_batched_tokens=8192,
    instance_id="mock",
    kv_cache_size_tokens=16384,
    kv_cache_max_concurrency=8.0,
)
"""What a mock engine tells of itself unless told otherwise."""

IDENTITY_BYTES = 2


class EngineLink:
    """The sockets of one engine.

    After `say_hello`, the frontend's answer is to be read from `handshake` and given to
    `connect`, which opens one input and one output per client; `register` and `say_ready` end the
    handshake.  An engine with a coordinator must have read READY from `coordinator` before that.
    """

    def __init__(self, index: int, local: bool = False, headless: bool = True) -> None:
        self.index = index
        self.identity = index.to_bytes(IDENTITY_BYTES, "little")
        self.inputs: list[zmq.Socket[bytes]] = []
        self.outputs: list[zmq.Socket[bytes]] = []
        self.coordinator: zmq.Socket[bytes] | None = None
        self._hello = Hello("HELLO", local, headless)
        self._context = zmq.Context()
        self.handshake = self._socket(zmq.DEALER)

    def say_hello(self, handshake_address: str) -> None:
        """Connect to the frontend and announce the engine."""
        _connect(self.handshake, handshake_address)
        self._say(self._hello)

    def connect(self, init: Sequence[bytes]) -> None:
        """Take the frontend's answer to HELLO and connect to the addresses in it.

        Raises ValueError when the answer is not well-formed.
        """
        if len(init) != 1:
            raise ValueError(f"INIT: expected 1 frame, got {len(init)}")
        addresses = msgspec.msgpack.decode(init[0], type=Init).addresses
        _check(addresses)
        for address in addresses.inputs:
            self.inputs.append(self._socket(zmq.DEALER))
            _connect(self.inputs[-1], address)
        for address in addresses.outputs:
            self.outputs.append(self._socket(zmq.PUSH))
            _connect(self.outputs[-1], address)
        if addresses.coordinator_input is not None:
            self.coordinator = self._socket(zmq.XSUB)
            _connect(self.coordinator, addresses.coordinator_input)
            self.coordinator.send(b"\x01")

    def register(self, ready: ReadyResponse) -> None:
        """Tell every client what the engine is; only then can they send to it."""
        payload = msgspec.msgpack.encode(
            msgspec.structs.replace(ready, data_parallel_rank=self.index)
        )
        for socket in self.inputs:
            socket.send(payload)

    def say_ready(self) -> None:
        """Tell the frontend that the model is loaded."""
        self._say(msgspec.structs.replace(self._hello, status="READY"))

    def send(self, client_index: int, frames: Sequence[bytes]) -> None:
        """Send a message to one client's output socket."""
        self.outputs[client_index].send_multipart(frames)

    def close(self, linger: int = 100) -> None:
        """Close every socket; what was just sent has `linger` milliseconds to leave."""
        self._context.destroy(linger)

    def _say(self, hello: Hello) -> None:
        fields = msgspec.structs.asdict(hello)
        del fields["parallel_config_hash"]
        self.handshake.send(msgspec.msgpack.encode(fields))

    def _socket(self, kind: int) -> zmq.Socket[bytes]:
        socket = self._context.socket(kind)
        if kind == zmq.DEALER:
            socket.setsockopt(zmq.IDENTITY, self.identity)
        socket.sndhwm = socket.rcvhwm = 0
        return socket


def _connect(socket: zmq.Socket[bytes], address: str) -> None:
    socket.ipv6 = "[" in address
    socket.connect(address)


def _check(addresses: Addresses) -> None:
    if not addresses.inputs or len(addresses.inputs) != len(addresses.outputs):
        raise ValueError(
            f"INIT: {len(addresses.inputs)} input and {len(addresses.outputs)} output addresses"
        )
    if (addresses.coordinator_input is None) != (addresses.coordinator_output is None):
        raise ValueError("INIT: a coordinator has an input and an output address")
