"""The two requests that reading a partition takes, Metadata and Fetch, on a plain socket, in versions that every
broker since Kafka 1.0 knows.

The bytes of a Fetch stay as the broker sent them, for `record_rows` to look at many records at once.
"""

import socket
import struct
from collections.abc import Iterable
from typing import NamedTuple

from ottla.pipeline.spark.offsets import TopicPartition
from ottla.records.columns import PADDING

METADATA, METADATA_VERSION = 3, 4
FETCH, FETCH_VERSION = 1, 4

SIZE = struct.Struct(">i")
REQUEST = struct.Struct(">ihhi")  # size, API key, version, correlation id
FETCH_HEAD = struct.Struct(">iiiib")  # replica, wait at most, bytes at least, bytes at most, isolation level
FETCH_PARTITION = struct.Struct(">iiqi")  # how many partitions: one; which, from where, bytes at most

NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3


class Address(NamedTuple):
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class FetchRequest(NamedTuple):
    at: TopicPartition
    offset: int
    bytes_max: int
    wait_ms: int
    read_committed: bool


class Fetched(NamedTuple):
    """`data` from `start` to `end` is record batches, of which the last may be cut off; PADDING can be read behind.

    `aborted`: (producer id, first offset) of the aborted transactions among them, with read_committed.
    """

    error: int
    data: bytearray
    start: int
    end: int
    aborted: list[tuple[int, int]]


class Connection:
    """One request at a time is on its way; what it fetched is good until the next answer is read."""

    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        self.client_id = text(client_id)
        self.sent = 0
        self.buffer = bytearray()
        self.socket = socket.create_connection(address, timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        self.socket.close()

    def send(self, api_key: int, version: int, body: bytes) -> None:
        self.sent += 1
        size = REQUEST.size - SIZE.size + len(self.client_id) + len(body)
        self.socket.sendall(REQUEST.pack(size, api_key, version, self.sent) + self.client_id + body)

    def receive(self) -> int:
        """The answer into `buffer`, behind the correlation id; returns where it ends."""
        head = bytearray(2 * SIZE.size)
        self.fill(memoryview(head))
        size, correlation_id = SIZE.unpack_from(head)[0], SIZE.unpack_from(head, SIZE.size)[0]
        if size < SIZE.size or correlation_id != self.sent:
            raise ConnectionError("it sent something that is no answer to the request")
        length = int(size) - SIZE.size
        if len(self.buffer) < length + len(PADDING):
            # New memory for every answer would cost as much as reading it.
            self.buffer = bytearray(length + len(PADDING))
        self.fill(memoryview(self.buffer)[:length])
        return length

    def fill(self, target: memoryview) -> None:
        while target:
            count = self.socket.recv_into(target)
            if count == 0:
                raise ConnectionError("it closed the connection")
            target = target[count:]

    def leader(self, at: TopicPartition) -> Address | None:
        """None while the partition has none; LookupError where it does not exist."""
        self.send(METADATA, METADATA_VERSION, SIZE.pack(1) + text(at.topic) + b"\0")
        length = self.receive()
        return leader_of(bytes(memoryview(self.buffer)[:length]), at)

    def ask(self, request: FetchRequest) -> None:
        self.send(FETCH, FETCH_VERSION, fetch_body(request))

    def fetched(self) -> Fetched:
        length = self.receive()
        return read_fetched(self.buffer, length)


def text(value: str) -> bytes:
    encoded = value.encode()
    return struct.pack(">h", len(encoded)) + encoded


def addresses(servers: str) -> list[Address]:
    """bootstrap.servers: host:port, split by commas; the port may be left out, as in librdkafka."""
    found = []
    for server in filter(None, map(str.strip, servers.split(","))):
        host, colon, port = server.rpartition("://")[2].rpartition(":")
        if not colon or not port.isdigit():
            host, port = host + colon + port, "9092"
        found.append(Address(host.strip("[]"), int(port)))
    return found


def fetch_body(request: FetchRequest) -> bytes:
    head = FETCH_HEAD.pack(-1, request.wait_ms, 1, request.bytes_max, 1 if request.read_committed else 0)
    partition = FETCH_PARTITION.pack(1, request.at.partition, request.offset, request.bytes_max)
    return head + SIZE.pack(1) + text(request.at.topic) + partition


class Numbers:
    """Takes fields from the front of an answer."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.position = 0

    def take(self, form: str) -> int:
        try:
            (value,) = struct.unpack_from(form, self.data, self.position)
        except struct.error:
            raise ConnectionError("it sent an answer that is cut off") from None
        self.position += struct.calcsize(form)
        return int(value)

    def text(self) -> str:
        length = max(0, self.take(">h"))
        self.position += length
        return self.data[self.position - length : self.position].decode()

    def skip_numbers(self) -> None:
        count = self.take(">i")
        self.position += 4 * count

    def each(self) -> Iterable[int]:
        return range(self.take(">i"))


def leader_of(answer: bytes, at: TopicPartition) -> Address | None:
    numbers = Numbers(answer)
    numbers.take(">i")  # throttled for
    brokers: dict[int, Address] = {}
    for _ in numbers.each():
        node, host, port = numbers.take(">i"), numbers.text(), numbers.take(">i")
        numbers.text()  # rack
        brokers[node] = Address(host, port)
    numbers.text()  # cluster id
    numbers.take(">i")  # controller
    for _ in numbers.each():
        error = numbers.take(">h")
        numbers.text(), numbers.take(">b")  # the topic that was asked for, whether it is internal
        if error == UNKNOWN_TOPIC_OR_PARTITION:
            raise LookupError(at)
        for _ in numbers.each():
            numbers.take(">h")
            partition, leader = numbers.take(">i"), numbers.take(">i")
            numbers.skip_numbers()  # replicas
            numbers.skip_numbers()  # those in sync
            if partition == at.partition:
                return brokers.get(leader)
    raise LookupError(at)


def read_fetched(data: bytearray, length: int) -> Fetched:
    """The answer to a request for one partition."""
    numbers = Numbers(data)
    numbers.take(">i")  # throttled for
    numbers.take(">i"), numbers.text()  # one topic
    numbers.take(">i"), numbers.take(">i")  # one partition
    error = numbers.take(">h")
    numbers.take(">q"), numbers.take(">q")  # high watermark, last stable offset
    aborted = [(numbers.take(">q"), numbers.take(">q")) for _ in numbers.each()]
    size = max(0, numbers.take(">i"))
    if numbers.position + size > length:
        raise ConnectionError("it sent an answer that is cut off")
    return Fetched(error, data, numbers.position, numbers.position + size, aborted)
