"""The ZMQ sockets of a frontend."""

from ipaddress import ip_address

import zmq

from umbel_engine.errors import EngineStartError

HEARTBEAT_INTERVAL_MS = 10_000
HEARTBEAT_TIMEOUT_MS = 60_000
"""Another machine that vanishes does not close its connections.  One that is overloaded may be
silent for a good while, and to take that for an end would end every request."""


def open_socket(
    context: "zmq.Context[zmq.Socket[bytes]]", kind: int, address: str
) -> zmq.Socket[bytes]:
    """Open a socket that is going to listen on an address, or on others of the same host."""
    socket = context.socket(kind)
    socket.linger = 0
    socket.rcvhwm = socket.sndhwm = 0
    if _is_remote(address):
        socket.heartbeat_ivl = HEARTBEAT_INTERVAL_MS
        socket.heartbeat_timeout = HEARTBEAT_TIMEOUT_MS
    # A frontend that listens on an IPv6 address binds everything there.
    socket.ipv6 = "[" in address
    return socket


def _is_remote(address: str) -> bool:
    """Say whether those who connect to an address may be on other machines.

    On this one the system closes the connections of whoever ends, and a process that was stopped
    or gets no time is not gone.
    """
    if address.startswith("ipc://"):
        return False
    host = address.removeprefix("tcp://").rpartition(":")[0].strip("[]")
    try:
        return not ip_address(host).is_loopback
    except ValueError:
        return host != "localhost"


def bind(socket: zmq.Socket[bytes], address: str) -> None:
    """Listen on an address; raises EngineStartError when it cannot be had."""
    try:
        socket.bind(address)
    except zmq.ZMQError as error:
        raise EngineStartError(f"cannot listen for engines on {address}: {error}") from error


def endpoint(socket: zmq.Socket[bytes]) -> str:
    """Give the address that a socket listens on, with the real port."""
    return socket.get_string(zmq.LAST_ENDPOINT)
