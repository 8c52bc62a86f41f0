"""Decodes any file of a data directory into dictionaries, for `ottla dump-log`."""

from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib import import_module
from struct import Struct
from typing import Any
from uuid import UUID

from ottla.env.disk import Disk
from ottla.model.errors import KafkaError
from ottla.model.ids import uuid_to_string
from ottla.records.control import read_control_record
from ottla.records.header import HEADER_SIZE, MAGIC, BatchHeader, crc_matches, read_header
from ottla.records.markers import ControlType, control_type
from ottla.records.records import Record, iter_records
from ottla.storage.checkpoints import (
    CorruptCheckpointError,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    read_partition_metadata,
)
from ottla.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    SWAP_SUFFIX,
    parse_segment_file,
)
from ottla.storage.mapped_index import CorruptIndexError
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.producer_snapshots import CorruptSnapshotError, read_snapshot
from ottla.storage.time_index import TimeIndex
from ottla.storage.txn_index import read_txn_index

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_OFFSET_CHECKPOINT_SUFFIX = "-offset-checkpoint"
_METADATA_SNAPSHOT_SUFFIX = ".checkpoint"

# Topics whose records are decoded into fields, and the modules that decode them.
_RECORD_CODECS = {
    "__consumer_offsets": "ottla.protocol.group_records.codec",
    "__transaction_state": "ottla.protocol.transaction_records.codec",
}

Entry = dict[str, Any]
_DecodeRecord = Callable[[bytes, bytes | None], tuple[Any, Any] | None]


class UnknownFileError(Exception):
    """The name is not that of a file in a data directory."""


def dump_file(disk: Disk, path: str, *, records: bool = False) -> Iterator[Entry]:
    """Yields one dictionary per batch (and record, if `records`), index entry, producer or checkpoint line.

    Records of the coordinators' topics have a type, and fields instead of bytes. Damage ends the dump with an entry
    {"kind": "damage", ...}.
    """
    name = path.rpartition("/")[2]
    for suffix in (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX):
        name = name.removesuffix(suffix)
    try:
        yield from _dump(disk, path, name, records)
    except (CorruptIndexError, CorruptSnapshotError, CorruptCheckpointError, UnicodeDecodeError) as error:
        yield {"kind": "damage", "reason": str(error)}


def _dump(disk: Disk, path: str, name: str, records: bool) -> Iterator[Entry]:
    base_offset, suffix = parse_segment_file(name) or (0, "")
    if suffix == ".log" or name.endswith(_METADATA_SNAPSHOT_SUFFIX):
        return _dump_batches(disk, path, records)
    if suffix == ".index":
        return _dump_offset_index(disk, path, base_offset)
    if suffix == ".timeindex":
        return _dump_time_index(disk, path, base_offset)
    if suffix == ".txnindex":
        return ({"kind": "aborted transaction", **entry._asdict()} for entry in read_txn_index(disk, path))
    if suffix == ".snapshot":
        return ({"kind": "producer", **entry._asdict()} for entry in read_snapshot(disk, path))
    if name == LEADER_EPOCH_CHECKPOINT:
        return (
            {"kind": "leader epoch", "epoch": epoch, "start_offset": start_offset}
            for epoch, start_offset in read_epoch_checkpoint(disk, path)
        )
    if name.endswith(_OFFSET_CHECKPOINT_SUFFIX):
        return (
            {"kind": "offset", "topic": topic, "partition": partition, "offset": offset}
            for (topic, partition), offset in read_offset_checkpoint(disk, path).items()
        )
    if name == PARTITION_METADATA:
        topic_id = read_partition_metadata(disk, path)
        return iter([{"kind": "partition", "topic_id": topic_id and uuid_to_string(topic_id)}])
    raise UnknownFileError(
        f"{path} has no name of Kafka's files: expected NNNNNNNNNNNNNNNNNNNN.log, .index, .timeindex, .txnindex or "
        ".snapshot, a .checkpoint, leader-epoch-checkpoint, an -offset-checkpoint or partition.metadata"
    )


