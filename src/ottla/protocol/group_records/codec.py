"""Encodes and decodes records of `__consumer_offsets`, in the versions that Kafka 4.3 writes.

Committed offsets come by the thousand per second, and by the million when a shard loads, so they have hand-written
functions here. kio's writer and our decoder handle the other records.
"""

import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from struct import Struct
from typing import Any, get_args

from ottla.model.ids import NO_LEADER_EPOCH, ZERO_UUID
from ottla.protocol import coordinator_codec
from ottla.protocol.coordinator_codec import corrupt, decode_key, decode_value, read_version
from ottla.protocol.group_records.records import (
    ConsumerGroupMemberMetadataValue,
    ExpiringOffsetCommitValue,
    GroupKey,
    GroupMetadataValue,
    GroupValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from ottla.protocol.primitives import (
    INT32,
    MALFORMED,
    NO_TAGS,
    encode_compact_string,
    encode_string,
    encode_tags,
    read_compact_string,
    read_string,
    read_tags,
    required,
    topic_id_of,
)

_LEGACY_OFFSET_COMMIT = 0  # of releases before 0.8.2; with the same fields as offset commits
KEY_TYPES: dict[int, type[Any]] = {key.__api_key__: key for key in get_args(GroupKey)} | {
    _LEGACY_OFFSET_COMMIT: OffsetCommitKey
}
VALUE_TYPES: dict[int, type[Any]] = {
    value.__api_key__: value for value in get_args(GroupValue) if value is not ExpiringOffsetCommitValue
}

# Kafka 4.3 writes groups in the last version that is not flexible, so that older releases can read them.
_GROUP_METADATA_VERSION = 3
_OFFSET_COMMIT_VERSION = OffsetCommitValue.__version__

_OFFSET_KEYS = (b"\x00\x01", b"\x00\x00")
_OFFSET_HEAD = Struct(">hqi")
_PLAIN_OFFSET = Struct(">hqiBq")
_NO_METADATA = 1  # a compact string of no bytes
_OFFSET_HEAD_V0 = Struct(">hq")
_TIMESTAMP = Struct(">q")
_TOPIC_ID_TAG = 0
_TOPIC_ID_HEAD = b"\x01\x00\x10"  # one tag, which is 0 and has 16 bytes
_CLASSIC_METADATA_TAG = 0
_NULL = b"\x00"
_PRESENT = b"\x01"


def encode_key(key: GroupKey) -> bytes:
    if type(key) is OffsetCommitKey:
        return _offset_key_prefix(key.group, key.topic) + INT32.pack(key.partition)
    return coordinator_codec.encode_key(key)


def encode_value(value: GroupValue) -> bytes:
    packer = _PACKERS.get(type(value))
    if packer is not None:
        return packer(value)
    version = _GROUP_METADATA_VERSION if type(value) is GroupMetadataValue else value.__version__
    return coordinator_codec.encode_value(value, version)


def decode_record(key: bytes, value: bytes | None) -> tuple[GroupKey, GroupValue | None] | None:
    """None for types that are ignored: of other group types, of newer releases, or no longer used (4).

    Raises KafkaError: CORRUPT_MESSAGE if it is malformed, UNSUPPORTED_VERSION if a newer release has written it.
    """
    if key[:2] in _OFFSET_KEYS:
        offset_key = _read_offset_key(key)
        return offset_key, None if value is None else _read_offset(value)
    group_key = decode_key(key, KEY_TYPES)
    if group_key is None:
        return None
    return group_key, None if value is None else decode_value(value, VALUE_TYPES[group_key.__api_key__])


# -- committed offsets


@lru_cache(maxsize=4096)
def _offset_key_prefix(group: str, topic: str) -> bytes:
    return _OFFSET_KEYS[0] + encode_string(group) + encode_string(topic)


# Cached also to share the strings, because a loaded shard has the names in the key of every partition.
@lru_cache(maxsize=4096)
def _offset_key_names(names: bytes) -> tuple[str, str]:
    buffer = memoryview(names)
    group, position = read_string(buffer, 0)
    topic, position = read_string(buffer, position)
    if position != len(names):
        raise ValueError(f"its names end at byte {position} of {len(names)}")
    return required(group), required(topic)


def _read_offset_key(key: bytes) -> OffsetCommitKey:
    try:
        group, topic = _offset_key_names(key[2:-4])
        (partition,) = INT32.unpack(key[-4:])
    except MALFORMED as error:
        raise corrupt(f"an OffsetCommitKey cannot be read: {error}") from error
    return OffsetCommitKey(group=group, topic=topic, partition=partition)


def _pack_offset(value: OffsetCommitValue) -> bytes:
    tags = NO_TAGS if value.topic_id is None else _topic_id_tag(value.topic_id)
    if not value.metadata:  # nearly always
        return (
            _PLAIN_OFFSET.pack(
                _OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch, _NO_METADATA, value.commit_timestamp
            )
            + tags
        )
    return b"".join(
        (
            _OFFSET_HEAD.pack(_OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch),
            encode_compact_string(value.metadata),
            _TIMESTAMP.pack(value.commit_timestamp),
            tags,
        )
    )


@lru_cache(maxsize=4096)
def _topic_id_tag(topic_id: uuid.UUID) -> bytes:
    return _TOPIC_ID_HEAD + topic_id.bytes


def _read_offset(value: bytes) -> OffsetCommitValue | ExpiringOffsetCommitValue:
    version = read_version(value, OffsetCommitValue)
    try:
        return _read_offset_of(version, memoryview(value))
    except MALFORMED as error:
        raise corrupt(f"an OffsetCommitValue of version {version} cannot be read: {error}") from error


def _read_offset_of(version: int, buffer: memoryview) -> OffsetCommitValue | ExpiringOffsetCommitValue:
    leader_epoch, topic_id = NO_LEADER_EPOCH, None
    if version >= 3:
        _, offset, leader_epoch = _OFFSET_HEAD.unpack_from(buffer)
        position = _OFFSET_HEAD.size
    else:
        _, offset = _OFFSET_HEAD_V0.unpack_from(buffer)
        position = _OFFSET_HEAD_V0.size
    metadata, position = (read_compact_string if version >= 4 else read_string)(buffer, position)
    (commit_timestamp,) = _TIMESTAMP.unpack_from(buffer, position)
    position += _TIMESTAMP.size
    if version == ExpiringOffsetCommitValue.__version__:
        (expire_timestamp,) = _TIMESTAMP.unpack_from(buffer, position)
        if expire_timestamp != OffsetCommitValue.expire_timestamp:
            return ExpiringOffsetCommitValue(
                offset=offset,
                metadata=required(metadata),
                commit_timestamp=commit_timestamp,
                expire_timestamp=expire_timestamp,
            )
    elif version >= 4:
        topic_id = _read_topic_id(buffer, position)
    return OffsetCommitValue(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=required(metadata),
        commit_timestamp=commit_timestamp,
        topic_id=topic_id,
    )


def _read_topic_id(buffer: memoryview, position: int) -> uuid.UUID | None:
    """The only tagged field of a commit, if it is present."""
    if buffer[position : position + len(_TOPIC_ID_HEAD)] == _TOPIC_ID_HEAD:
        position += len(_TOPIC_ID_HEAD)
        raw: memoryview | None = buffer[position : position + 16]
    else:
        raw = read_tags(buffer, position)[0].get(_TOPIC_ID_TAG)
    topic_id = ZERO_UUID if raw is None else topic_id_of(bytes(raw))
    return None if topic_id == ZERO_UUID else topic_id


# -- members of the consumer protocol


def _pack_member(value: ConsumerGroupMemberMetadataValue) -> bytes:
    """Adds the marker before a nullable struct in a tagged field (KIP-893), which kio does not write.

    Null is written too, because Kafka reads a missing tag as a struct without fields, and would take the member for one
    of the classic protocol.
    """
    classic = value.classic_member_metadata
    body = coordinator_codec.encode_value(replace(value, classic_member_metadata=None), value.__version__)
    tag = _NULL if classic is None else _PRESENT + coordinator_codec.encode(b"", type(classic), classic)
    return body.removesuffix(NO_TAGS) + encode_tags({_CLASSIC_METADATA_TAG: tag})


_PACKERS: dict[type[Any], Callable[[Any], bytes]] = {
    OffsetCommitValue: _pack_offset,
    ConsumerGroupMemberMetadataValue: _pack_member,
}
