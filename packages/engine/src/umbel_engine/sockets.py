"""The ZMQ sockets of a frontend."""

import zmq

from umbel_engine.errors import EngineStartError

HEARTBEAT_INTERVAL_MS = 5_000
HEARTBEAT_TIMEOUT_MS = 15_000


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, address: str
) -> zmq.Socket[bytes]:
    """Open a socket that is going to listen on an address, or on others of the same host."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.rcvhwm = socket.sndhwm = 0
    socket.heartbeat_ivl = HEARTBEAT_INTERVAL_MS
    socket.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
    # A frontend that listens on an IPv6 address binds everything there.
    socket.ipv6 = "[" in address
    return socket


def bind(socket: zmq.Socket[bytes], address: str) -> None:
    """Listen on an address; raises EngineStartError when it cannot be had."""
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise EngineStartError(f"cannot listen for engines on {address}: {error}") from error


def endpoint(socket: zmq.Socket[bytes]) -> str:
    """Give the address that a socket listens on, with the real port."""
    return socket.get_string(zmq.LAST_ENDPOINT)
