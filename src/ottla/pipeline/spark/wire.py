"""Reads one partition over `ottla.rpc`, with Metadata and Fetch in versions that every broker since Kafka 1.0 knows.

The record batches of a Fetch stay in the bytes that the broker sent: `record_rows` decodes many records at once.
"""

from typing import NamedTuple

from ottla.model.ids import TopicPartition
from ottla.records.columns import PADDING
from ottla.rpc import Address, ApiKey, BlockingConnection, ResponseError
from ottla.rpc.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    decode_fetch_response,
    encode_fetch_request,
)
from ottla.rpc.metadata import (
    METADATA_VERSION,
    Metadata,
    decode_metadata_response,
    encode_metadata_request,
)

_FETCH_VERSION = 4

NO_ERROR = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3


class PartitionFetch(NamedTuple):
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
    """Has one request in flight at a time. What was fetched is overwritten by the next response."""

    def __init__(self, address: Address, client_id: str, timeout_s: float) -> None:
        self._buffer = bytearray()
        self._connection = BlockingConnection(address, client_id, timeout_s, allocate=self._allocate)

    def close(self) -> None:
        self._connection.close()

    def find_leader(self, at: TopicPartition) -> Address | None:
        """None while the partition has no leader. Raises LookupError if the partition does not exist."""
        body = self._connection.call(ApiKey.METADATA, METADATA_VERSION, encode_metadata_request(at.topic))
        return leader_of(decode_metadata_response(body), at)

    def send_fetch(self, fetch: PartitionFetch) -> None:
        self._connection.send(ApiKey.FETCH, _FETCH_VERSION, encode_fetch(fetch))

    def receive_fetch(self) -> Fetched:
        body = self._connection.receive().body
        return decode_fetch(self._buffer, len(body))

    def _allocate(self, size: int) -> bytearray:
        # New memory for every response would cost as much as reading it.
        if len(self._buffer) < size + len(PADDING):
            self._buffer = bytearray(size + len(PADDING))
        return self._buffer


def leader_of(metadata: Metadata, at: TopicPartition) -> Address | None:
    """None while the partition has no leader. Raises LookupError if the partition does not exist."""
    for topic in metadata.topics:
        if topic.error_code == UNKNOWN_TOPIC_OR_PARTITION:
            raise LookupError(at)
        for partition in topic.partitions:
            if partition.partition == at.partition:
                return metadata.brokers.get(partition.leader_id)
    raise LookupError(at)


def encode_fetch(fetch: PartitionFetch) -> bytes:
    partition = FetchPartition(fetch.at.partition, -1, fetch.offset, -1, -1, fetch.bytes_max)
    request = FetchRequest(
        replica_id=-1,
        replica_epoch=-1,
        max_wait_ms=fetch.wait_ms,
        min_bytes=1,
        max_bytes=fetch.bytes_max,
        isolation_level=1 if fetch.read_committed else 0,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(fetch.at.topic, None, [partition])],
        forgotten=[],
    )
    return encode_fetch_request(request, _FETCH_VERSION)


def decode_fetch(data: bytearray, length: int) -> Fetched:
    """The first `length` bytes of `data` are the response to a fetch of one partition."""
    response = decode_fetch_response(memoryview(data)[:length], _FETCH_VERSION)
    partitions = [partition for topic in response.topics for partition in topic.partitions]
    if len(partitions) != 1:
        raise ResponseError(f"a response has {len(partitions)} partitions, but one was requested")
    (partition,) = partitions
    # In this version the records of the last partition are the end of the response.
    size = len(partition.records) if isinstance(partition.records, memoryview) else 0
    return Fetched(partition.error_code, data, length - size, length, list(partition.aborted or ()))
