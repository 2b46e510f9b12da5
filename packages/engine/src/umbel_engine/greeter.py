"""Where engines say HELLO, and are told where their clients are."""

import zmq

from umbel_engine.errors import EngineStartError
from umbel_engine.handshake import Handshake, Part, check_count, perform
from umbel_engine.reader import Reader
from umbel_engine.sockets import bind, endpoint, open_socket
from umbel_engine.wire import Addresses


class EngineGreeter:
    """Shakes hands with engines, for one client or for several that share them.

    It binds its socket when it is made, so that engines can be started with `handshake_address`,
    which has the real port.  `engine_count` is how many are expected, `context` who else has
    sockets here.  An `EngineClient` that has its engines for itself has a greeter of its own.
    """

    def __init__(
        self,
        address: str,
        engine_count: int,
        context: "zmq.Context[zmq.Socket[bytes]] | None" = None,
    ) -> None:
        check_count(engine_count)
        self._engine_count = engine_count
        self._own_context: zmq.Context[zmq.Socket[bytes]] | None = None
        if context is None:
            context = self._own_context = zmq.Context()
        self._readers: list[Reader] = []
        address = address.replace(":*", ":0")
        self._socket = open_socket(context, zmq.ROUTER, address)
        try:
            bind(self._socket, address)
        except EngineStartError:
            self.close()
            raise
        self.handshake_address = endpoint(self._socket)

    def part(self, addresses: Addresses) -> Part:
        """Give the greeter's part of the way to readiness."""

        def reply(identity: bytes, payload: bytes) -> None:
            self._socket.send_multipart([identity, payload])

        return Part(Handshake(self._engine_count, addresses, reply), self._socket)

    async def greet(self, addresses: Addresses, timeout: float) -> None:
        """Wait until all engines are ready for the clients with these addresses.

        `timeout` is in seconds; raises EngineStartError, which says how far they came.
        """
        await perform([self.part(addresses)], timeout, self._readers)

    def close(self) -> None:
        """Close the socket; may be called twice."""
        for reader in self._readers:
            reader.close()
        self._socket.close()
        if self._own_context is not None:
            self._own_context.term()
