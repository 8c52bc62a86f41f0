"""The listeners: accept connections within the limits, and close those that say nothing for too long."""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from ottla.broker.connection import ClientConnection, Dispatch
from ottla.broker.request_memory import RequestMemory
from ottla.core.connection_rate import ConnectionRate
from ottla.env import Env
from ottla.env.network import DEFAULT_OPTIONS, Listener, Receiver, SocketOptions, Stream
from ottla.protocol.framing import FrameAssembler

logger = logging.getLogger("ottla.network")

_READ_BUFFER_BYTES = 64 * 1024
_SWEEP_S_MAX = 30.0
INT_MAX = 2**31 - 1  # Kafka's default of the limits: none


class ListenerLimits(NamedTuple):
    """What may be limited for each listener, and for the broker as a whole."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


class ServerLimits(NamedTuple):
    """What Kafka's properties of the same names say."""

    socket_request_max_bytes: int
    connections_max_idle_ms: int  # negative: never closed for being idle
    max_connections: int
    max_connections_per_ip: int
    max_connections_per_ip_overrides: Mapping[str, int]
    max_connection_creation_rate: int = INT_MAX
    rate_window_s: int = 10
    of_listeners: Mapping[str, ListenerLimits] = MappingProxyType({})

    @property
    def of_all(self) -> ListenerLimits:
        return ListenerLimits(self.max_connections, self.max_connection_creation_rate)

    def of_listener(self, name: str) -> ListenerLimits:
        return self.of_listeners.get(name, self.of_all)


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
        """0: now. None: not before a connection ends or a limit changes."""
        if self.connections >= self._limits.max_connections:
            return None
        return 0 if self._rate is None else self._rate.wait_ms(now_ms)


class _Listening:
    def __init__(self, name: str) -> None:
        self.name = name
        self.admission = _Admission()
        self.listener: Listener | None = None


class _Refused:
    """The receiver of a connection over the limit: it reads nothing."""

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
    ) -> None:
        self.connections: dict[ClientConnection, _Listening] = {}
        self._limits = limits
        self._env = env
        self._dispatch = dispatch
        self._options = options
        self._memory = memory
        self._per_ip: Counter[str] = Counter()
        # One event loop, one read at a time: every connection may read into the same buffer.
        self._shared = bytearray(_READ_BUFFER_BYTES)
        self._all = _Admission()
        self._listening: list[_Listening] = []
        self._admission_timer: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None

    @property
    def limits(self) -> ServerLimits:
        return self._limits

    @limits.setter
    def limits(self, limits: ServerLimits) -> None:
        self._limits = limits
        self._configure_admission()

    async def listen(self, host: str, port: int, name: str = "") -> tuple[str, int]:
        """May be called for several addresses; answers with the one that was taken."""
        listening = _Listening(name)
        listener = await self._env.network.listen(host, port, partial(self._accept, listening), self._options)
        listening.listener = listener
        self._listening.append(listening)
        self._configure_admission()
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().create_task(self._close_idle())
        return listener.address

    async def close(self) -> None:
        for listening in self._listening:
            if listening.listener is not None:
                listening.listener.close()
        self._listening.clear()
        if self._admission_timer is not None:
            self._admission_timer.cancel()
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        for connection in self._in_order():
            connection.close()

    def _accept(self, listening: _Listening, stream: Stream) -> Receiver:
        now_ms = self._env.clock.now_ms()
        self._all.accepted(now_ms)
        listening.admission.accepted(now_ms)
        ip = _ip(stream)
        limit = self._limits.max_connections_per_ip_overrides.get(ip, self._limits.max_connections_per_ip)
        if self._per_ip[ip] >= limit:
            logger.warning(
                "refusing %s: %d connections from %s are open (max.connections.per.ip=%d)",
                stream.peer, self._per_ip[ip], ip, limit,
            )  # fmt: skip
            asyncio.get_running_loop().call_soon(stream.close)
            self._admit()
            return _Refused()
        assembler = FrameAssembler(self._shared, self._limits.socket_request_max_bytes)
        connection = ClientConnection(
            stream, assembler, self._dispatch, self._env.clock.now_ms, self._closed, self._memory
        )
        self.connections[connection] = listening
        self._per_ip[ip] += 1
        self._all.connections += 1
        listening.admission.connections += 1
        self._admit()
        return connection

    def _closed(self, connection: ClientConnection) -> None:
        listening = self.connections.pop(connection)
        ip = _ip(connection.stream)
        self._per_ip[ip] -= 1
        if not self._per_ip[ip]:
            del self._per_ip[ip]
        self._all.connections -= 1
        listening.admission.connections -= 1
        self._admit()

    # Admission: who connects beyond a limit of the broker or of the listener waits to be accepted, as in Kafka.

    def _configure_admission(self) -> None:
        now_ms, window_s = self._env.clock.now_ms(), self._limits.rate_window_s
        self._all.configure(self._limits.of_all, window_s, now_ms)
        for listening in self._listening:
            listening.admission.configure(self._limits.of_listener(listening.name), window_s, now_ms)
        self._admit()

    def _admit(self) -> None:
        """Pauses the listeners that may not accept now, resumes the others, and looks again when that may change."""
        now_ms = self._env.clock.now_ms()
        if self._admission_timer is not None:
            self._admission_timer.cancel()
            self._admission_timer = None
        waits = []
        for listening in self._listening:
            if listening.listener is None:
                continue
            of_all, own = self._all.wait_ms(now_ms), listening.admission.wait_ms(now_ms)
            if of_all == 0 and own == 0:
                listening.listener.resume()
                continue
            listening.listener.pause()
            if of_all is not None and own is not None:
                waits.append(max(of_all, own))
        if waits:
            self._admission_timer = asyncio.get_running_loop().call_later(min(waits) / 1000, self._admit)

    async def _close_idle(self) -> None:
        while True:
            max_idle_ms = self._limits.connections_max_idle_ms
            if max_idle_ms < 0:
                await asyncio.sleep(_SWEEP_S_MAX)
                continue
            await asyncio.sleep(max(0.05, min(_SWEEP_S_MAX, max_idle_ms / 4000)))
            oldest = self._env.clock.now_ms() - max_idle_ms
            for connection in self._in_order():
                if connection.is_idle_since(oldest):
                    logger.info("closing %s: idle for connections.max.idle.ms", connection.stream.peer)
                    connection.close()

    def _in_order(self) -> list[ClientConnection]:
        """By address: what is done to connections is to be the same from run to run."""
        return sorted(self.connections, key=lambda connection: connection.stream.peer)


def _ip(stream: Stream) -> str:
    return stream.peer.rpartition(":")[0].strip("[]")
