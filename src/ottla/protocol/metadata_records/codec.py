"""Metadata records as bytes: the frame (its version, the record's type and version), then kio's encoding of the body.

A cluster has thousands of partitions and few of anything else, so that partitions and their changes, which come by the
thousand in snapshots and at every start, are packed here; kio's writer, five times slower, has the rest. Records are
read by our decoder: kio's reader allocates what a damaged length claims, which ends the process, and it refuses tagged
fields that a newer Kafka may add.
"""

import uuid
from collections.abc import Callable
from dataclasses import MISSING, Field, field, fields, make_dataclass
from functools import cache
from io import BytesIO
from struct import Struct
from typing import Any

from kio.serial import entity_writer

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import ZERO_UUID
from ottla.protocol.decoder import entity_reader
from ottla.protocol.errors import MalformedRequest
from ottla.protocol.metadata_records.records import (
    NO_LEADER_CHANGE,
    RECORD_TYPES,
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    OpaqueRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)

FRAME_VERSION = 1
BODY_POSITION = 3
BY_API_KEY: dict[int, type[Any]] = {record_type.__api_key__: record_type for record_type in RECORD_TYPES}

# Fields that stand in the middle of a record's newest version and that an older one lacks. Tagged fields need no entry.
MISSING_FIELDS: dict[tuple[type[Any], int], frozenset[str]] = {
    (RegisterBrokerRecord, 0): frozenset({"is_migrating_zk_broker", "in_controlled_shutdown"}),
    (RegisterBrokerRecord, 1): frozenset({"is_migrating_zk_broker"}),
    (PartitionRecord, 0): frozenset({"directories"}),
}

# The levels of metadata.version from which a record's version may be written. Below 3.7-IV2 we do not write.
METADATA_VERSION_MIN = 17
METADATA_VERSION_MAX = 30  # 4.3-IV0
WRITTEN_SINCE: dict[type[Any], tuple[tuple[int, int], ...]] = {
    RegisterBrokerRecord: ((METADATA_VERSION_MAX, 4), (METADATA_VERSION_MIN, 3)),
    PartitionRecord: ((23, 2), (METADATA_VERSION_MIN, 1)),
    PartitionChangeRecord: ((23, 2), (METADATA_VERSION_MIN, 1)),
}


def encode_record(record: MetadataRecord, metadata_version: int = METADATA_VERSION_MAX) -> bytes:
    if isinstance(record, OpaqueRecord):
        return _frame(record.api_key, record.version) + record.body
    record_type = type(record)
    frame = _frame(record_type.__api_key__, _version_to_write(record, metadata_version))
    packer = PACKERS.get(record_type)
    if packer is not None:
        return frame + packer(record)
    buffer = BytesIO()
    buffer.write(frame)
    entity_writer(record_type)(buffer, record)
    return buffer.getvalue()


def decode_record(data: bytes) -> MetadataRecord:
    """Raises KafkaError: CORRUPT_MESSAGE for bytes that are no record, UNSUPPORTED_VERSION for a newer Kafka's."""
    if len(data) < 3 or data[0] != FRAME_VERSION or data[1] >= 0x80 or data[2] >= 0x80:
        raise KafkaError(
            ErrorCode.corrupt_message, f"a metadata record starts with {data[:3].hex()!r}, which is no frame"
        )
    api_key, version = data[1], data[2]
    record_type = BY_API_KEY.get(api_key)
    if record_type is None:
        return OpaqueRecord(api_key, version, data[3:])
    if version > record_type.__version__:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"a {record_type.__name__} has version {version}, written by a newer release: "
            f"this one reads up to {record_type.__version__}",
        )
    try:
        is_older = (record_type, version) in MISSING_FIELDS
        record: MetadataRecord = (
            _read_older(record_type, version, data) if is_older else _read(record_type, data)
        )
    except MalformedRequest as error:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"a {record_type.__name__} of version {version} cannot be read: {error}",
        ) from error
    return record


