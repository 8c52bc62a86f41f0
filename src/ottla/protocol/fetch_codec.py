"""Fetch (key 1), versions 4-18, from the broker's side: the request read, the response written around its records.

v5 log start offset; v7 sessions (KIP-227); v9 leader epoch (KIP-320); v11 rack (KIP-392); v12 flexible, last fetched
epoch and divergence (KIP-595); v13 topic ids (KIP-516); v15 replica state (KIP-903); v16 leader hints (KIP-951);
v17 directory ids (KIP-853); v18 high watermark (KIP-1166). The client's side is `ottla.rpc.fetch`.
"""

import uuid
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from ottla.model.region import FileRegion
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    LeaderIdAndEpoch,
    NodeEndpoint,
    count_elements,
    encode_compact_string,
    encode_leader,
    encode_node_endpoints,
    encode_string,
    encode_tags,
    end_request,
    finish,
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    read_tags,
    required,
    skip_tags,
    topic_id_of,
)
from ottla.protocol.varint import encode_uvarint

Bytes = bytes | bytearray | memoryview
Part = bytes | bytearray | memoryview | FileRegion

SESSIONS_FROM = 7
LEADER_EPOCH_FROM = 9
RACK_FROM = 11
FLEXIBLE_FROM = 12
TOPIC_IDS_FROM = 13
REPLICA_STATE_FROM = 15
LEADER_HINTS_FROM = 16
DIRECTORY_IDS_FROM = 17
HIGH_WATERMARK_FROM = 18

# What a follower sends that does not tell its high watermark.
UNKNOWN_HIGH_WATERMARK = 0x7FFFFFFFFFFFFFFF

REQUEST_V4 = Struct(">iiiib")
REQUEST_V7 = Struct(">iiiibii")
REQUEST_V15 = Struct(">iiibii")
REPLICA_STATE = Struct(">iq")
HIGH_WATERMARK = Struct(">q")

ASKED_V4 = Struct(">iqi")
ASKED_V5 = Struct(">iqqi")
ASKED_V9 = Struct(">iiqqi")
ASKED_V12 = Struct(">iiqiqi")

RESPONSE_V4 = Struct(">ii")
RESPONSE_V7 = Struct(">ihii")
RESPONSE_V12 = Struct(">ihi")
PARTITION_V4 = Struct(">ihqq")
PARTITION_V5 = Struct(">ihqqq")
# The common answer of the flexible versions: no aborted transactions (null 0, none 1), preferred read replica.
PARTITION_V12 = Struct(">ihqqqBi")
ABORTED = Struct(">qq")
ABORTED_FLEXIBLE = Struct(">qqB")
DIVERGING = Struct(">iq")
SNAPSHOT = Struct(">qi")

# Records in memory of at least this size go out as a part of their own rather than being copied once more.
COPY_BYTES_MAX = 4096


class FetchPartition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    max_bytes: int
    replica_directory_id: uuid.UUID | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class FetchTopic(NamedTuple):
    """`name` up to v12, `topic_id` from v13."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[FetchPartition]


class ForgottenTopic(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[int]


class FetchRequest(NamedTuple):
    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    rack_id: str = ""
    cluster_id: str | None = None


class EpochEndOffset(NamedTuple):
    epoch: int
    end_offset: int


class SnapshotId(NamedTuple):
    end_offset: int
    epoch: int


class FetchPartitionResponse(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None
    preferred_read_replica: int = -1
    records: Bytes | FileRegion | None = b""
    diverging_epoch: EpochEndOffset | None = None
    current_leader: LeaderIdAndEpoch | None = None
    snapshot_id: SnapshotId | None = None


class FetchTopicResponse(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None
    partitions: Sequence[FetchPartitionResponse]


class FetchResponse(NamedTuple):
    throttle_time_ms: int
    error_code: int
    session_id: int
    topics: Sequence[FetchTopicResponse]
    node_endpoints: Sequence[NodeEndpoint] = ()


def decode_fetch_request(body: memoryview, version: int) -> FetchRequest:
    """Raises MalformedRequest for bytes that are not exactly one request."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(body, version)
        return _decode_rigid(body, version)
    except MALFORMED as error:
        raise MalformedRequest(f"Fetch v{version} cannot be read: {error}") from error


