"""Streams of bytes between nodes. `real_network.py` has the real ones, `ottla.sim.network` the simulated."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from ottla.model.region import FileRegion

Part = bytes | bytearray | memoryview | FileRegion


class Receiver(Protocol):
    """What a connection's owner implements. All calls come from the event loop, never from inside `send`."""

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        ...

    def received(self, count: int) -> None:
        """`count` bytes were put into the last `buffer()`."""
        ...

    def drained(self) -> None:
        """Everything passed to `send` has left; called only after a `send` that returned False."""
        ...

    def closed(self, error: OSError | None) -> None:
        """The stream is gone; called exactly once."""
        ...


class Stream(Protocol):
    """One connection. Bytes go out in the order of `send`."""

    @property
    def peer(self) -> str:
        """host:port of the other side, for log lines."""
        ...

    @property
    def local_address(self) -> tuple[str, int]:
        """The address that the other side connected to."""
        ...

    @property
    def sent_bytes(self) -> int:
        """How many have left so far: a peer that reads slowly is not idle."""
        ...

    def send(self, parts: Sequence[Part]) -> bool:
        """Takes over all of `parts`; True when they have left already, False when `drained` will follow."""
        ...

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        """Closes at once; what has not left is dropped. `closed` follows."""
        ...


class SocketOptions(NamedTuple):
    """Of a listener and the connections that it accepts. None: as the system has it."""

    send_buffer_bytes: int | None = None
    receive_buffer_bytes: int | None = None
    backlog: int = 1024  # connections that wait to be accepted


DEFAULT_OPTIONS = SocketOptions()


class Listener(Protocol):
    @property
    def address(self) -> tuple[str, int]: ...

    def pause(self) -> None:
        """Accepts nothing until `resume`: who connects meanwhile waits."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class Network(Protocol):
    async def listen(
        self,
        host: str,
        port: int,
        accept: Callable[[Stream], Receiver],
        options: SocketOptions = DEFAULT_OPTIONS,
    ) -> Listener:
        """Port 0 picks a free one. OSError where the address cannot be had."""
        ...

    async def connect(self, host: str, port: int, make: Callable[[Stream], Receiver]) -> Stream: ...
