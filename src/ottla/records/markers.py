"""The types of control records, and the marker that ends a transaction (KIP-98).

The key of a control record is its version and type. The value of a marker is its version and the coordinator epoch. The
other types, which only the quorum's log has, are in `ottla.records.control`.
"""

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_SEQUENCE
from ottla.records.header import (
    CONTROL_MASK,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_MASK,
    BatchHeader,
    Bytes,
    sealed_parts,
)
from ottla.records.records import Record, iter_records

KEY = Struct(">hh")
_KEY_VERSION = 0
_END_TRANSACTION = Struct(">hi")
_END_TRANSACTION_VERSION = 0
# The record of a marker batch: length, attributes, timestamp and offset deltas of 0, key, value, no headers.
_MARKER = Struct(">bbbbbhhbhib")
_MARKER_PREFIX = (2 * (_MARKER.size - 1), 0, 0, 0, 2 * KEY.size)  # lengths are zigzag varints
_MARKER_VALUE_LENGTH = 2 * _END_TRANSACTION.size
_MARKER_BATCH_SIZE = HEADER_SIZE + _MARKER.size


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransactionMarker(NamedTuple):
    """Commits or aborts the transaction of a producer in a partition."""

    commit: bool
    coordinator_epoch: int

    @property
    def control_type(self) -> ControlType:
        return ControlType.COMMIT if self.commit else ControlType.ABORT

    def encode_value(self) -> bytes:
        return _END_TRANSACTION.pack(_END_TRANSACTION_VERSION, self.coordinator_epoch)


def encode_key(control_type: ControlType) -> bytes:
    return KEY.pack(_KEY_VERSION, control_type)


def build_marker_batch(
    message: EndTransactionMarker, *, timestamp: int, producer_id: int, producer_epoch: int
) -> tuple[BatchHeader, bytes]:
    """As `build_control_batch` for one marker, in a fifth of the time; also returns the header.

    The speed matters, because a transaction ends in each of its partitions.
    """
    payload = _MARKER.pack(
        *_MARKER_PREFIX,
        _KEY_VERSION,
        message.control_type,
        _MARKER_VALUE_LENGTH,
        _END_TRANSACTION_VERSION,
        message.coordinator_epoch,
        0,
    )
    header = BatchHeader(
        0,
        _MARKER_BATCH_SIZE - LOG_OVERHEAD,
        NO_LEADER_EPOCH,
        MAGIC,
        0,
        CONTROL_MASK | TRANSACTIONAL_MASK,
        0,
        timestamp,
        timestamp,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    return header, b"".join(sealed_parts(header, payload))


def read_marker_batch(data: Bytes) -> EndTransactionMarker | None:
    """As `read_marker` for the record of a batch, with a fast path for batches of `build_marker_batch`.

    None also for an empty batch, which compaction leaves behind to keep the state of the producer.
    """
    if len(data) == _MARKER_BATCH_SIZE:
        *prefix, key_version, number, value_length, version, coordinator_epoch, headers = _MARKER.unpack_from(
            data, HEADER_SIZE
        )
        if (
            tuple(prefix) == _MARKER_PREFIX
            and (key_version, value_length, version, headers)
            == (_KEY_VERSION, _MARKER_VALUE_LENGTH, _END_TRANSACTION_VERSION, 0)
            and number in (ControlType.ABORT, ControlType.COMMIT)
        ):
            return EndTransactionMarker(number == ControlType.COMMIT, coordinator_epoch)
    record = next(iter_records(data), None)
    return None if record is None else read_marker(record)


def read_marker(record: Record) -> EndTransactionMarker | None:
    """The marker in a control record; None if it has another type.

    Raises KafkaError(CORRUPT_MESSAGE) if it is not a valid control record.
    """
    number, value = control_type(record), record.value or b""
    if number not in (ControlType.ABORT, ControlType.COMMIT):
        return None
    if len(value) < _END_TRANSACTION.size:
        raise corrupt_control_record(
            record, f"the end of a transaction has {len(value)} bytes, not {_END_TRANSACTION.size}"
        )
    version, coordinator_epoch = _END_TRANSACTION.unpack_from(value)
    if version < 0:
        raise corrupt_control_record(record, f"the end of a transaction has the version {version}")
    return EndTransactionMarker(number == ControlType.COMMIT, coordinator_epoch)


def control_type(record: Record) -> int:
    """The type in the key of a control record. It may be a number that `ControlType` does not contain."""
    key = record.key or b""
    if len(key) < KEY.size:
        raise corrupt_control_record(record, f"its key has {len(key)} bytes, not {KEY.size}")
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise corrupt_control_record(record, f"its key has the version {version}")
    return int(number)


def corrupt_control_record(record: Record, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the control record at offset {record.offset}: {reason}")
