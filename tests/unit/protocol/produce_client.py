"""Produce (key 0), versions 3-13, from the client's side, for tests: encodes requests, decodes responses."""

from ottla.protocol.primitives import (
    INT32,
    NO_TAGS,
    LeaderIdAndEpoch,
    NodeEndpoint,
    check_fully_read,
    encode_compact_string,
    encode_string,
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
from ottla.protocol.produce_codec import (
    ACKS_AND_TIMEOUT,
    FLEXIBLE_FROM,
    INDEX_AND_LENGTH,
    LEADER_HINTS_FROM,
    PARTITION_V3,
    PARTITION_V5,
    TOPIC_IDS_FROM,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)
from ottla.protocol.varint import encode_uvarint

Bytes = bytes | memoryview


def encode_produce_request(request: ProduceRequest, version: int) -> bytes:
    """The body, without the request header."""
    if version >= FLEXIBLE_FROM:
        return _encode_flexible(request, version)
    parts: list[Bytes] = [
        encode_string(request.transactional_id),
        ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms),
        INT32.pack(len(request.topics)),
    ]
    for topic in request.topics:
        parts += (encode_string(topic.name), INT32.pack(len(topic.partitions)))
        for index, records in topic.partitions:
            if records is None:
                parts.append(INDEX_AND_LENGTH.pack(index, -1))
            else:
                parts += (INDEX_AND_LENGTH.pack(index, len(records)), records)
    return b"".join(parts)


def _encode_flexible(request: ProduceRequest, version: int) -> bytes:
    parts: list[Bytes] = [
        encode_compact_string(request.transactional_id),
        ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms),
        encode_uvarint(len(request.topics) + 1),
    ]
    for name, topic_id, partitions in request.topics:
        if version >= TOPIC_IDS_FROM:
            parts.append(topic_id.bytes if topic_id is not None else bytes(16))
        else:
            parts.append(encode_compact_string(name))
        parts.append(encode_uvarint(len(partitions) + 1))
        for index, records in partitions:
            parts.append(INT32.pack(index))
            if records is None:
                parts.append(encode_uvarint(0))
            else:
                parts += (encode_uvarint(len(records) + 1), records)
            parts.append(NO_TAGS)
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def decode_produce_response(body: memoryview, version: int) -> ProduceResponse:
    return _decode_flexible(body, version) if version >= FLEXIBLE_FROM else _decode_rigid(body, version)


def _decode_rigid(body: memoryview, version: int) -> ProduceResponse:
    topics: list[ProduceTopicResponse] = []
    topic_count, position = read_count(body, 0)
    for _ in range(topic_count):
        name, position = read_string(body, position)
        count, position = read_count(body, position)
        partitions: list[ProducePartitionResponse] = []
        for _ in range(count):
            partition, position = _decode_rigid_partition(body, position, version)
            partitions.append(partition)
        topics.append(ProduceTopicResponse(required(name), None, partitions))
    (throttle_time_ms,) = INT32.unpack_from(body, position)
    check_fully_read(body, position + 4)
    return ProduceResponse(topics, throttle_time_ms, [])


def _decode_rigid_partition(
    body: memoryview, position: int, version: int
) -> tuple[ProducePartitionResponse, int]:
    layout = PARTITION_V3 if version < 5 else PARTITION_V5
    index, error_code, base_offset, append_time, *rest = layout.unpack_from(body, position)
    log_start = rest[0] if rest else -1
    position += layout.size
    errors: list[tuple[int, str | None]] = []
    error_message: str | None = None
    if version >= 8:
        count, position = read_count(body, position)
        for _ in range(count):
            (batch_index,) = INT32.unpack_from(body, position)
            message, position = read_string(body, position + 4)
            errors.append((batch_index, message))
        error_message, position = read_string(body, position)
    return (
        ProducePartitionResponse(
            index, error_code, base_offset, append_time, log_start, errors, error_message
        ),
        position,
    )


def _decode_flexible(body: memoryview, version: int) -> ProduceResponse:
    topics: list[ProduceTopicResponse] = []
    topic_count, position = read_compact_count(body, 0)
    name, topic_id = None, None
    for _ in range(topic_count):
        if version >= TOPIC_IDS_FROM:
            topic_id = topic_id_of(bytes(body[position : position + 16]))
            position += 16
        else:
            text, position = read_compact_string(body, position)
            name = required(text)
        count, position = read_compact_count(body, position)
        partitions: list[ProducePartitionResponse] = []
        for _ in range(count):
            partition, position = _decode_flexible_partition(body, position, version)
            partitions.append(partition)
        position = skip_tags(body, position)
        topics.append(ProduceTopicResponse(name, topic_id, partitions))
    (throttle_time_ms,) = INT32.unpack_from(body, position)
    tags, position = read_tags(body, position + 4)
    check_fully_read(body, position)
    endpoints: list[NodeEndpoint] = []
    if 0 in tags and version >= LEADER_HINTS_FROM:
        endpoints = read_node_endpoints(tags[0])
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _decode_flexible_partition(
    body: memoryview, position: int, version: int
) -> tuple[ProducePartitionResponse, int]:
    index, error_code, base_offset, append_time, log_start = PARTITION_V5.unpack_from(body, position)
    count, position = read_compact_count(body, position + PARTITION_V5.size)
    errors: list[tuple[int, str | None]] = []
    for _ in range(count):
        (batch_index,) = INT32.unpack_from(body, position)
        message, position = read_compact_string(body, position + 4)
        position = skip_tags(body, position)
        errors.append((batch_index, message))
    error_message, position = read_compact_string(body, position)
    tags, position = read_tags(body, position)
    leader: LeaderIdAndEpoch | None = None
    if 0 in tags and version >= LEADER_HINTS_FROM:
        leader = read_leader(tags[0])
    return (
        ProducePartitionResponse(
            index, error_code, base_offset, append_time, log_start, errors, error_message, leader
        ),
        position,
    )
