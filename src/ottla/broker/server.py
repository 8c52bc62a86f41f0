"""The server: accepts connections within the limits, and closes those that are idle for too long."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from ottla.broker.connection import ClientConnection, Dispatch
from ottla.broker.request_memory import RequestMemory
from ottla.core.connection_rate import ConnectionRate
from ottla.env import Env
from ottla.env.network import DEFAULT_OPTIONS, Binding, Listener, Receiver, SocketOptions, Stream
from ottla.protocol.framing import FrameAssembler

logger = logging.getLogger("ottla.network")

_READ_BUFFER_BYTES = 64 * 1024
_SWEEP_S_MAX = 30.0
INT_MAX = 2**31 - 1  # Kafka's default: no limit


class ListenerLimits(NamedTuple):
    """The limits of one listener, or of the whole broker."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


class ListenerTraffic(NamedTuple):
    name: str
    connections: int  # that are open
    accepted: int  # since the start
    received_bytes: int
    sent_bytes: int


class ServerLimits(NamedTuple):
    """The values of Kafka's configs of the same names."""

    socket_request_max_bytes: int
    connections_max_idle_ms: int  # negative: idle connections are kept
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int = INT_MAX
    rate_window_s: int = 10
    by_listener: Mapping[str, ListenerLimits] = MappingProxyType({})

    @property
    def of_broker(self) -> ListenerLimits:
        return ListenerLimits(self.max_connections, self.max_connection_creation_rate)

    def of_listener(self, name: str) -> ListenerLimits:
        return self.by_listener.get(name, self.of_broker)


class _Admission:
    """Whether a listener, or the broker as a whole, may accept another connection."""

    def __init__(self) -> None:
        self.connections = 0
        self._limits = ListenerLimits()
        self._rate: ConnectionRate | None = None

    def configure(self, limits: ListenerLimits, window_s: int, now_ms: int) -> None:
        if limits.max_connection_creation_rate == INT_MAX:
            self._rate = None
        elif self._rate is None or (self._rate.per_second, self._rate.window_s) != (
            limits.max_connection_creation_rate,
            window_s,
        ):
            self._rate = ConnectionRate(limits.max_connection_creation_rate, window_s, now_ms)
        self._limits = limits

    def accepted(self, now_ms: int) -> None:
        if self._rate is not None:
            self._rate.accepted(now_ms)

    def wait_ms(self, now_ms: int) -> int | None:
        """How long to wait before the next connection. None: until a connection ends or a limit changes."""
        if self.connections >= self._limits.max_connections:
            return None
        return 0 if self._rate is None else self._rate.wait_ms(now_ms)


class _BoundListener:
    """`listener` is None until the server accepts connections."""

    def __init__(self, name: str, binding: Binding) -> None:
        self.name = name
        self.binding = binding
        self.admission = _Admission()
        self.accepted = 0
        # Of connections that are closed.
        self.received_bytes = 0
        self.sent_bytes = 0
        self.listener: Listener | None = None

    def close(self) -> None:
        (self.listener or self.binding).close()


class _RejectedConnection:
    """The receiver of a connection beyond the limit, which reads nothing."""

    def buffer(self) -> memoryview:
        return memoryview(bytearray(1))

    def received(self, count: int) -> None: ...

    def drained(self) -> None: ...

    def closed(self, error: OSError | None) -> None: ...


