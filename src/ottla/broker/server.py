"""The listener: accepts connections within the limits, and closes those that say nothing for too long."""

import asyncio
import logging
from collections import Counter

from ottla.broker.connection import ClientConnection, Dispatch
from ottla.env import Env
from ottla.env.network import Listener, Receiver, Stream
from ottla.protocol.framing import FrameAssembler

logger = logging.getLogger("ottla.network")

_READ_BUFFER_BYTES = 64 * 1024


class ServerLimits:
    """What Kafka's properties of the same names say."""

    def __init__(
        self,
        *,
        socket_request_max_bytes: int,
        connections_max_idle_ms: int,
        max_connections: int,
        max_connections_per_ip: int,
        max_connections_per_ip_overrides: dict[str, int],
    ) -> None:
        self.socket_request_max_bytes = socket_request_max_bytes
        self.connections_max_idle_ms = connections_max_idle_ms
        self.max_connections = max_connections
        self.max_connections_per_ip = max_connections_per_ip
        self.max_connections_per_ip_overrides = max_connections_per_ip_overrides


class _Refused:
    """The receiver of a connection over the limit: it reads nothing."""

    def buffer(self) -> memoryview:
        return memoryview(bytearray(1))

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


class Server:
    def __init__(self, env: Env, dispatch: Dispatch, limits: ServerLimits) -> None:
        self.connections: set[ClientConnection] = set()
        self.limits = limits
        self._env = env
        self._dispatch = dispatch
        self._per_ip: Counter[str] = Counter()
        # One event loop, one read at a time: every connection may read into the same buffer.
        self._shared = bytearray(_READ_BUFFER_BYTES)
        self._listeners: list[Listener] = []
        self._sweeper: asyncio.Task[None] | None = None

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """May be called for several addresses; answers with the one that was taken."""
        listener = await self._env.network.listen(host, port, self._accept)
        self._listeners.append(listener)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle())
        return listener.address

    async def close(self) -> None:
        for listener in self._listeners:
            listener.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for connection in self._in_order():
            connection.close()

    def _accept(self, stream: Stream) -> Receiver:
        ip = _ip(stream)
        limit = self.limits.max_connections_per_ip_overrides.get(ip, self.limits.max_connections_per_ip)
        if len(self.connections) >= self.limits.max_connections or self._per_ip[ip] >= limit:
            logger.warning(
                "refusing %s: %d connections are open, %d from %s (max.connections=%d, max.connections.per.ip=%d)",
                stream.peer, len(self.connections), self._per_ip[ip], ip, self.limits.max_connections, limit,
            )  # fmt: skip
            asyncio.get_running_loop().call_soon(stream.close)
            return _Refused()
        assembler = FrameAssembler(self._shared, self.limits.socket_request_max_bytes)
        connection = ClientConnection(stream, assembler, self._dispatch, self._env.clock.now_ms, self._closed)
        self.connections.add(connection)
        self._per_ip[ip] += 1
        return connection

    def _closed(self, connection: ClientConnection) -> None:
        self.connections.discard(connection)
        ip = _ip(connection.stream)
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]

    async def _close_idle(self) -> None:
        while True:
            await asyncio.sleep(max(0.05, min(30.0, self.limits.connections_max_idle_ms / 4000)))
            oldest = self._env.clock.now_ms() - self.limits.connections_max_idle_ms
            for connection in self._in_order():
                if connection.is_idle and connection.last_active_ms < oldest:
                    logger.info("closing %s: idle for connections.max.idle.ms", connection.stream.peer)
                    connection.close()

    def _in_order(self) -> list[ClientConnection]:
        """A set has none of its own, and what is done to connections is to be the same from run to run."""
        return sorted(self.connections, key=lambda connection: connection.stream.peer)


def _ip(stream: Stream) -> str:
    return stream.peer.rpartition(":")[0].strip("[]")
