"""The real network, from which a test can cut a broker off.

Connections stay open and no byte arrives, as if a cable were pulled. When the network is whole again, the bytes that
were sent meanwhile arrive, unless one side has given up.
"""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from ottla.env.network import (
    DEFAULT_OPTIONS,
    Binding,
    Listener,
    Part,
    Receiver,
    ReceiverFactory,
    SocketOptions,
    Stream,
)
from ottla.env.real_network import RealNetwork

Address = tuple[str, int]


class Cut(NamedTuple):
    """What is cut off: all connections that others make to this node, all that it makes, or those to `targets`."""

    inbound: bool = False
    outbound: bool = False
    targets: frozenset[Address] = frozenset()


WHOLE = Cut()


class ControlledNetwork(RealNetwork):
    def __init__(self, cut: Cut = WHOLE) -> None:
        self._cut = cut
        self._streams: set[HeldStream] = set()
        self._changed = asyncio.Event()

    @property
    def cut(self) -> Cut:
        return self._cut

    @cut.setter
    def cut(self, cut: Cut) -> None:
        """On the event loop, once it runs."""
        self._cut = cut
        self._changed.set()
        self._changed = asyncio.Event()
        for stream in list(self._streams):
            stream.set_held(self._is_cut(stream.target))

    async def bind(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Binding:
        return _Binding(await super().bind(host, port, options), self)

    async def connect(self, host: str, port: int, new_receiver: ReceiverFactory) -> Stream:
        """Waits while the target is cut off: callers have timeouts, as with a network that loses packets."""
        target = (host, port)
        while self._is_cut(target):
            await self._changed.wait()
        made: list[HeldStream] = []

        def new_held(stream: Stream) -> Receiver:
            made.append(self.hold(stream, new_receiver, target))
            return made[0]

        await super().connect(host, port, new_held)
        return made[0]

    def hold(self, stream: Stream, new_receiver: ReceiverFactory, target: Address | None) -> "HeldStream":
        held = HeldStream(stream, target, self._streams)
        held.receiver = new_receiver(held)
        # The stream begins to read when it has its receiver, which is after this.
        asyncio.get_running_loop().call_soon(lambda: held.set_held(self._is_cut(target)))
        return held

    def _is_cut(self, target: Address | None) -> bool:
        """None is the target of a connection that somebody else has made."""
        if target is None:
            return self._cut.inbound
        return self._cut.outbound or target in self._cut.targets


class _Binding:
    def __init__(self, binding: Binding, network: ControlledNetwork) -> None:
        self._binding = binding
        self._network = network

    @property
    def address(self) -> Address:
        return self._binding.address

    def listen(self, new_receiver: ReceiverFactory) -> Listener:
        return self._binding.listen(lambda stream: self._network.hold(stream, new_receiver, None))

    def close(self) -> None:
        self._binding.close()


class HeldStream:
    """A stream and its receiver, each of which sees this object in place of the other."""

    receiver: Receiver

    def __init__(self, stream: Stream, target: Address | None, streams: "set[HeldStream]") -> None:
        self.target = target
        self._stream = stream
        self._streams = streams
        self._is_held = False
        self._is_read = True  # whether the receiver wants to read
        self._must_drain = False
        self._unsent: list[Part] = []
        streams.add(self)

    def set_held(self, is_held: bool) -> None:
        if is_held == self._is_held or self not in self._streams:
            return
        self._is_held = is_held
        if is_held:
            self._stream.pause_reading()
            return
        parts, self._unsent = self._unsent, []
        is_sent = self._stream.send(parts) if parts else self._must_drain
        if is_sent:
            self._must_drain = False
            self.receiver.drained()
        if self._is_read:
            self._stream.resume_reading()

    # the stream

    @property
    def peer(self) -> str:
        return self._stream.peer

    @property
    def local_address(self) -> Address:
        return self._stream.local_address

    @property
    def sent_bytes(self) -> int:
        return self._stream.sent_bytes

    def send(self, parts: Sequence[Part]) -> bool:
        if self._is_held:
            self._unsent.extend(parts)
            return False
        return self._stream.send(parts)

    def pause_reading(self) -> None:
        self._is_read = False
        self._stream.pause_reading()

    def resume_reading(self) -> None:
        self._is_read = True
        if not self._is_held:
            self._stream.resume_reading()

    def close(self) -> None:
        self._stream.close()

    # the receiver

    def buffer(self) -> memoryview:
        return self.receiver.buffer()

    def received(self, count: int) -> None:
        self.receiver.received(count)

    def drained(self) -> None:
        if self._is_held:
            self._must_drain = True
        else:
            self.receiver.drained()

    def closed(self, error: OSError | None) -> None:
        self._streams.discard(self)
        self._unsent.clear()
        receiver = self.receiver
        del self.receiver  # else both would stay in memory until the next garbage collection
        receiver.closed(error)
