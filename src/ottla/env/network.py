"""Byte streams between nodes. `real_network.py` is the real network, `ottla.sim.network` the simulated one."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.model.region import FileRegion

Part = bytes | bytearray | memoryview | FileRegion


class Receiver(Protocol):
    """The owner of a connection. The event loop makes all these calls, never `Stream.send`."""

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty."""
        ...

    def received(self, count: int) -> None:
        """`count` bytes were received into the last `buffer()`."""
        ...

    def drained(self) -> None:
        """Everything passed to `send` was sent; called only after a `send` that returned False."""
        ...

    def closed(self, error: OSError | None) -> None:
        """The stream is closed; called exactly once."""
        ...


class Stream(Protocol):
    """One connection. Bytes are sent in the order of the `send` calls."""

    @property
    def peer(self) -> str:
        """host:port of the other side, for log messages."""
        ...

    @property
    def local_address(self) -> tuple[str, int]:
        """The address that the other side connected to."""
        ...

    @property
    def sent_bytes(self) -> int:
        """Bytes sent so far. A connection on which this grows is not idle, however slowly the peer reads."""
        ...

    def send(self, parts: Sequence[Part]) -> bool:
        """Sends `parts`. Returns True if all are sent; otherwise False, and `drained` follows."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Closes at once and drops unsent bytes. `closed` follows."""
        ...


class SocketOptions(NamedTuple):
    """Options of a listener and of the connections that it accepts. None: the default of the system."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    backlog: int = 1024  # connections that wait to be accepted


DEFAULT_OPTIONS = SocketOptions()

ReceiverFactory = Callable[[Stream], Receiver]


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    def pause(self) -> None:
        """Accepts no connections until `resume`; new ones wait in the backlog."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Binding(Protocol):
    """A reserved address. Connections to it are refused until `listen`."""

    @property
    def address(self) -> tuple[str, int]: ...

    def listen(self, new_receiver: ReceiverFactory) -> Listener:
        """Calls `new_receiver` for each accepted connection. The listener owns the address from now on."""
        ...

    def close(self) -> None: ...


class Network(Protocol):
    @property
    def host_name(self) -> str:
        """The name under which other machines know this one."""
        ...

    async def bind(self, host: str, port: int, options: SocketOptions = DEFAULT_OPTIONS) -> Binding:
        """Reserves an address. Port 0 picks a free port. Raises OSError if the address is not available."""
        ...

    async def listen(
        self, host: str, port: int, new_receiver: ReceiverFactory, options: SocketOptions = DEFAULT_OPTIONS
    ) -> Listener:
        """`bind`, and `listen` at once."""
        ...

    async def connect(self, host: str, port: int, new_receiver: ReceiverFactory) -> Stream: ...
