"""Kafka's wire format as raw bytes on a plain socket, without a client library."""

import socket
import struct
import time
import zlib
from types import TracebackType

from crc32c import crc32c

PRODUCE = 0
FETCH = 1
METADATA = 3
API_VERSIONS = 18
GZIP = 1


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
    """A socket that sends raw bytes and reads one response frame at a time."""

    def __init__(self, bootstrap: str, timeout_s: float = 10.0) -> None:
        self._socket = socket.create_connection(address_of(bootstrap), timeout=timeout_s)

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)

    def receive(self) -> bytes:
        """The next response without its length. Raises ConnectionError if the broker has closed the connection."""
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
    """Whether the broker responds to a Metadata request (v1, no topics)."""
    try:
        with WireClient(bootstrap, timeout_s) as client:
            return len(client.ask(request(METADATA, 1, struct.pack(">i", 0)))) > 4
    except OSError:
        return False


def string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def varint(value: int) -> bytes:
    """Zigzag, seven bits to a byte, as records write their lengths."""
    value = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(encoded) + bytes([value])


def record(value: bytes, offset_delta: int = 0) -> bytes:
    """A record of batch format v2: no key, no headers."""
    body = b"\0" + varint(0) + varint(offset_delta) + varint(-1) + varint(len(value)) + value + varint(0)
    return varint(len(body)) + body


def batch(
    records: bytes,
    count: int = 1,
    *,
    attributes: int = 0,
    magic: int = 2,
    crc: int | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    timestamp_ms: int | None = None,
) -> bytes:
    """A batch of format v2 around `records` (already compressed if `attributes` have a codec).

    `producer` is its id, its epoch and the sequence number of the first record.
    """
    now_ms = int(time.time() * 1000) if timestamp_ms is None else timestamp_ms
    checked = struct.pack(">hiqqqhii", attributes, count - 1, now_ms, now_ms, *producer, count) + records
    crc = crc32c(checked) if crc is None else crc
    return struct.pack(">qiibI", 0, 9 + len(checked), -1, magic, crc) + checked


def old_message(value: bytes, magic: int) -> bytes:
    """A message of the formats before batches: magic 0, or 1 (with a timestamp)."""
    timestamp = struct.pack(">q", int(time.time() * 1000)) if magic == 1 else b""
    checked = struct.pack(">bb", magic, 0) + timestamp + struct.pack(">ii", -1, len(value)) + value
    return struct.pack(">qiI", 0, 4 + len(checked), zlib.crc32(checked)) + checked


def produce_request(topic: str, records: bytes, *, acks: int = -1) -> bytes:
    """Produce v7 to partition 0."""
    partition = struct.pack(">iii", 1, 0, len(records)) + records
    return request(PRODUCE, 7, struct.pack(">hhii", -1, acks, 10_000, 1) + string(topic) + partition)


def produce_error(response: bytes, topic: str) -> int:
    """The error code of the one partition in a Produce v7 response."""
    position = 4 + 4 + len(string(topic)) + 4 + 4
    (code,) = struct.unpack_from(">h", response, position)
    return int(code)


def fetch_request(topic: str, *, max_bytes: int, correlation_id: int = 7) -> bytes:
    """Fetch v4 of partition 0 from its beginning, without waiting."""
    limits = struct.pack(">iiiib", -1, 0, 1, max_bytes, 0)
    partition = struct.pack(">iiqi", 1, 0, 0, max_bytes)
    return request(
        FETCH, 4, limits + struct.pack(">i", 1) + string(topic) + partition, correlation_id=correlation_id
    )