class Server:
    def __init__(
        self,
        env: Env,
        dispatch: Dispatch,
        limits: ServerLimits,
        *,
        options: SocketOptions = DEFAULT_OPTIONS,
        memory: RequestMemory | None = None,
        new_connection: Callable[..., ClientConnection] = ClientConnection,
    ) -> None:
        self.connections: dict[ClientConnection, _BoundListener] = {}
        self._limits = limits
        self._env = env
        self._dispatch = dispatch
        self._options = options
        self._memory = memory
        self._new_connection = new_connection
        self._per_ip: Counter[str] = Counter()
        # There is one read at a time on the event loop: all connections use the same buffer.
        self._shared = bytearray(_READ_BUFFER_BYTES)
        self._admission = _Admission()
        self._listeners: list[_BoundListener] = []
        self._admission_timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def limits(self) -> ServerLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._configure_admission()

    @property
    def memory(self) -> RequestMemory | None:
        return self._memory

    def traffic(self) -> list[ListenerTraffic]:
        received, sent = Counter[_BoundListener](), Counter[_BoundListener]()
        for connection, bound in self.connections.items():
            received[bound] += connection.received_bytes
            sent[bound] += connection.stream.sent_bytes
        return [
            ListenerTraffic(
                bound.name,
                bound.admission.connections,
                bound.accepted,
                bound.received_bytes + received[bound],
                bound.sent_bytes + sent[bound],
            )
            for bound in self._listeners
        ]

    @property
    def dispatch(self) -> Dispatch:
        return self._dispatch

    @dispatch.setter
    def dispatch(self, dispatch: Dispatch) -> None:
        """Replaces the dispatch of all connections, for example by one that fails some requests."""
        self._dispatch = dispatch
        for connection in self.connections:
            connection.dispatch = dispatch

    async def bind(self, host: str, port: int, name: str = "") -> tuple[str, int]:
        """Reserves another address. Returns it, with the port that was bound. Nobody can connect before `serve`."""
        binding = await self._env.network.bind(host, port, self._options)
        self._listeners.append(_BoundListener(name, binding))
        return binding.address

    def serve(self) -> None:
        """Accepts connections at all addresses that are bound."""
        for bound in self._listeners:
            if bound.listener is None:
                bound.listener = bound.binding.listen(partial(self._accept, bound))
        self._configure_admission()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle())

    async def listen(self, host: str, port: int, name: str = "") -> tuple[str, int]:
        """Binds an address and accepts connections there."""
        address = await self.bind(host, port, name)
        self.serve()
        return address

    async def close(self) -> None:
        for bound in self._listeners:
            bound.close()
        self._listeners.clear()
        if self._admission_timer is not None:
            self._admission_timer.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for connection in self._in_order():
            connection.close()

    def _accept(self, bound: _BoundListener, stream: Stream) -> Receiver:
        now_ms = self._env.clock.monotonic_ms()
        self._admission.accepted(now_ms)
        bound.admission.accepted(now_ms)
        ip = _ip(stream)
        limit = self._limits.max_connections_per_ip_overrides.get(ip, self._limits.max_connections_per_ip)
        if self._per_ip[ip] >= limit:
            logger.warning(
                "rejecting %s: %d connections from %s are open (max.connections.per.ip=%d)",
                stream.peer, self._per_ip[ip], ip, limit,
            )  # fmt: skip
            asyncio.get_running_loop().call_soon(stream.close)
            self._admit()
            return _RejectedConnection()
        assembler = FrameAssembler(self._shared, self._limits.socket_request_max_bytes)
        connection = self._new_connection(
            stream,
            assembler,
            self._dispatch,
            self._env.clock.monotonic_ms,
            self._closed,
            self._memory,
            listener_name=bound.name,
        )
        self.connections[connection] = bound
        self._per_ip[ip] += 1
        bound.accepted += 1
        self._admission.connections += 1
        bound.admission.connections += 1
        self._admit()
        return connection

    def _closed(self, connection: ClientConnection) -> None:
        bound = self.connections.pop(connection)
        bound.received_bytes += connection.received_bytes
        bound.sent_bytes += connection.stream.sent_bytes
        ip = _ip(connection.stream)
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]
        self._admission.connections -= 1
        bound.admission.connections -= 1
        self._admit()

    # Admission: as in Kafka, connections beyond a limit of the broker or the listener wait to be accepted.

    def _configure_admission(self) -> None:
        now_ms, window_s = self._env.clock.monotonic_ms(), self._limits.rate_window_s
        self._admission.configure(self._limits.of_broker, window_s, now_ms)
        for bound in self._listeners:
            bound.admission.configure(self._limits.of_listener(bound.name), window_s, now_ms)
        self._admit()

    def _admit(self) -> None:
        """Pauses the listeners that may not accept now and resumes the others. Sets a timer for the next check."""
        now_ms = self._env.clock.monotonic_ms()
        if self._admission_timer is not None:
            self._admission_timer.cancel()
            self._admission_timer = None
        waits = []
        for bound in self._listeners:
            if bound.listener is None:
                continue
            of_broker, own = self._admission.wait_ms(now_ms), bound.admission.wait_ms(now_ms)
            if of_broker == 0 and own == 0:
                bound.listener.resume()
                continue
            bound.listener.pause()
            if of_broker is not None and own is not None:
                waits.append(max(of_broker, own))
        if waits:
            self._admission_timer = asyncio.get_running_loop().call_later(min(waits) / 1000, self._admit)

    async def _close_idle(self) -> None:
        while True:
            max_idle_ms = self._limits.connections_max_idle_ms
            if max_idle_ms < 0:
                await asyncio.sleep(_SWEEP_S_MAX)
                continue
            await asyncio.sleep(max(0.05, min(_SWEEP_S_MAX, max_idle_ms / 4000)))
            oldest = self._env.clock.monotonic_ms() - max_idle_ms
            for connection in self._in_order():
                if connection.is_idle_since(oldest):
                    logger.info("closing %s: it was idle for connections.max.idle.ms", connection.stream.peer)
                    connection.close()

    def _in_order(self) -> list[ClientConnection]:
        """Sorted by address, so that a simulation repeats the order."""
        return sorted(self.connections, key=lambda connection: connection.stream.peer)


def _ip(stream: Stream) -> str:
    return stream.peer.rpartition(":")[0].strip("[]")
