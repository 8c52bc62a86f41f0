"""The embedded consumer protocol: the metadata and assignments that consumers exchange through the classic protocol.

The coordinator reads subscriptions to know which topics a group consumes (KIP-211), and subscriptions and assignments
to convert a group between the classic and the consumer protocol (KIP-848).
"""

from collections.abc import Mapping
from typing import NamedTuple

from ottla.protocol.primitives import INT16, INT32, MALFORMED, encode_string, read_string, required

CONSUMER_PROTOCOL_TYPE = "consumer"
_HIGHEST_VERSION = 3
_NULL_BYTES = INT32.pack(-1)


class ConsumerProtocolSubscription(NamedTuple):
    """`owned_partitions` from version 1, `generation_id` from 2, `rack_id` from 3."""

    version: int
    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[tuple[str, tuple[int, ...]], ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class ConsumerProtocolAssignment(NamedTuple):
    version: int
    partitions: tuple[tuple[str, tuple[int, ...]], ...]
    user_data: bytes | None = None


def read_subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """The topics of a subscription of any version, because version 0 is a prefix of all. None if it is malformed."""
    try:
        buffer = memoryview(metadata)
        topics, position = _read_strings(buffer, 2)
    except MALFORMED:
        return None
    return topics if position <= len(buffer) else None


def read_subscription(metadata: bytes) -> ConsumerProtocolSubscription | None:
    """None if it is malformed. Unknown versions are read as the highest known one."""
    try:
        buffer = memoryview(metadata)
        (version,) = INT16.unpack_from(buffer)
        if version < 0:
            return None
        topics, position = _read_strings(buffer, 2)
        user_data, position = _read_bytes(buffer, position)
        owned: tuple[tuple[str, tuple[int, ...]], ...] = ()
        generation_id, rack_id = -1, None
        if version >= 1:
            owned, position = _read_partitions(buffer, position)
        if version >= 2:
            (generation_id,) = INT32.unpack_from(buffer, position)
            position += INT32.size
        if version >= 3:
            rack_id, position = read_string(buffer, position)
    except MALFORMED:
        return None
    if position > len(buffer):
        return None
    return ConsumerProtocolSubscription(
        min(version, _HIGHEST_VERSION), topics, user_data, owned, generation_id, rack_id
    )


def read_assignment(assignment: bytes) -> ConsumerProtocolAssignment | None:
    """None if it is malformed, or empty because the leader assigned nothing to the member."""
    try:
        buffer = memoryview(assignment)
        (version,) = INT16.unpack_from(buffer)
        if version < 0:
            return None
        partitions, position = _read_partitions(buffer, INT16.size)
        user_data, position = _read_bytes(buffer, position)
    except MALFORMED:
        return None
    if position > len(buffer):
        return None
    return ConsumerProtocolAssignment(min(version, _HIGHEST_VERSION), partitions, user_data)


def write_assignment(version: int, partitions: Mapping[str, tuple[int, ...]]) -> bytes:
    """All versions of an assignment have the same format."""
    parts = [INT16.pack(version), INT32.pack(len(partitions))]
    for topic, indexes in partitions.items():
        parts += [encode_string(topic), INT32.pack(len(indexes)), *map(INT32.pack, indexes)]
    parts.append(_NULL_BYTES)
    return b"".join(parts)


def _read_strings(buffer: memoryview, position: int) -> tuple[tuple[str, ...], int]:
    count, position = _read_count(buffer, position)
    texts = []
    for _ in range(count):
        text, position = read_string(buffer, position)
        texts.append(required(text))
    return tuple(texts), position


def _read_partitions(
    buffer: memoryview, position: int
) -> tuple[tuple[tuple[str, tuple[int, ...]], ...], int]:
    count, position = _read_count(buffer, position)
    topics = []
    for _ in range(count):
        topic, position = read_string(buffer, position)
        num_partitions, position = _read_count(buffer, position)
        indexes = []
        for _ in range(num_partitions):
            indexes.append(INT32.unpack_from(buffer, position)[0])
            position += INT32.size
        topics.append((required(topic), tuple(indexes)))
    return tuple(topics), position


def _read_bytes(buffer: memoryview, position: int) -> tuple[bytes | None, int]:
    (length,) = INT32.unpack_from(buffer, position)
    position += INT32.size
    if length < 0:
        return None, position
    return bytes(buffer[position : position + length]), position + length


def _read_count(buffer: memoryview, position: int) -> tuple[int, int]:
    """The length of an array. Raises ValueError if the buffer is too short for that many elements."""
    (count,) = INT32.unpack_from(buffer, position)
    position += INT32.size
    if not 0 <= count <= len(buffer) - position:
        raise ValueError(f"an array claims {count} elements where {len(buffer) - position} bytes are left")
    return count, position
