"""Fetch (key 1), versions 4-18, from the side of consumers and followers: encodes requests, decodes responses.

The broker's side, with what changed in each version, is `ottla.protocol.fetch_codec`.
"""

from ottla.protocol.fetch_codec import (
    ABORTED,
    DIRECTORY_IDS_FROM,
    DIVERGING,
    FLEXIBLE_FROM,
    HIGH_WATERMARK,
    HIGH_WATERMARK_FROM,
    LEADER_EPOCH_FROM,
    LEADER_HINTS_FROM,
    PARTITION_V4,
    PARTITION_V5,
    RACK_FROM,
    REPLICA_STATE,
    REPLICA_STATE_FROM,
    REQUEST_PARTITION_V4,
    REQUEST_PARTITION_V5,
    REQUEST_PARTITION_V9,
    REQUEST_PARTITION_V12,
    REQUEST_V4,
    REQUEST_V7,
    REQUEST_V15,
    RESPONSE_V12,
    SESSIONS_FROM,
    SNAPSHOT,
    TOPIC_IDS_FROM,
    UNKNOWN_HIGH_WATERMARK,
    EpochEndOffset,
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
    ForgottenTopic,
    SnapshotId,
)
from ottla.protocol.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    LeaderIdAndEpoch,
    NodeEndpoint,
    check_fully_read,
    encode_compact_string,
    encode_string,
    encode_tags,
    read_compact_count,
    read_compact_string,
    read_count,
    read_leader,
    read_node_endpoints,
    read_string,
    read_tags,
    required,
    skip_tags,
    topic_id_of,
)
from ottla.protocol.varint import encode_uvarint, read_uvarint
from ottla.rpc.client_protocol import ResponseError

__all__ = [
    "FetchPartition",
    "FetchPartitionResponse",
    "FetchRequest",
    "FetchResponse",
    "FetchTopic",
    "decode_fetch_response",
    "encode_fetch_request",
]


def encode_fetch_request(request: FetchRequest, version: int) -> bytes:
    """The body, without the request header."""
    parts = [_encode_request_start(request, version), _encode_count(len(request.topics), version)]
    for topic in request.topics:
        parts += (_encode_topic(topic, version), _encode_count(len(topic.partitions), version))
        parts += [_encode_partition(partition, version) for partition in topic.partitions]
        if version >= FLEXIBLE_FROM:
            parts.append(NO_TAGS)
    if version >= SESSIONS_FROM:
        parts.append(_encode_count(len(request.forgotten), version))
        for forgotten in request.forgotten:
            parts += (_encode_topic(forgotten, version), _encode_count(len(forgotten.partitions), version))
            parts += [INT32.pack(index) for index in forgotten.partitions]
            if version >= FLEXIBLE_FROM:
                parts.append(NO_TAGS)
    if version >= FLEXIBLE_FROM:
        parts += (encode_compact_string(request.rack_id), _encode_request_tags(request, version))
    elif version >= RACK_FROM:
        parts.append(encode_string(request.rack_id))
    return b"".join(parts)


def _encode_count(count: int, version: int) -> bytes:
    return encode_uvarint(count + 1) if version >= FLEXIBLE_FROM else INT32.pack(count)


def _encode_request_start(request: FetchRequest, version: int) -> bytes:
    limits = request[2:6]  # max_wait_ms, min_bytes, max_bytes, isolation_level
    session = request.session_id, request.session_epoch
    if version >= REPLICA_STATE_FROM:
        return REQUEST_V15.pack(*limits, *session)
    if version >= SESSIONS_FROM:
        return REQUEST_V7.pack(request.replica_id, *limits, *session)
    return REQUEST_V4.pack(request.replica_id, *limits)


def _encode_topic(topic: FetchTopic | ForgottenTopic, version: int) -> bytes:
    if version >= TOPIC_IDS_FROM:
        return topic.topic_id.bytes if topic.topic_id is not None else bytes(16)
    return encode_compact_string(topic.name) if version >= FLEXIBLE_FROM else encode_string(topic.name)


def _encode_partition(partition: FetchPartition, version: int) -> bytes:
    index, epoch, offset, _, log_start_offset, max_bytes, directory_id, high_watermark = partition
    if version < 5:
        return REQUEST_PARTITION_V4.pack(index, offset, max_bytes)
    if version < LEADER_EPOCH_FROM:
        return REQUEST_PARTITION_V5.pack(index, offset, log_start_offset, max_bytes)
    if version < FLEXIBLE_FROM:
        return REQUEST_PARTITION_V9.pack(index, epoch, offset, log_start_offset, max_bytes)
    tags: dict[int, bytes] = {}
    if directory_id is not None and version >= DIRECTORY_IDS_FROM:
        tags[0] = directory_id.bytes
    if high_watermark != UNKNOWN_HIGH_WATERMARK and version >= HIGH_WATERMARK_FROM:
        tags[1] = HIGH_WATERMARK.pack(high_watermark)
    return REQUEST_PARTITION_V12.pack(*partition[:6]) + encode_tags(tags)


def _encode_request_tags(request: FetchRequest, version: int) -> bytes:
    tags: dict[int, bytes] = {}
    if request.cluster_id is not None:
        tags[0] = encode_compact_string(request.cluster_id)
    state = request.replica_id, request.replica_epoch
    if state != (-1, -1) and version >= REPLICA_STATE_FROM:
        tags[1] = REPLICA_STATE.pack(*state) + NO_TAGS
    return encode_tags(tags)


