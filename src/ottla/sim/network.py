"""A network in memory: streams with latency, random chunks and a bounded window; faults of links, rejected connects.

`SimNetwork` connects the hosts; `host(name)` is the `ottla.env.network.Network` of one host. Bytes of a stream arrive
in order, as with TCP; a cut link delays them until it heals.
"""

import asyncio
import errno
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random

from ottla.env.network import DEFAULT_OPTIONS, Part, Receiver, ReceiverFactory, SocketOptions
from ottla.model.region import FileRegion
from ottla.sim.disk import SimFile
from ottla.sim.links import GIVE_UP_S, Links
from ottla.sim.loop import VirtualTimeLoop

_CONNECT_TIMEOUT_S = 30.0
_FIRST_EPHEMERAL_PORT = 49_152
_WILDCARDS = ("", "0.0.0.0", "::")


@dataclass(frozen=True, slots=True)
class NetworkProfile:
    """Resets have a probability per chunk, rejected connections per connect."""

    latency_ms_min: float = 0.05
    latency_ms_max: float = 3.0
    window_bytes: int = 64 * 1024
    chunk_bytes_max: int = 8 * 1024
    reset_probability: float = 0.0
    refuse_probability: float = 0.0


class SimNetwork:
    def __init__(
        self,
        random: Random,
        profile: NetworkProfile | None = None,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.profile = NetworkProfile() if profile is None else profile
        self.random = random
        self.note = note
        self.bound: dict[tuple[str, int], SimListener | None] = {}  # None: bound, but does not listen yet
        self.streams: dict[str, SimStream] = {}
        self._links = Links(random)
        self._last_port = _FIRST_EPHEMERAL_PORT - 1

    def host(self, name: str) -> "SimHost":
        return SimHost(self, name)

    def partition(self, one: str, other: str) -> None:
        """No bytes pass between the two hosts until `heal`; streams stay open, as with TCP."""
        self.cut(one, other)
        self.cut(other, one)

    def cut(self, source: str, target: str) -> None:
        """No bytes pass from `source` to `target` until `heal`; the other direction works, but lacks its ACKs."""
        self.note(f"network cut {source} -> {target}")
        self._links.cut(source, target)

    def slow(self, one: str, other: str, extra_ms: float) -> None:
        """Adds latency in both directions until `heal`."""
        self.note(f"network slow {one} {other} {extra_ms} ms")
        for link in ((one, other), (other, one)):
            self._links.slow(*link, extra_ms)

    def lose(self, one: str, other: str, probability: float) -> None:
        """Loses segments in both directions until `heal`: TCP sends them again, and gives up in the end."""
        self.note(f"network loss {one} {other} {probability}")
        for link in ((one, other), (other, one)):
            self._links.lose(*link, probability)

    def heal(self, one: str | None = None, other: str | None = None) -> None:
        """Ends the faults of the link between two hosts, or of all links."""
        if one is None or other is None:
            self.note("network heal")
            self._links.heal()
        else:
            self.note(f"network heal {one} {other}")
            self._links.heal((one, other))
            self._links.heal((other, one))
        for stream in list(self.streams.values()):
            stream.wake()

    def reset_link(self, one: str, other: str) -> None:
        """Resets the connections between two hosts."""
        for stream in list(self.streams.values()):
            if (stream.host, stream.other.host) == (one, other):
                stream.reset("the simulated network reset the connection")

    def reset_streams(self, host: str) -> None:
        """Resets every connection of `host`."""
        for stream in list(self.streams.values()):
            if stream.host == host:
                stream.reset("the simulated network reset the connection")

    def crash(self, host: str, *, silent: bool) -> None:
        """The host or process dies. Its peers see a reset, or nothing (`silent`, for a power loss)."""
        self.bound = {key: listener for key, listener in self.bound.items() if key[0] != host}
        for stream in [stream for stream in self.streams.values() if stream.host == host]:
            stream.vanish(silent=silent)

    def is_cut(self, source: str, target: str) -> bool:
        return self._links.is_cut(source, target)

    def latency_s(self, source: str, target: str) -> float | None:
        """None if the segment is lost so often that TCP gives up."""
        latency_ms = self.random.uniform(self.profile.latency_ms_min, self.profile.latency_ms_max)
        delay_s = self._links.delay_s(source, target)
        return None if delay_s is None else latency_ms / 1000 + delay_s

    def free_port(self) -> int:
        self._last_port += 1
        return self._last_port

    async def reach(self, source: str, target: str) -> None:
        """Takes as long as TCP's handshake. Raises TimeoutError if one of the directions stays cut."""
        try:
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await self.carry(source, target)
                while self.is_cut(target, source):
                    await self._links.wait_for_heal()
        except (TimeoutError, ConnectionResetError):
            raise TimeoutError(errno.ETIMEDOUT, f"{source} cannot reach {target}") from None

    async def carry(self, source: str, target: str) -> None:
        """Takes as long as a message on an open connection, which waits while the link is cut.

        Raises ConnectionResetError if TCP gives up.
        """
        latency_s = self.latency_s(source, target)
        if latency_s is None:
            await asyncio.sleep(GIVE_UP_S)
            raise ConnectionResetError(errno.ECONNRESET, f"{source} got no ACK from {target}")
        await asyncio.sleep(latency_s)
        while self.is_cut(source, target):
            await self._links.wait_for_heal()


class SimHost:
    """The network of one process. It raises OSError after the process was killed."""

    def __init__(self, network: SimNetwork, name: str) -> None:
        self.network = network
        self.name = name
        self._alive = True

    def kill(self, *, silent: bool) -> None:
        self._alive = False
        self.network.crash(self.name, silent=silent)

    @property
    def host_name(self) -> str:
        return self.name

    async def bind(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> "SimBinding":
        self._check_alive()
        if host not in (*_WILDCARDS, self.name):
            raise OSError(errno.EADDRNOTAVAIL, f"{host} is not an address of the simulated host {self.name}")
        port = port or self.network.free_port()
        if (self.name, port) in self.network.bound:
            raise OSError(errno.EADDRINUSE, f"port {port} of {self.name} is in use")
        self.network.bound[self.name, port] = None
        return SimBinding(self.network, self.name, port)

    async def listen(
        self, host: str, port: int, new_receiver: ReceiverFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> "SimListener":
        return (await self.bind(host, port, options)).listen(new_receiver)

    async def connect(self, host: str, port: int, new_receiver: ReceiverFactory) -> "SimStream":
        self._check_alive()
        network = self.network
        await network.reach(self.name, host)
        listener = network.bound.get((host, port))
        if listener is None or network.random.random() < network.profile.refuse_probability:
            network.note(f"network refused {self.name} -> {host}:{port}")
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"nothing listens on {host}:{port}")
        here = f"{self.name}:{network.free_port()}"
        client = SimStream(network, here, f"{host}:{port}", (host, port), copy_context())
        server = SimStream(network, f"{host}:{port}/{here}", here, (host, port), listener.context)
        client.other, server.other = server, client
        network.note(f"network connect {here} -> {host}:{port}")
        listener.add(server)
        client.attach(new_receiver(client))
        return client

    def _check_alive(self) -> None:
        if not self._alive:
            raise OSError(errno.ENETDOWN, f"the simulated process on {self.name} is dead")


class SimBinding:
    def __init__(self, network: SimNetwork, host: str, port: int) -> None:
        self._network = network
        self.address = host, port

    def listen(self, new_receiver: ReceiverFactory) -> "SimListener":
        listener = SimListener(self._network, *self.address, new_receiver)
        self._network.bound[self.address] = listener
        return listener

    def close(self) -> None:
        self._network.bound.pop(self.address, None)


class SimListener:
    def __init__(self, network: SimNetwork, host: str, port: int, new_receiver: ReceiverFactory) -> None:
        self._new_receiver = new_receiver
        self.context = copy_context()
        self._network = network
        self._host = host
        self._port = port
        self._paused = False
        self._backlog: deque[SimStream] = deque()  # connected, but not accepted yet

    @property
    def address(self) -> tuple[str, int]:
        return self._host, self._port

    def add(self, stream: "SimStream") -> None:
        """The kernel has connected it, also for a process that is paused and accepts it later."""
        self._backlog.append(stream)
        loop = asyncio.get_running_loop()
        if isinstance(loop, VirtualTimeLoop) and loop.is_paused(self.context):
            loop.call_soon(self._accept_waiting, context=self.context)
        else:
            self.context.run(self._accept_waiting)

    def pause(self) -> None:
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        if self._backlog:
            asyncio.get_running_loop().call_soon(self._accept_waiting, context=self.context)

    def _accept_waiting(self) -> None:
        while self._backlog and not self._paused:
            stream = self._backlog.popleft()
            if stream.is_open:
                stream.attach(self._new_receiver(stream))

    def close(self) -> None:
        while self._backlog:
            self._backlog.popleft().close()
        if self._network.bound.get(self.address) is self:
            del self._network.bound[self.address]


class SimStream:
    """One side of a connection. Sent bytes go from its `_backlog` to the other side's `_in_flight` and `_inbox`."""

    other: "SimStream"

    def __init__(
        self, network: SimNetwork, name: str, peer: str, local_address: tuple[str, int], context: Context
    ) -> None:
        self.name = name
        self.host = name.partition(":")[0]
        self.is_open = True
        self.sent_bytes = 0
        self._network = network
        self._peer = peer
        self._local_address = local_address
        self._context = context
        self._loop = asyncio.get_running_loop()
        self._receiver: Receiver | None = None
        self._reading = True
        self._waits_for_drain = False
        self._peer_is_alive = True  # False: the other side lost its power and gets nothing more
        self._backlog: deque[memoryview] = deque()
        self._window_left = network.profile.window_bytes
        self._last_arrival = 0.0
        self._unacknowledged = 0
        # Towards this side. None: the other side has closed.
        self._in_flight: deque[memoryview | None] = deque()
        self._inbox: deque[memoryview | None] = deque()
        network.streams[name] = self

    def attach(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._inbox:
            self.wake()

    @property
    def peer(self) -> str:
        return self._peer

    @property
    def local_address(self) -> tuple[str, int]:
        return self._local_address

    def send(self, parts: Sequence[Part]) -> bool:
        if not self.is_open:
            return True
        try:
            data = b"".join(_read(part) for part in parts)
        except OSError as error:
            self._finish_soon(error)
            return True
        self._network.note(f"network send {self.name} {len(data)} crc {zlib.crc32(data):08x}")
        self._backlog.append(memoryview(data))
        self._pump()
        self._waits_for_drain = bool(self._backlog)  # a reset clears it
        return not self._waits_for_drain

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.wake()

    def close(self) -> None:
        if self.is_open:
            self._finish_soon(None)

    def wake(self) -> None:
        """Tries to deliver again, after a pause or a network partition."""
        if self.is_open:
            self._loop.call_soon(self._deliver, context=self._context)

    def reset(self, reason: str) -> None:
        self._network.note(f"network reset {self.name}")
        for side in (self, self.other):
            side._inbox.clear()
            side._finish_soon(ConnectionResetError(errno.ECONNRESET, reason))

    def vanish(self, *, silent: bool) -> None:
        """The process of this side is dead and gets no more calls."""
        self._forget()
        self.other._peer_is_alive = not silent
        if silent or not self.other.is_open or self._network.is_cut(self.host, self.other.host):
            return
        latency_s = self._network.latency_s(self.host, self.other.host)
        if latency_s is not None:
            error = ConnectionResetError(errno.ECONNRESET, f"{self.host} is dead")
            self._loop.call_later(latency_s, self.other._finish_soon, error, context=self.other._context)

    def _pump(self) -> None:
        """Sends as much of the backlog as the window allows, in chunks of random size."""
        network, profile = self._network, self._network.profile
        while self._backlog and self._window_left > 0:
            if network.random.random() < profile.reset_probability:
                self.reset("the simulated network reset the connection")
                return
            data = self._backlog[0]
            size = min(len(data), self._window_left, network.random.randint(1, profile.chunk_bytes_max))
            self._window_left -= size
            self.sent_bytes += size
            self._transmit(data[:size])
            if size == len(data):
                self._backlog.popleft()
            else:
                self._backlog[0] = data[size:]
        if self._waits_for_drain and not self._backlog:
            self._waits_for_drain = False
            self._loop.call_soon(self._drained, context=self._context)

    def _transmit(self, chunk: memoryview | None) -> None:
        if not self._peer_is_alive:
            return
        latency_s = self._network.latency_s(self.host, self.other.host)
        if latency_s is None:
            self._last_arrival = self._loop.time() + GIVE_UP_S  # nothing overtakes the lost chunk
            self._loop.call_at(self._last_arrival, self._give_up, context=Context())
        else:
            self._last_arrival = max(self._last_arrival, self._loop.time() + latency_s)
            # Timers of the same moment fire in any order, so a queue keeps the order of the chunks.
            self.other._in_flight.append(chunk)
            self._loop.call_at(self._last_arrival, self.other._arrive, context=self.other._context)

    def _give_up(self) -> None:
        """TCP has sent a chunk again and again without an ACK."""
        if self.is_open:
            self.reset(f"{self.host} got no ACK from {self.other.host}")

    def _arrive(self) -> None:
        chunk = self._in_flight.popleft()
        if self.is_open:
            self._inbox.append(chunk)
            self._deliver()
        elif chunk is not None and self.other.is_open:
            # TCP responds with a reset to bytes for a closed side.
            self.other._finish_soon(ConnectionResetError(errno.ECONNRESET, f"{self.host} has closed"))

    def _deliver(self) -> None:
        receiver = self._receiver
        while receiver and self._inbox and self.is_open and self._reading and not self._is_partitioned():
            chunk = self._inbox[0]
            if chunk is None:
                self._finish_soon(None)
                return
            buffer = receiver.buffer()
            count = min(len(buffer), len(chunk))
            buffer[:count] = chunk[:count]
            self._inbox[0] = chunk[count:]
            if count == len(chunk):
                self._inbox.popleft()
            receiver.received(count)
            self._unacknowledged += count
        self._acknowledge()

    def _acknowledge(self) -> None:
        """Lets the other side send more. The ACKs travel in the other direction than the bytes."""
        if self._unacknowledged and not self._network.is_cut(self.host, self.other.host):
            self.other._window_left += self._unacknowledged
            self._unacknowledged = 0
            self.other._pump()

    def _is_partitioned(self) -> bool:
        return self._network.is_cut(self.other.host, self.host)

    def _drained(self) -> None:
        if self.is_open and self._receiver is not None:
            self._receiver.drained()

    def _finish_soon(self, error: OSError | None) -> None:
        """Closes this side. The loop calls the receiver; the other side notices after the bytes in flight."""
        if self.is_open:
            self._network.note(f"network close {self.name} {error or ''}")
            self._forget()
            self._transmit(None)
            if self._receiver is not None:
                self._loop.call_soon(self._receiver.closed, error, context=self._context)

    def _forget(self) -> None:
        self.is_open = False
        self._backlog.clear()
        self._inbox.clear()
        del self._network.streams[self.name]


def _read(part: Part) -> bytes | bytearray | memoryview:
    if not isinstance(part, FileRegion):
        return part
    file = part.file
    data = file.send_at(part.position, part.length) if isinstance(file, SimFile) else part.read()
    if len(data) != part.length:
        raise OSError(errno.EIO, "the file ended before the end of the region to send")
    return data
