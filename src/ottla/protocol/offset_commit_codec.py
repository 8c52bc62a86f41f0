"""OffsetCommit (key 8), versions 2-10, broker side: decodes requests and encodes responses.

v2-v4 retention time; v3 throttle time; v6 leader epochs (KIP-320); v7 static members (KIP-345); v8 flexible; v10 topic
ids instead of names (KIP-848).
"""

import uuid
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import ErrorCode
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    NO_THROTTLE_TIME,
    check_in_bounds,
    count_elements,
    encode_compact_string,
    encode_partition_errors,
    encode_string,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    required,
    skip_tags,
    topic_id_of,
)

_LAST_WITH_RETENTION = 4
_THROTTLE_TIME_FROM = 3
_LEADER_EPOCH_FROM = 6
_GROUP_INSTANCE_ID_FROM = 7
_FLEXIBLE_FROM = 8
_TOPIC_IDS_FROM = 10

NO_RETENTION = -1
_ONE_BYTE_MAX = 0x7F  # of a varint

OFFSET_FIELDS = "qi"  # an offset and its leader epoch, both in requests (from v6) and in records

_INT64 = Struct(">q")
_PARTITION = Struct(">iqi")
_PARTITION_V2 = Struct(">iq")


class OffsetCommitPartition(NamedTuple):
    """`position` is the position of the offset and leader epoch (OFFSET_FIELDS) in the request."""

    index: int  # type: ignore[assignment]  # hides tuple.index, which is not needed here
    offset: int
    leader_epoch: int
    metadata: str | None
    position: int


class OffsetCommitTopic(NamedTuple):
    """`name` up to v9, `topic_id` from v10."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[OffsetCommitPartition]


class OffsetCommitRequest(NamedTuple):
    group_id: str
    generation_or_member_epoch: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    topics: list[OffsetCommitTopic]


def read_commit_sender(body: bytes, version: int) -> bytes | None:
    """The first bytes of a request: group, generation and member. None if it is old or short, or has long names."""
    if version < _FLEXIBLE_FROM or not body:
        return None
    group_end = body[0]
    generation_end = group_end + INT32.size
    if group_end > _ONE_BYTE_MAX or generation_end >= len(body) or body[generation_end] > _ONE_BYTE_MAX:
        return None
    return body[: generation_end + body[generation_end]]


def decode_offset_commit_request(body: memoryview, version: int) -> OffsetCommitRequest:
    try:
        return _decode_flexible(body, version) if version >= _FLEXIBLE_FROM else _decode_rigid(body, version)
    except MALFORMED as error:
        raise MalformedRequest(f"OffsetCommit v{version} cannot be read: {error}") from error


def _decode_flexible(body: memoryview, version: int) -> OffsetCommitRequest:
    group_id, position = read_compact_string(body, 0)
    (generation,) = INT32.unpack_from(body, position)
    member_id, position = read_compact_string(body, position + 4)
    group_instance_id, position = read_compact_string(body, position)
    count, position = read_compact_count(body, position)
    elements = count_elements(0, count)
    topics: list[OffsetCommitTopic] = []
    for _ in range(count):
        name = topic_id = None
        if version >= _TOPIC_IDS_FROM:
            topic_id = topic_id_of(bytes(body[position : position + 16]))
            position += 16
        else:
            name, position = read_compact_string(body, position)
            name = required(name)
        partitions_count, position = read_compact_count(body, position)
        elements = count_elements(elements, partitions_count)
        partitions: list[OffsetCommitPartition] = []
        for _ in range(partitions_count):
            index, offset, leader_epoch = _PARTITION.unpack_from(body, position)
            at = position + INT32.size
            metadata, position = read_compact_string(body, position + 16)
            position = skip_tags(body, position)
            partitions.append(OffsetCommitPartition(index, offset, leader_epoch, metadata, at))
        position = skip_tags(body, position)
        topics.append(OffsetCommitTopic(name, topic_id, partitions))
    check_in_bounds(body, skip_tags(body, position))
    return OffsetCommitRequest(
        required(group_id), generation, required(member_id), group_instance_id, NO_RETENTION, topics
    )


def _decode_rigid(body: memoryview, version: int) -> OffsetCommitRequest:
    group_id, position = read_string(body, 0)
    (generation,) = INT32.unpack_from(body, position)
    member_id, position = read_string(body, position + 4)
    group_instance_id, retention_ms = None, NO_RETENTION
    if version >= _GROUP_INSTANCE_ID_FROM:
        group_instance_id, position = read_string(body, position)
    if version <= _LAST_WITH_RETENTION:
        (retention_ms,) = _INT64.unpack_from(body, position)
        position += 8
    layout = _PARTITION if version >= _LEADER_EPOCH_FROM else _PARTITION_V2
    count, position = read_count(body, position)
    elements = count_elements(0, count)
    topics: list[OffsetCommitTopic] = []
    for _ in range(count):
        name, position = read_string(body, position)
        partitions_count, position = read_count(body, position)
        elements = count_elements(elements, partitions_count)
        partitions: list[OffsetCommitPartition] = []
        for _ in range(partitions_count):
            index, offset, *leader_epoch = layout.unpack_from(body, position)
            at = position + INT32.size
            metadata, position = read_string(body, position + layout.size)
            partitions.append(
                OffsetCommitPartition(index, offset, leader_epoch[0] if leader_epoch else -1, metadata, at)
            )
        topics.append(OffsetCommitTopic(required(name), None, partitions))
    check_in_bounds(body, position)
    return OffsetCommitRequest(
        required(group_id), generation, required(member_id), group_instance_id, retention_ms, topics
    )


def encode_offset_commit_response(
    topics: Sequence[OffsetCommitTopic], codes: Iterator[ErrorCode], version: int
) -> bytes:
    """`codes` has one code per partition, in the order of `topics`."""
    throttle_time = NO_THROTTLE_TIME if version >= _THROTTLE_TIME_FROM else b""
    flexible = version >= _FLEXIBLE_FROM
    encode_name = encode_compact_string if flexible else encode_string
    encoded = [
        (
            encode_name(name) if topic_id is None else topic_id.bytes,
            [partition.index for partition in partitions],
        )
        for name, topic_id, partitions in topics
    ]
    parts = encode_partition_errors(encoded, codes, flexible=flexible)
    return b"".join((throttle_time, *parts, NO_TAGS if flexible else b""))