def _dump_batches(disk: Disk, path: str, records: bool) -> Iterator[Entry]:
    decode = _record_decoder(path) if records else None
    file = disk.open(path)
    position, end = 0, file.size()
    while position < end:
        head = file.read_at(position, HEADER_SIZE)
        if not any(head):
            yield {"kind": "unused", "position": position, "size": end - position, "reason": "preallocated"}
            return
        header = read_header(head) if len(head) == HEADER_SIZE else None
        if header is None or header.magic != MAGIC or not HEADER_SIZE <= header.size <= end - position:
            yield {"kind": "damage", "position": position, "size": end - position, "reason": "no whole batch"}
            return
        data = file.read_at(position, header.size)
        yield _describe_batch(position, header, crc_matches(data, 0, header))
        if records:
            try:
                for record in iter_records(data):
                    yield _describe_record(record, header, decode)
            except KafkaError as error:
                yield {"kind": "damage", "position": position, "size": header.size, "reason": error.message}
        position += header.size


def _describe_batch(position: int, header: BatchHeader, is_valid: bool) -> Entry:
    codec = header.compression
    return {
        "kind": "batch",
        "base_offset": header.base_offset,
        "last_offset": header.last_offset,
        "count": header.records_count,
        "base_sequence": header.base_sequence,
        "last_sequence": header.last_sequence,
        "producer_id": header.producer_id,
        "producer_epoch": header.producer_epoch,
        "leader_epoch": header.partition_leader_epoch,
        "is_transactional": header.is_transactional,
        "is_control": header.is_control,
        "timestamp_type": "LogAppendTime" if header.is_log_append_time else "CreateTime",
        "base_timestamp": header.base_timestamp,
        "max_timestamp": header.max_timestamp,
        "compression": _CODECS[codec] if codec < len(_CODECS) else f"unknown ({codec})",
        "position": position,
        "size": header.size,
        "magic": header.magic,
        "crc": header.crc,
        "is_valid": is_valid,
    }


def _record_decoder(path: str) -> _DecodeRecord | None:
    topic = path.rpartition("/")[0].rpartition("/")[2].rpartition("-")[0]
    module = _RECORD_CODECS.get(topic)
    if module is None:
        return None
    decode: _DecodeRecord = import_module(module).decode_record
    return decode


def _describe_record(record: Record, header: BatchHeader, decode: _DecodeRecord | None) -> Entry:
    entry: Entry = {"kind": "record", "offset": record.offset, "timestamp": record.timestamp}
    if header.is_control:
        number = control_type(record)
        known = number in ControlType.__members__.values()
        message = read_control_record(record)
        return {
            **entry,
            "control_type": ControlType(number).name if known else f"unknown ({number})",
            "message": str(message),
        }
    if decode is not None and record.key is not None:
        try:
            decoded = decode(record.key, record.value)
        except KafkaError as error:
            decoded, entry["reason"] = None, error.message
        if decoded is not None:
            key, value = decoded
            return {
                **entry,
                "type": type(key).__name__.removesuffix("Key"),
                "key": _fields(key),
                "value": None if value is None else _fields(value),
            }
    return {**entry, "key": record.key, "value": record.value, "headers": list(record.headers)}


def _fields(message: Any) -> Entry:
    return asdict(
        message,
        dict_factory=lambda pairs: {
            name: uuid_to_string(value) if isinstance(value, UUID) else value for name, value in pairs
        },
    )


def _dump_offset_index(disk: Disk, path: str, base_offset: int) -> Iterator[Entry]:
    for relative, position in _entries(disk, path, OffsetIndex.entry):
        yield {"kind": "offset index", "offset": base_offset + relative, "position": position}


def _dump_time_index(disk: Disk, path: str, base_offset: int) -> Iterator[Entry]:
    for timestamp, relative in _entries(disk, path, TimeIndex.entry):
        yield {"kind": "time index", "timestamp": timestamp, "offset": base_offset + relative}


def _entries(disk: Disk, path: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    """The entries of an index, without the zeros that follow them in the index of an active segment."""
    data = disk.read_bytes(path)
    if len(data) % entry.size:
        raise CorruptIndexError(f"{path} has {len(data)} bytes, which is not a multiple of {entry.size}")
    used = data.rstrip(b"\0")
    yield from entry.iter_unpack(data[: -(-len(used) // entry.size) * entry.size])
