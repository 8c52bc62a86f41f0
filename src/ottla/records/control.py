"""Control batches: what brokers tell each other, and consumers, inside a log.

The key of a control record is two numbers, version and type (KIP-98). The values are Kafka's schemas: the end
of a transaction (KIP-98), a change of the quorum's leader (KIP-595), both ends of a snapshot (KIP-630), the
quorum's version and voters (KIP-853).
"""

from collections.abc import Iterable
from enum import IntEnum
from io import BytesIO
from struct import Struct
from typing import NamedTuple

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage as LeaderChangeMessageV0
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_writer

from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE
from ottla.records.control_values import (
    QuorumMessage,
    ValueReader,
    read_kraft_version,
    read_leader_change,
    read_snapshot_footer,
    read_snapshot_header,
    read_voters,
)
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
from ottla.records.records import Record, build_batch, iter_records

KEY = Struct(">hh")
KEY_VERSION = 0
END_TRANSACTION = Struct(">hi")
END_TRANSACTION_VERSION = 0
# The one record of a marker: length, attributes, no time nor offset after the batch's, the key, the value, no headers.
MARKER = Struct(">bbbbbhhbhib")
MARKER_PREFIX = (2 * (MARKER.size - 1), 0, 0, 0, 2 * KEY.size)  # lengths are zigzag varints
MARKER_VALUE_LENGTH = 2 * END_TRANSACTION.size
MARKER_BATCH_SIZE = HEADER_SIZE + MARKER.size


class ControlType(IntEnum):
    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class EndTransaction(NamedTuple):
    """A transaction's marker: its writes of this producer in this partition are committed, or aborted."""

    commit: bool
    coordinator_epoch: int


ControlMessage = EndTransaction | QuorumMessage

READERS = {
    ControlType.LEADER_CHANGE: read_leader_change,
    ControlType.SNAPSHOT_HEADER: read_snapshot_header,
    ControlType.SNAPSHOT_FOOTER: read_snapshot_footer,
    ControlType.KRAFT_VERSION: read_kraft_version,
    ControlType.KRAFT_VOTERS: read_voters,
}
TYPES: dict[type[QuorumMessage], ControlType] = {
    LeaderChangeMessageV0: ControlType.LEADER_CHANGE,
    LeaderChangeMessage: ControlType.LEADER_CHANGE,
    SnapshotHeaderRecord: ControlType.SNAPSHOT_HEADER,
    SnapshotFooterRecord: ControlType.SNAPSHOT_FOOTER,
    KRaftVersionRecord: ControlType.KRAFT_VERSION,
    VotersRecord: ControlType.KRAFT_VOTERS,
}


def build_control_batch(
    messages: Iterable[ControlMessage],
    *,
    base_offset: int,
    timestamp: int,
    leader_epoch: int = NO_LEADER_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> bytes:
    """A batch with one record per message. The end of a transaction names its producer and stands alone."""
    return build_batch(
        (Record(base_offset + index, timestamp, *_encode(message)) for index, message in enumerate(messages)),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer_id >= 0,
        control=True,
    )


def build_marker_batch(
    message: EndTransaction, *, timestamp: int, producer_id: int, producer_epoch: int
) -> tuple[BatchHeader, bytes]:
    """What `build_control_batch` makes of the end of a transaction, with its header, in a fifth of the time.

    A transaction ends in each of its partitions, which may be many.
    """
    outcome = ControlType.COMMIT if message.commit else ControlType.ABORT
    payload = MARKER.pack(
        *MARKER_PREFIX,
        KEY_VERSION,
        outcome,
        MARKER_VALUE_LENGTH,
        END_TRANSACTION_VERSION,
        message.coordinator_epoch,
        0,
    )
    header = BatchHeader(
        0,
        MARKER_BATCH_SIZE - LOG_OVERHEAD,
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


def read_marker_batch(data: Bytes) -> EndTransaction | None:
    """The end of a transaction, where the batch is one; as `read_control_record`, and quick for those built here.

    Compaction leaves a batch without record where a transaction is gone and the producer is to be remembered.
    """
    if len(data) == MARKER_BATCH_SIZE:
        *prefix, key_version, number, value_length, version, coordinator_epoch, headers = MARKER.unpack_from(
            data, HEADER_SIZE
        )
        if (
            tuple(prefix) == MARKER_PREFIX
            and (key_version, value_length, version, headers)
            == (KEY_VERSION, MARKER_VALUE_LENGTH, END_TRANSACTION_VERSION, 0)
            and number in (ControlType.ABORT, ControlType.COMMIT)
        ):
            return EndTransaction(number == ControlType.COMMIT, coordinator_epoch)
    record = next(iter_records(data), None)
    message = None if record is None else read_control_record(record)
    return message if isinstance(message, EndTransaction) else None


def read_control_record(record: Record) -> ControlMessage | None:
    """What a record of a control batch says; None for a type of a newer Kafka, which readers are to skip.

    Raises KafkaError(CORRUPT_MESSAGE) for bytes that are no control record.
    """
    number = control_type(record)
    value = record.value or b""
    if number in (ControlType.ABORT, ControlType.COMMIT):
        if len(value) < END_TRANSACTION.size:
            raise _corrupt(
                record, f"the end of a transaction has {len(value)} bytes, not {END_TRANSACTION.size}"
            )
        version, coordinator_epoch = END_TRANSACTION.unpack_from(value)
        if version < 0:
            raise _corrupt(record, f"the end of a transaction has the version {version}")
        return EndTransaction(number == ControlType.COMMIT, coordinator_epoch)
    if number not in ControlType.__members__.values():
        return None
    return _decode(record, ControlType(number), value)


def control_type(record: Record) -> int:
    """The number in a control record's key, which may be one that `ControlType` does not know."""
    key = record.key or b""
    if len(key) < KEY.size:
        raise _corrupt(record, f"its key has {len(key)} bytes, not {KEY.size}")
    version, number = KEY.unpack_from(key)
    if version < 0:
        raise _corrupt(record, f"its key has the version {version}")
    return int(number)


def _encode(message: ControlMessage) -> tuple[bytes, bytes]:
    if isinstance(message, EndTransaction):
        outcome = ControlType.COMMIT if message.commit else ControlType.ABORT
        return (
            KEY.pack(KEY_VERSION, outcome),
            END_TRANSACTION.pack(END_TRANSACTION_VERSION, message.coordinator_epoch),
        )
    value = BytesIO()
    entity_writer(type(message))(value, message)
    return KEY.pack(KEY_VERSION, TYPES[type(message)]), value.getvalue()


def _decode(record: Record, control_type: ControlType, value: bytes) -> ControlMessage:
    """A newer version only adds at the end, which is not read."""
    try:
        message = READERS[control_type](ValueReader(value))
    except ValueError as error:
        raise _corrupt(record, f"its value cannot be read: {error}") from error
    if message.version < 0:
        raise _corrupt(record, f"its value has the version {message.version}")
    return message


def _corrupt(record: Record, reason: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the control record at offset {record.offset}: {reason}")
