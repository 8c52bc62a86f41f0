"""Shared parts of the hand-written codecs: strings, topic ids, tagged fields, leader hints (KIP-951).

Readers take a position and return the next one. They may run past the end of the buffer, because slices do not fail
there, but positions only grow, so that a codec needs only one check at its end. Malformed bytes raise one of MALFORMED.
"""

import uuid
from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.protocol.varint import encode_uvarint, read_uvarint

# UnicodeDecodeError is a ValueError.
MALFORMED = (IndexError, ValueError, StructError)

INT16 = Struct(">h")
INT32 = Struct(">i")
LEADER = Struct(">ii")
_PARTITION_ERROR = Struct(">ih")
_FLEXIBLE_PARTITION_ERROR = Struct(">ihB")
NO_TAGS = b"\x00"
NO_THROTTLE_TIME = bytes(4)
# Kafka has this limit for compact strings too, because older versions and records cannot store more.
STRING_BYTES_MAX = 0x7FFF
# The limit for all arrays of a request together. An element takes some microseconds and some hundred bytes until the
# response. Clients stay far below: the offsets of 100,000 partitions, each of its own topic, have 200,000 elements.
ELEMENTS_MAX = 250_000


class LeaderIdAndEpoch(NamedTuple):
    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    node_id: int
    host: str
    port: int
    rack: str | None = None


# Cached because making a UUID takes longer than decoding the rest of a small request.
@lru_cache(maxsize=4096)
def topic_id_of(raw: bytes) -> uuid.UUID:
    """Raises ValueError if `raw` does not have 16 bytes."""
    return uuid.UUID(bytes=raw)


def read_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    """A string with an int16 length, -1 for null."""
    (length,) = INT16.unpack_from(buffer, position)
    position += 2
    if length < 0:
        if length != -1:
            raise ValueError(f"a string has the length {length}")
        return None, position
    end = position + length
    return str(buffer[position:end], "utf-8"), end


def read_compact_string(buffer: memoryview, position: int) -> tuple[str | None, int]:
    length = buffer[position]
    position += 1
    if length >= 0x80:
        length, position = read_uvarint(buffer, position - 1)
        if length - 1 > STRING_BYTES_MAX:
            raise ValueError(f"a string has more than {STRING_BYTES_MAX} bytes")
    if length == 0:
        return None, position
    end = position + length - 1
    return str(buffer[position:end], "utf-8"), end


def required(text: str | None) -> str:
    if text is None:
        raise ValueError("a required string is null")
    return text


def read_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """The length of an array that must not be null."""
    (count,) = INT32.unpack_from(buffer, position)
    if count < 0:
        raise ValueError(f"an array has the length {count}")
    return count, position + 4


def read_compact_count(buffer: memoryview, position: int) -> tuple[int, int]:
    count = buffer[position]
    position += 1
    if count >= 0x80:
        count, position = read_uvarint(buffer, position - 1)
    if count == 0:
        raise ValueError("a required array is null")
    return count - 1, position


def count_elements(before: int, more: int) -> int:
    """The number of elements of a request, before `more` are read. Raises ValueError if there are too many."""
    elements = before + more
    if elements > ELEMENTS_MAX:
        raise ValueError(
            f"its arrays have {elements} elements or more, but only {ELEMENTS_MAX} are allowed: split the request"
        )
    return elements


def read_tags(buffer: memoryview, position: int) -> tuple[dict[int, memoryview], int]:
    """The tagged fields by tag. Readers ignore unknown tags (KIP-482)."""
    count, position = read_uvarint(buffer, position)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, position = read_uvarint(buffer, position)
        size, position = read_uvarint(buffer, position)
        end = position + size
        if end > len(buffer) or tag in tags:
            raise ValueError(f"tagged field {tag} is cut off or duplicate")
        tags[tag] = buffer[position:end]
        position = end
    return tags, position


def skip_tags(buffer: memoryview, position: int) -> int:
    if buffer[position] == 0:
        return position + 1
    return read_tags(buffer, position)[1]


def encode_string(text: str | None) -> bytes:
    if text is None:
        return b"\xff\xff"
    raw = text.encode()
    return INT16.pack(len(raw)) + raw


def encode_compact_string(text: str | None) -> bytes:
    if text is None:
        return b"\x00"
    raw = text.encode()
    return encode_uvarint(len(raw) + 1) + raw


def encode_tags(tags: dict[int, bytes]) -> bytes:
    """`tags` must be in ascending order."""
    parts = [encode_uvarint(len(tags))]
    for tag, value in tags.items():
        parts += (encode_uvarint(tag), encode_uvarint(len(value)), value)
    return b"".join(parts)


def encode_leader(leader: LeaderIdAndEpoch) -> bytes:
    return LEADER.pack(*leader) + NO_TAGS


def read_leader(buffer: memoryview) -> LeaderIdAndEpoch:
    check_fully_read(buffer, skip_tags(buffer, LEADER.size))
    return LeaderIdAndEpoch(*LEADER.unpack_from(buffer))


def encode_node_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    parts = [encode_uvarint(len(endpoints) + 1)]
    for node_id, host, port, rack in endpoints:
        parts += (
            INT32.pack(node_id),
            encode_compact_string(host),
            INT32.pack(port),
            encode_compact_string(rack),
            NO_TAGS,
        )
    return b"".join(parts)


def read_node_endpoints(buffer: memoryview) -> list[NodeEndpoint]:
    count, position = read_compact_count(buffer, 0)
    endpoints: list[NodeEndpoint] = []
    for _ in range(count):
        (node_id,) = INT32.unpack_from(buffer, position)
        host, position = read_compact_string(buffer, position + 4)
        (port,) = INT32.unpack_from(buffer, position)
        rack, position = read_compact_string(buffer, position + 4)
        position = skip_tags(buffer, position)
        endpoints.append(NodeEndpoint(node_id, required(host), port, rack))
    check_fully_read(buffer, position)
    return endpoints


# The encoded name or id of a topic, and the indexes of its partitions.
EncodedTopic = tuple[bytes, Sequence[int]]


def encode_partition_errors(
    topics: Sequence[EncodedTopic], codes: Iterator[ErrorCode], *, flexible: bool
) -> list[bytes]:
    """The common form of many responses: the topics, their partitions, and an error code for each partition.

    `codes` has one code per partition, in the order of `topics`.
    """
    if not flexible:
        parts = [INT32.pack(len(topics))]
        for topic, indexes in topics:
            parts += (topic, INT32.pack(len(indexes)))
            parts += [_PARTITION_ERROR.pack(index, next(codes)) for index in indexes]
        return parts
    parts = [encode_uvarint(len(topics) + 1)]
    for topic, indexes in topics:
        parts += (topic, encode_uvarint(len(indexes) + 1))
        parts += [_FLEXIBLE_PARTITION_ERROR.pack(index, next(codes), 0) for index in indexes]
        parts.append(NO_TAGS)
    return parts


def check_in_bounds(body: memoryview, position: int) -> None:
    """Raises ValueError if the reader ran past the end. Bytes after the request are ignored, as Kafka does."""
    if position > len(body):
        raise ValueError(f"the message ends at byte {position} of {len(body)}")


def check_fully_read(buffer: memoryview, position: int) -> None:
    """Raises ValueError if the reader did not stop exactly at the end."""
    if position != len(buffer):
        raise ValueError(f"the message ends at byte {position} of {len(buffer)}")
