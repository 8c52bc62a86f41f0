"""Produce (key 0), versions 3-13, from the broker's side: the request read, its records uncopied, the response written.

v5 log start offset; v8 record errors and message (KIP-467); v9 flexible; v10 leader hints (KIP-951); v13 topic ids
instead of names (KIP-516).
"""

import uuid
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

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
    read_compact_count,
    read_compact_string,
    read_count,
    read_string,
    required,
    skip_tags,
    topic_id_of,
)
from ottla.protocol.varint import encode_uvarint, read_uvarint

FLEXIBLE_FROM = 9
LEADER_HINTS_FROM = 10
TOPIC_IDS_FROM = 13

ACKS_AND_TIMEOUT = Struct(">hi")
INDEX_AND_LENGTH = Struct(">ii")

# A partition of the response without errors, whole: the last fields are empty errors, null message, no tags.
PARTITION_V3 = Struct(">ihqq")
PARTITION_V5 = Struct(">ihqqq")
PARTITION_V8 = Struct(">ihqqqih")
PARTITION_V9 = Struct(">ihqqqBBB")
# The same, and all that follows it in a response with one partition: topic's tags, throttle time, response's tags.
SINGLE_PARTITION = Struct(">ihqqqBBBBiB")


class ProducePartition(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    records: memoryview | None


class ProduceTopic(NamedTuple):
    """`name` up to v12, `topic_id` from v13."""

    name: str | None
    topic_id: uuid.UUID | None
    partitions: list[ProducePartition]


class ProduceRequest(NamedTuple):
    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: list[ProduceTopic]


class ProducePartitionResponse(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index, which nobody needs here
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[tuple[int, str | None]] = ()
    error_message: str | None = None
    current_leader: LeaderIdAndEpoch | None = None


class ProduceTopicResponse(NamedTuple):
    name: str | None
    topic_id: uuid.UUID | None
    partitions: Sequence[ProducePartitionResponse]


class ProduceResponse(NamedTuple):
    topics: Sequence[ProduceTopicResponse]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def decode_produce_request(body: memoryview, version: int) -> ProduceRequest:
    """Records are slices of `body`. Raises MalformedRequest for bytes that are not exactly one request."""
    try:
        if version < FLEXIBLE_FROM:
            return _decode_rigid(body)
        has_topic_ids = version >= TOPIC_IDS_FROM
        return _decode_single(body, has_topic_ids) or _decode_flexible(body, has_topic_ids)
    except MALFORMED as error:
        raise MalformedRequest(f"Produce v{version} cannot be read: {error}") from error


_THREE_TIMES_NO_TAGS = 3 * NO_TAGS
_new_tuple = tuple.__new__  # makes a NamedTuple in half the time


def _decode_single(body: memoryview, has_topic_ids: bool) -> ProduceRequest | None:
    """The request that most producers send most of the time: no transaction, one topic with one partition, no tags.

    None where it is another. It reads as `_decode_flexible` does, in a third of the time.
    """
    if body[0] != 0 or body[7] != 2:
        return None
    name: str | None = None
    topic_id: uuid.UUID | None = None
    if has_topic_ids:
        position = 24
        topic_id = topic_id_of(bytes(body[8:24]))
    else:
        position = 8 + body[8]
        if not 9 < position < 0x80:
            return None
        name = str(body[9:position], "utf-8")
    if body[position] != 2:
        return None
    (index,) = INT32.unpack_from(body, position + 1)
    length, start = body[position + 5], position + 6
    if length >= 0x80:
        high = body[start]
        if high < 0x80:  # up to 16 KB
            length, start = length & 0x7F | high << 7, start + 1
        else:
            length, start = read_uvarint(body, position + 5)
    end = start + length - 1
    if length == 0 or body[end:] != _THREE_TIMES_NO_TAGS:
        return None
    acks, timeout_ms = ACKS_AND_TIMEOUT.unpack_from(body, 1)
    partitions = [_new_tuple(ProducePartition, (index, body[start:end]))]
    topics = [_new_tuple(ProduceTopic, (name, topic_id, partitions))]
    return _new_tuple(ProduceRequest, (None, acks, timeout_ms, topics))


def _decode_flexible(body: memoryview, has_topic_ids: bool) -> ProduceRequest:
    transactional_id, position = read_compact_string(body, 0)
    acks, timeout_ms = ACKS_AND_TIMEOUT.unpack_from(body, position)
    topic_count, position = read_compact_count(body, position + 6)
    elements = count_elements(0, topic_count)
    topics: list[ProduceTopic] = []
    name: str | None = None
    topic_id: uuid.UUID | None = None
    for _ in range(topic_count):
        if has_topic_ids:
            topic_id = topic_id_of(bytes(body[position : position + 16]))
            position += 16
        else:
            text, position = read_compact_string(body, position)
            name = required(text)
        count, position = read_compact_count(body, position)
        elements = count_elements(elements, count)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            (index,) = INT32.unpack_from(body, position)
            length, position = read_uvarint(body, position + 4)
            records: memoryview | None = None
            if length:
                end = position + length - 1
                records = body[position:end]
                position = end
            position = position + 1 if body[position] == 0 else skip_tags(body, position)
            partitions.append(ProducePartition(index, records))
        position = position + 1 if body[position] == 0 else skip_tags(body, position)
        topics.append(ProduceTopic(name, topic_id, partitions))
    end_request(body, skip_tags(body, position))
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def _decode_rigid(body: memoryview) -> ProduceRequest:
    transactional_id, position = read_string(body, 0)
    acks, timeout_ms = ACKS_AND_TIMEOUT.unpack_from(body, position)
    topic_count, position = read_count(body, position + 6)
    elements = count_elements(0, topic_count)
    topics: list[ProduceTopic] = []
    for _ in range(topic_count):
        name, position = read_string(body, position)
        count, position = read_count(body, position)
        elements = count_elements(elements, count)
        partitions: list[ProducePartition] = []
        for _ in range(count):
            index, length = INDEX_AND_LENGTH.unpack_from(body, position)
            position += 8
            records: memoryview | None = None
            if length >= 0:
                end = position + length
                records = body[position:end]
                position = end
            elif length != -1:
                raise ValueError(f"records have the length {length}")
            partitions.append(ProducePartition(index, records))
        topics.append(ProduceTopic(required(name), None, partitions))
    end_request(body, position)
    return ProduceRequest(transactional_id, acks, timeout_ms, topics)


def encode_produce_response(response: ProduceResponse, version: int) -> bytes:
    """The body, without the response header."""
    if version >= FLEXIBLE_FROM:
        return _encode_flexible(response, version)
    parts = [INT32.pack(len(response.topics))]
    for topic in response.topics:
        parts += (encode_string(topic.name), INT32.pack(len(topic.partitions)))
        parts += [_encode_rigid_partition(partition, version) for partition in topic.partitions]
    parts.append(INT32.pack(response.throttle_time_ms))
    return b"".join(parts)


def _encode_rigid_partition(partition: ProducePartitionResponse, version: int) -> bytes:
    if version < 5:
        return PARTITION_V3.pack(*partition[:4])
    if version < 8:
        return PARTITION_V5.pack(*partition[:5])
    if not partition.record_errors and partition.error_message is None:
        return PARTITION_V8.pack(*partition[:5], 0, -1)
    parts = [PARTITION_V5.pack(*partition[:5]), INT32.pack(len(partition.record_errors))]
    for batch_index, message in partition.record_errors:
        parts += (INT32.pack(batch_index), encode_string(message))
    parts.append(encode_string(partition.error_message))
    return b"".join(parts)


_encode_name = lru_cache(maxsize=4096)(encode_compact_string)


def _encode_single(topic: ProduceTopicResponse, version: int) -> bytes | None:
    """The answer to a request with one partition whose records were appended; None where it is another."""
    name, topic_id, partitions = topic
    index, error_code, base_offset, append_time, log_start, errors, message, leader = partitions[0]
    if errors or message is not None or leader is not None:
        return None
    if version >= TOPIC_IDS_FROM:
        named = topic_id.bytes if topic_id is not None else bytes(16)
    else:
        named = _encode_name(name)
    return b"\x02%b\x02%b" % (
        named,
        SINGLE_PARTITION.pack(index, error_code, base_offset, append_time, log_start, 1, 0, 0, 0, 0, 0),
    )


def _encode_flexible(response: ProduceResponse, version: int) -> bytes:
    topics, throttle_time_ms, node_endpoints = response
    if len(topics) == 1 and len(topics[0].partitions) == 1 and not throttle_time_ms and not node_endpoints:
        single = _encode_single(topics[0], version)
        if single is not None:
            return single
    parts = [encode_uvarint(len(response.topics) + 1)]
    for name, topic_id, partitions in response.topics:
        if version >= TOPIC_IDS_FROM:
            parts.append(topic_id.bytes if topic_id is not None else bytes(16))
        else:
            parts.append(encode_compact_string(name))
        parts.append(encode_uvarint(len(partitions) + 1))
        for partition in partitions:
            index, error_code, base_offset, append_time, log_start, errors, message, leader = partition
            if not errors and message is None and leader is None:
                parts.append(
                    PARTITION_V9.pack(index, error_code, base_offset, append_time, log_start, 1, 0, 0)
                )
            else:
                parts.append(_encode_flexible_partition(partition, version))
        parts.append(NO_TAGS)
    parts.append(INT32.pack(response.throttle_time_ms))
    if response.node_endpoints and version >= LEADER_HINTS_FROM:
        parts.append(encode_tags({0: encode_node_endpoints(response.node_endpoints)}))
    else:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _encode_flexible_partition(partition: ProducePartitionResponse, version: int) -> bytes:
    parts = [PARTITION_V5.pack(*partition[:5]), encode_uvarint(len(partition.record_errors) + 1)]
    for batch_index, message in partition.record_errors:
        parts += (INT32.pack(batch_index), encode_compact_string(message), NO_TAGS)
    parts.append(encode_compact_string(partition.error_message))
    if partition.current_leader is not None and version >= LEADER_HINTS_FROM:
        parts.append(encode_tags({0: encode_leader(partition.current_leader)}))
    else:
        parts.append(NO_TAGS)
    return b"".join(parts)
