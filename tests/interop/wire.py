"""Kafka's wire format at its barest: frames as bytes on a plain socket, with no client in between."""

import socket
import struct
from types import TracebackType

API_VERSIONS = 18
METADATA = 3
PRODUCE = 0


def request(
    api_key: int, api_version: int, body: bytes = b"", *, correlation_id: int = 7, flexible: bool = False
) -> bytes:
    """One framed request. `flexible`: the version's request header carries tagged fields (header v2)."""
    header = (
        struct.pack(">hhih", api_key, api_version, correlation_id, 4) + b"wire" + (b"\0" if flexible else b"")
    )
    return frame(header + body)


def frame(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def address_of(bootstrap: str) -> tuple[str, int]:
    host, _, port = bootstrap.rpartition(":")
    return host, int(port)


class WireClient:
    """A socket that sends bytes as they are and reads one response frame at a time."""

    def __init__(self, bootstrap: str, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(address_of(bootstrap), timeout=timeout_s)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next response without its length. ConnectionError where the broker closed the connection."""
        (length,) = struct.unpack(">i", self._read(4))
        return self._read(length)

    def ask(self, data: bytes) -> bytes:
        self.send(data)
        return self.receive()

    def is_closed_by_peer(self) -> bool:
        """Waits for the next byte or the end of the stream; True at the end."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._socket.close()

    def __enter__(self) -> "WireClient":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _read(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            chunk = self._socket.recv(count - len(data))
            if not chunk:
                raise ConnectionError(f"the broker closed the connection after {len(data)} of {count} bytes")
            data += chunk
        return bytes(data)


def answers_metadata(bootstrap: str, timeout_s: float = 1.0) -> bool:
    """Whether the broker serves: it answers a Metadata request (v1, no topics)."""
    try:
        with WireClient(bootstrap, timeout_s) as client:
            return len(client.ask(request(METADATA, 1, struct.pack(">i", 0)))) > 4
    except OSError:
        return False