def _decode_rigid(body: memoryview, version: int) -> FetchRequest:
    session_id, session_epoch = 0, -1
    if version >= SESSIONS_FROM:
        replica_id, wait, least, most, isolation, session_id, session_epoch = REQUEST_V7.unpack_from(body)
        position = REQUEST_V7.size
    else:
        replica_id, wait, least, most, isolation = REQUEST_V4.unpack_from(body)
        position = REQUEST_V4.size
    elements = 0
    topics: list[FetchTopic] = []
    topic_count, position = read_count(body, position)
    elements = count_elements(elements, topic_count)
    for _ in range(topic_count):
        name, position = read_string(body, position)
        count, position = read_count(body, position)
        elements = count_elements(elements, count)
        partitions: list[FetchPartition] = []
        for _ in range(count):
            partition, position = _decode_rigid_partition(body, position, version)
            partitions.append(partition)
        topics.append(FetchTopic(required(name), None, partitions))
    forgotten: list[ForgottenTopic] = []
    if version >= SESSIONS_FROM:
        topic_count, position = read_count(body, position)
        elements = count_elements(elements, topic_count)
        for _ in range(topic_count):
            name, position = read_string(body, position)
            count, position = read_count(body, position)
            elements = count_elements(elements, count)
            indexes, position = _read_indexes(body, position, count)
            forgotten.append(ForgottenTopic(required(name), None, indexes))
    rack_id = ""
    if version >= RACK_FROM:
        text, position = read_string(body, position)
        rack_id = required(text)
    end_request(body, position)
    return FetchRequest(
        replica_id, -1, wait, least, most, isolation, session_id, session_epoch, topics, forgotten, rack_id
    )


def _decode_rigid_partition(body: memoryview, position: int, version: int) -> tuple[FetchPartition, int]:
    epoch = log_start_offset = -1
    if version >= LEADER_EPOCH_FROM:
        index, epoch, offset, log_start_offset, most = ASKED_V9.unpack_from(body, position)
        position += ASKED_V9.size
    elif version >= 5:
        index, offset, log_start_offset, most = ASKED_V5.unpack_from(body, position)
        position += ASKED_V5.size
    else:
        index, offset, most = ASKED_V4.unpack_from(body, position)
        position += ASKED_V4.size
    return FetchPartition(index, epoch, offset, -1, log_start_offset, most), position


def _read_indexes(body: memoryview, position: int, count: int) -> tuple[list[int], int]:
    end = position + 4 * count
    if end > len(body):
        raise ValueError(f"an array of {count} partitions is longer than the message")
    return [index for (index,) in INT32.iter_unpack(body[position:end])], end


def _decode_flexible(body: memoryview, version: int) -> FetchRequest:
    replica_id = replica_epoch = -1
    if version >= REPLICA_STATE_FROM:
        wait, least, most, isolation, session_id, session_epoch = REQUEST_V15.unpack_from(body)
        position = REQUEST_V15.size
    else:
        replica_id, wait, least, most, isolation, session_id, session_epoch = REQUEST_V7.unpack_from(body)
        position = REQUEST_V7.size
    elements = 0
    topics: list[FetchTopic] = []
    topic_count, position = read_compact_count(body, position)
    elements = count_elements(elements, topic_count)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(body, position, version)
        count, position = read_compact_count(body, position)
        elements = count_elements(elements, count)
        partitions: list[FetchPartition] = []
        for _ in range(count):
            fields = ASKED_V12.unpack_from(body, position)
            position += ASKED_V12.size
            if body[position] == 0:
                position += 1
                partitions.append(FetchPartition(*fields))
            else:
                partition, position = _read_partition_tags(body, position, version, fields)
                partitions.append(partition)
        position = skip_tags(body, position)
        topics.append(FetchTopic(name, topic_id, partitions))
    forgotten: list[ForgottenTopic] = []
    topic_count, position = read_compact_count(body, position)
    elements = count_elements(elements, topic_count)
    for _ in range(topic_count):
        name, topic_id, position = _read_topic(body, position, version)
        count, position = read_compact_count(body, position)
        elements = count_elements(elements, count)
        indexes, position = _read_indexes(body, position, count)
        position = skip_tags(body, position)
        forgotten.append(ForgottenTopic(name, topic_id, indexes))
    rack_id, position = read_compact_string(body, position)
    tags, position = read_tags(body, position)
    end_request(body, position)
    cluster_id: str | None = None
    if tags:
        cluster_id, state = _read_request_tags(tags, version)
        replica_id, replica_epoch = state or (replica_id, replica_epoch)
    return FetchRequest(
        replica_id,
        replica_epoch,
        wait,
        least,
        most,
        isolation,
        session_id,
        session_epoch,
        topics,
        forgotten,
        required(rack_id),
        cluster_id,
    )


def _read_topic(body: memoryview, position: int, version: int) -> tuple[str | None, uuid.UUID | None, int]:
    if version >= TOPIC_IDS_FROM:
        return None, topic_id_of(bytes(body[position : position + 16])), position + 16
    name, position = read_compact_string(body, position)
    return required(name), None, position


def _read_partition_tags(
    body: memoryview, position: int, version: int, fields: tuple[int, ...]
) -> tuple[FetchPartition, int]:
    tags, position = read_tags(body, position)
    directory_id: uuid.UUID | None = None
    high_watermark = UNKNOWN_HIGH_WATERMARK
    if 0 in tags and version >= DIRECTORY_IDS_FROM:
        directory_id = topic_id_of(bytes(tags[0]))
    if 1 in tags and version >= HIGH_WATERMARK_FROM:
        (high_watermark,) = HIGH_WATERMARK.unpack(tags[1])
    index, epoch, offset, last_epoch, log_start_offset, most = fields
    return (
        FetchPartition(
            index, epoch, offset, last_epoch, log_start_offset, most, directory_id, high_watermark
        ),
        position,
    )