def decode_fetch_response(body: memoryview, version: int) -> FetchResponse:
    """Records are slices of `body`. Raises ResponseError for bytes that are not exactly one response."""
    try:
        if version >= FLEXIBLE_FROM:
            return _decode_flexible(body, version)
        return _decode_rigid(body, version)
    except MALFORMED as error:
        raise ResponseError(f"a response to Fetch v{version} cannot be read: {error}") from error


def _decode_rigid(body: memoryview, version: int) -> FetchResponse:
    error_code = session_id = 0
    if version >= SESSIONS_FROM:
        throttle_time_ms, error_code, session_id = RESPONSE_V12.unpack_from(body)
        position = RESPONSE_V12.size
    else:
        (throttle_time_ms,) = INT32.unpack_from(body)
        position = INT32.size
    topics: list[FetchTopicResponse] = []
    topic_count, position = read_count(body, position)
    for _ in range(topic_count):
        name, position = read_string(body, position)
        count, position = read_count(body, position)
        partitions: list[FetchPartitionResponse] = []
        for _ in range(count):
            partition, position = _decode_rigid_partition(body, position, version)
            partitions.append(partition)
        topics.append(FetchTopicResponse(required(name), None, partitions))
    check_fully_read(body, position)
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, [])


def _decode_rigid_partition(
    body: memoryview, position: int, version: int
) -> tuple[FetchPartitionResponse, int]:
    layout = PARTITION_V4 if version < 5 else PARTITION_V5
    index, error_code, high_watermark, last_stable, *rest = layout.unpack_from(body, position)
    log_start = rest[0] if rest else -1
    (count,) = INT32.unpack_from(body, position + layout.size)
    position += layout.size + 4
    aborted: list[tuple[int, int]] | None = None
    if count >= 0:
        end = position + count * ABORTED.size
        if end > len(body):
            raise ValueError(f"an array of {count} aborted transactions is longer than the message")
        aborted = list(ABORTED.iter_unpack(body[position:end]))
        position = end
    elif count != -1:
        raise ValueError(f"an array has the length {count}")
    preferred = -1
    if version >= RACK_FROM:
        (preferred,) = INT32.unpack_from(body, position)
        position += 4
    (length,) = INT32.unpack_from(body, position)
    position += 4
    if length < -1:
        raise ValueError(f"records have the length {length}")
    end = position + max(length, 0)
    records = None if length < 0 else body[position:end]
    return (
        FetchPartitionResponse(
            index, error_code, high_watermark, last_stable, log_start, aborted, preferred, records
        ),
        end,
    )


def _decode_flexible(body: memoryview, version: int) -> FetchResponse:
    throttle_time_ms, error_code, session_id = RESPONSE_V12.unpack_from(body)
    topics: list[FetchTopicResponse] = []
    topic_count, position = read_compact_count(body, RESPONSE_V12.size)
    name, topic_id = None, None
    for _ in range(topic_count):
        if version >= TOPIC_IDS_FROM:
            topic_id = topic_id_of(bytes(body[position : position + 16]))
            position += 16
        else:
            text, position = read_compact_string(body, position)
            name = required(text)
        count, position = read_compact_count(body, position)
        partitions: list[FetchPartitionResponse] = []
        for _ in range(count):
            partition, position = _decode_flexible_partition(body, position)
            partitions.append(partition)
        position = skip_tags(body, position)
        topics.append(FetchTopicResponse(name, topic_id, partitions))
    tags, position = read_tags(body, position)
    check_fully_read(body, position)
    endpoints: list[NodeEndpoint] = []
    if 0 in tags and version >= LEADER_HINTS_FROM:
        endpoints = read_node_endpoints(tags[0])
    return FetchResponse(throttle_time_ms, error_code, session_id, topics, endpoints)


def _decode_flexible_partition(body: memoryview, position: int) -> tuple[FetchPartitionResponse, int]:
    index, error_code, high_watermark, last_stable, log_start = PARTITION_V5.unpack_from(body, position)
    count, position = read_uvarint(body, position + PARTITION_V5.size)
    aborted: list[tuple[int, int]] | None = None
    if count > 0:
        aborted = []
        for _ in range(count - 1):
            producer_id, first_offset = ABORTED.unpack_from(body, position)
            position = skip_tags(body, position + ABORTED.size)
            aborted.append((producer_id, first_offset))
    (preferred,) = INT32.unpack_from(body, position)
    length, position = read_uvarint(body, position + 4)
    records: memoryview | None = None
    if length:
        records = body[position : position + length - 1]
        position += length - 1
    diverging: EpochEndOffset | None = None
    leader: LeaderIdAndEpoch | None = None
    snapshot: SnapshotId | None = None
    tags, position = read_tags(body, position)
    if 0 in tags:
        diverging = EpochEndOffset(*DIVERGING.unpack_from(tags[0]))
        check_fully_read(tags[0], skip_tags(tags[0], DIVERGING.size))
    if 1 in tags:
        leader = read_leader(tags[1])
    if 2 in tags:
        snapshot = SnapshotId(*SNAPSHOT.unpack_from(tags[2]))
        check_fully_read(tags[2], skip_tags(tags[2], SNAPSHOT.size))
    return (
        FetchPartitionResponse(
            index,
            error_code,
            high_watermark,
            last_stable,
            log_start,
            aborted,
            preferred,
            records,
            diverging,
            leader,
            snapshot,
        ),
        position,
    )
