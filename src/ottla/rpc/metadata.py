"""Metadata (key 3), version 4, which every broker since Kafka 1.0 knows: the leaders of a topic's partitions.

Written by hand for the Spark reader: importing kio would make each of its short-lived processes start later.
"""

from typing import NamedTuple

from ottla.protocol.primitives import (
    INT16,
    INT32,
    MALFORMED,
    check_fully_read,
    encode_string,
    read_count,
    read_string,
    required,
)
from ottla.rpc.addresses import Address
from ottla.rpc.client_protocol import ResponseError

METADATA_VERSION = 4
_NO_AUTO_CREATION = b"\0"


class PartitionMetadata(NamedTuple):
    error_code: int
    partition: int
    leader_id: int


class TopicMetadata(NamedTuple):
    error_code: int
    name: str
    partitions: list[PartitionMetadata]


class Metadata(NamedTuple):
    brokers: dict[int, Address]
    topics: list[TopicMetadata]


def encode_metadata_request(topic: str) -> bytes:
    """The body of a request for one topic. The broker does not create the topic."""
    return INT32.pack(1) + encode_string(topic) + _NO_AUTO_CREATION


def decode_metadata_response(body: memoryview) -> Metadata:
    """Raises ResponseError for bytes that are not exactly one response."""
    try:
        return _decode(body)
    except MALFORMED as error:
        raise ResponseError(f"a response to Metadata v{METADATA_VERSION} cannot be read: {error}") from None


def _decode(body: memoryview) -> Metadata:
    count, position = read_count(body, INT32.size)  # after the throttle time
    brokers: dict[int, Address] = {}
    for _ in range(count):
        (node_id,) = INT32.unpack_from(body, position)
        host, position = read_string(body, position + INT32.size)
        (port,) = INT32.unpack_from(body, position)
        _, position = read_string(body, position + INT32.size)  # rack
        brokers[node_id] = Address(required(host), port)
    _, position = read_string(body, position)  # cluster id
    count, position = read_count(body, position + INT32.size)  # after the controller's id
    topics: list[TopicMetadata] = []
    for _ in range(count):
        topic, position = _decode_topic(body, position)
        topics.append(topic)
    check_fully_read(body, position)
    return Metadata(brokers, topics)


def _decode_topic(body: memoryview, position: int) -> tuple[TopicMetadata, int]:
    (error_code,) = INT16.unpack_from(body, position)
    name, position = read_string(body, position + INT16.size)
    count, position = read_count(body, position + 1)  # after "is internal"
    partitions: list[PartitionMetadata] = []
    for _ in range(count):
        (partition_error,) = INT16.unpack_from(body, position)
        (partition,) = INT32.unpack_from(body, position + 2)
        (leader_id,) = INT32.unpack_from(body, position + 6)
        replicas, position = read_count(body, position + 10)
        in_sync, position = read_count(body, position + replicas * INT32.size)
        position += in_sync * INT32.size
        partitions.append(PartitionMetadata(partition_error, partition, leader_id))
    return TopicMetadata(error_code, required(name), partitions), position