def _read_request_tags(
    tags: dict[int, memoryview], version: int
) -> tuple[str | None, tuple[int, int] | None]:
    """Cluster id, and the replica's id and epoch where it tells them."""
    cluster_id: str | None = None
    state: tuple[int, int] | None = None
    if 0 in tags:
        cluster_id, position = read_compact_string(tags[0], 0)
        finish(tags[0], position)
    if 1 in tags and version >= REPLICA_STATE_FROM:
        replica_id, replica_epoch = REPLICA_STATE.unpack_from(tags[1])
        finish(tags[1], skip_tags(tags[1], REPLICA_STATE.size))
        state = replica_id, replica_epoch
    return cluster_id, state


def encode_fetch_response(response: FetchResponse, version: int) -> list[Part]:
    """The body, without the response header, in as few parts as regions and large records allow."""
    parts: list[Part] = []
    small: list[Bytes] = [_encode_response_start(response, version)]
    flexible = version >= FLEXIBLE_FROM
    for name, topic_id, partitions in response.topics:
        if version >= TOPIC_IDS_FROM:
            small.append(topic_id.bytes if topic_id is not None else bytes(16))
        else:
            small.append(encode_compact_string(name) if flexible else encode_string(name))
        small.append(encode_uvarint(len(partitions) + 1) if flexible else INT32.pack(len(partitions)))
        for partition in partitions:
            records = partition.records
            length = _length(records)
            if flexible:
                small += (_encode_flexible_partition(partition), encode_uvarint(length + 1))
            else:
                small += (_encode_rigid_partition(partition, version), INT32.pack(length))
            if length > 0 and records is not None:
                if isinstance(records, FileRegion) or length >= COPY_BYTES_MAX:
                    parts += (b"".join(small), records)
                    small = []
                else:
                    small.append(records)
            if flexible:
                small.append(_encode_partition_tags(partition))
        if flexible:
            small.append(NO_TAGS)
    if flexible:
        if response.node_endpoints and version >= LEADER_HINTS_FROM:
            small.append(encode_tags({0: encode_node_endpoints(response.node_endpoints)}))
        else:
            small.append(NO_TAGS)
    if small:
        parts.append(b"".join(small))
    return parts


def encoded_size(parts: Sequence[Part]) -> int:
    return sum(part.length if isinstance(part, FileRegion) else len(part) for part in parts)


def _length(records: Bytes | FileRegion | None) -> int:
    """-1 for null, as both ways of writing a length have it."""
    if records is None:
        return -1
    return records.length if isinstance(records, FileRegion) else len(records)


def _encode_response_start(response: FetchResponse, version: int) -> bytes:
    throttle_time_ms, error_code, session_id, topics, _ = response
    if version >= FLEXIBLE_FROM:
        return RESPONSE_V12.pack(throttle_time_ms, error_code, session_id) + encode_uvarint(len(topics) + 1)
    if version >= SESSIONS_FROM:
        return RESPONSE_V7.pack(throttle_time_ms, error_code, session_id, len(topics))
    return RESPONSE_V4.pack(throttle_time_ms, len(topics))


def _encode_rigid_partition(partition: FetchPartitionResponse, version: int) -> bytes:
    """All but the records."""
    fixed = PARTITION_V4.pack(*partition[:4]) if version < 5 else PARTITION_V5.pack(*partition[:5])
    parts = [fixed]
    if partition.aborted is None:
        parts.append(INT32.pack(-1))
    else:
        parts.append(INT32.pack(len(partition.aborted)))
        parts += [ABORTED.pack(*transaction) for transaction in partition.aborted]
    if version >= RACK_FROM:
        parts.append(INT32.pack(partition.preferred_read_replica))
    return b"".join(parts)


def _encode_flexible_partition(partition: FetchPartitionResponse) -> bytes:
    """All but the records and the tags after them."""
    index, error_code, high_watermark, last_stable, log_start, aborted, preferred, *_ = partition
    if not aborted:
        none = 0 if aborted is None else 1
        return PARTITION_V12.pack(index, error_code, high_watermark, last_stable, log_start, none, preferred)
    return b"".join(
        (
            PARTITION_V5.pack(index, error_code, high_watermark, last_stable, log_start),
            encode_uvarint(len(aborted) + 1),
            *(ABORTED_FLEXIBLE.pack(producer_id, first_offset, 0) for producer_id, first_offset in aborted),
            INT32.pack(preferred),
        )
    )


def _encode_partition_tags(partition: FetchPartitionResponse) -> bytes:
    diverging, leader, snapshot = partition.diverging_epoch, partition.current_leader, partition.snapshot_id
    if diverging is None and leader is None and snapshot is None:
        return NO_TAGS
    tags: dict[int, bytes] = {}
    if diverging is not None:
        tags[0] = DIVERGING.pack(*diverging) + NO_TAGS
    if leader is not None:
        tags[1] = encode_leader(leader)
    if snapshot is not None:
        tags[2] = SNAPSHOT.pack(*snapshot) + NO_TAGS
    return encode_tags(tags)
