"""Encodes and decodes metadata records: a frame (its version, the record's type and version), then the body.

Partitions and their changes come by the thousand in snapshots and at every startup, so they have hand-written encoders;
kio's writer, which is five times slower, encodes the rest. Our own decoder reads the records: kio's reader would
allocate memory for a damaged length, which aborts the process, and rejects tagged fields that a newer Kafka may add.
"""

import uuid
from collections.abc import Callable
from dataclasses import fields, make_dataclass
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
from ottla.protocol.record_schema import copy_field
from ottla.protocol.varint import encode_uvarint

_FRAME_VERSION = 1
_BODY_POSITION = 3
_BY_API_KEY: dict[int, type[Any]] = {record_type.__api_key__: record_type for record_type in RECORD_TYPES}

# Fields in the middle of a record that older versions do not have. Tagged fields need no entry.
_MISSING_FIELDS: dict[tuple[type[Any], int], frozenset[str]] = {
    (RegisterBrokerRecord, 0): frozenset({"is_migrating_zk_broker", "in_controlled_shutdown"}),
    (RegisterBrokerRecord, 1): frozenset({"is_migrating_zk_broker"}),
    (PartitionRecord, 0): frozenset({"directories"}),
}

# (metadata.version, the record version to write from there on). Levels below 3.7-IV2 are not supported.
METADATA_VERSION_MIN = 17
METADATA_VERSION_MAX = 30  # 4.3-IV0
_WRITTEN_SINCE: dict[type[Any], tuple[tuple[int, int], ...]] = {
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
    """Raises KafkaError: CORRUPT_MESSAGE if it is malformed, UNSUPPORTED_VERSION if a newer Kafka has written it."""
    if len(data) < 3 or data[0] != _FRAME_VERSION or data[1] >= 0x80 or data[2] >= 0x80:
        raise KafkaError(
            ErrorCode.corrupt_message,
            f"a metadata record starts with {data[:3].hex()!r}, which is not a frame",
        )
    api_key, version = data[1], data[2]
    record_type = _BY_API_KEY.get(api_key)
    if record_type is None:
        return OpaqueRecord(api_key, version, data[3:])
    if version > record_type.__version__:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"a {record_type.__name__} has version {version}, written by a newer release: "
            f"this one reads up to {record_type.__version__}",
        )
    try:
        is_older = (record_type, version) in _MISSING_FIELDS
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
    return bytes((_FRAME_VERSION, api_key, version))  # varints of one byte, because all are below 128


def _version_to_write(record: Any, metadata_version: int) -> int:
    if isinstance(record, BrokerRegistrationChangeRecord):
        if record.cordoned_log_dirs is not None:
            return 3
        return 2 if record.log_dirs else 1 if record.in_controlled_shutdown else 0
    for since, version in _WRITTEN_SINCE.get(type(record), ()):
        if metadata_version >= since:
            return version
    return int(record.__version__)


def _read(schema: type, data: bytes) -> Any:
    return entity_reader(schema)(memoryview(data), _BODY_POSITION)[0]


def _read_older(record_type: type[Any], version: int, data: bytes) -> Any:
    older = _older_type(record_type.__api_key__, version)
    record = _read(older, data)
    return record_type(**{each.name: getattr(record, each.name) for each in fields(older)})


@cache
def _older_type(api_key: int, version: int) -> type[Any]:
    record_type = _BY_API_KEY[api_key]
    missing = _MISSING_FIELDS[record_type, version]
    kept = [each for each in fields(record_type) if each.name not in missing]
    namespace = {name: getattr(record_type, name) for name in ("__type__", "__flexible__")}
    return make_dataclass(
        record_type.__name__,
        [(each.name, each.type, copy_field(each)) for each in kept],
        namespace={**namespace, "__version__": version},
        frozen=True,
    )


_INT32 = Struct(">i")
_LEADER_EPOCHS = Struct(">iii")


def _int32s(values: tuple[int, ...]) -> bytes:
    return encode_uvarint(len(values) + 1) + Struct(f">{len(values)}i").pack(*values)


def _uuids(values: tuple[uuid.UUID | None, ...]) -> bytes:
    return encode_uvarint(len(values) + 1) + b"".join([(value or ZERO_UUID).bytes for value in values])


def _tagged(tags: list[tuple[int, bytes]]) -> bytes:
    return encode_uvarint(len(tags)) + b"".join(
        [encode_uvarint(tag) + encode_uvarint(len(data)) + data for tag, data in tags]
    )


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