def _frame(api_key: int, version: int) -> bytes:
    return bytes((FRAME_VERSION, api_key, version))  # each a varint, of one byte as all are below 128


def _version_to_write(record: Any, metadata_version: int) -> int:
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    for since, version in WRITTEN_SINCE.get(type(record), ()):
        if metadata_version >= since:
            return version
    return int(record.__version__)


def _read(shape: type, data: bytes) -> Any:
    return entity_reader(shape)(memoryview(data), BODY_POSITION)[0]


def _read_older(record_type: type[Any], version: int, data: bytes) -> Any:
    older = _older_type(record_type.__api_key__, version)
    record = _read(older, data)
    return record_type(**{each.name: getattr(record, each.name) for each in fields(older)})


@cache
def _older_type(api_key: int, version: int) -> type[Any]:
    record_type = BY_API_KEY[api_key]

    def copied(each: Field[Any]) -> Any:
        if each.default is MISSING:
            return field(metadata=dict(each.metadata), kw_only=True)
        return field(metadata=dict(each.metadata), default=each.default, kw_only=True)

    missing = MISSING_FIELDS[record_type, version]
    kept = [each for each in fields(record_type) if each.name not in missing]
    namespace = {name: getattr(record_type, name) for name in ("__type__", "__flexible__")}
    return make_dataclass(
        record_type.__name__,
        [(each.name, each.type, copied(each)) for each in kept],
        namespace={**namespace, "__version__": version},
        frozen=True,
    )


_INT32 = Struct(">i")
_LEADER_EPOCHS = Struct(">iii")


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _int32s(values: tuple[int, ...]) -> bytes:
    return _varint(len(values) + 1) + Struct(f">{len(values)}i").pack(*values)


def _uuids(values: tuple[uuid.UUID | None, ...]) -> bytes:
    return _varint(len(values) + 1) + b"".join([(value or ZERO_UUID).bytes for value in values])


def _tagged(tags: list[tuple[int, bytes]]) -> bytes:
    return _varint(len(tags)) + b"".join([_varint(tag) + _varint(len(data)) + data for tag, data in tags])


def _pack_partition(record: PartitionRecord) -> bytes:
    tags = [(0, bytes((record.leader_recovery_state,)))] if record.leader_recovery_state else []
    for tag, replicas in ((1, record.eligible_leader_replicas), (2, record.last_known_elr)):
        if replicas is not None:
            tags.append((tag, _int32s(replicas)))
    return b"".join(
        (
            _INT32.pack(record.partition_id),
            record.topic_id.bytes,
            _int32s(record.replicas),
            _int32s(record.isr),
            _int32s(record.removing_replicas),
            _int32s(record.adding_replicas),
            _LEADER_EPOCHS.pack(record.leader, record.leader_epoch, record.partition_epoch),
            _uuids(record.directories),
            _tagged(tags),
        )
    )


def _pack_partition_change(record: PartitionChangeRecord) -> bytes:
    tags: list[tuple[int, bytes]] = []
    if record.isr is not None:
        tags.append((0, _int32s(record.isr)))
    if record.leader != NO_LEADER_CHANGE:
        tags.append((1, _INT32.pack(record.leader)))
    for tag, replicas in (
        (2, record.replicas),
        (3, record.removing_replicas),
        (4, record.adding_replicas),
    ):
        if replicas is not None:
            tags.append((tag, _int32s(replicas)))
    if record.leader_recovery_state != -1:
        tags.append((5, bytes((record.leader_recovery_state,))))
    for tag, replicas in ((6, record.eligible_leader_replicas), (7, record.last_known_elr)):
        if replicas is not None:
            tags.append((tag, _int32s(replicas)))
    if record.directories is not None:
        tags.append((8, _uuids(record.directories)))
    return _INT32.pack(record.partition_id) + record.topic_id.bytes + _tagged(tags)


PACKERS: dict[type[Any], Callable[[Any], bytes]] = {
    PartitionRecord: _pack_partition,
    PartitionChangeRecord: _pack_partition_change,
}
