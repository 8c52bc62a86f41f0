"""Control batches: what brokers tell each other, and consumers, inside a log.

The values are Kafka's schemas: the end of a transaction (`ottla.records.markers`), a change of the quorum's leader
(KIP-595), both ends of a snapshot (KIP-630), the quorum's version and voters (KIP-853).
"""

from collections.abc import Iterable
from io import BytesIO

from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0.data import LeaderChangeMessage as LeaderChangeMessageV0
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0.data import VotersRecord
from kio.serial import entity_writer

from ottla.model.ids import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from ottla.records.control_values import (
    QuorumMessage,
    ValueReader,
    read_kraft_version,
    read_leader_change,
    read_snapshot_footer,
    read_snapshot_header,
    read_voters,
)
from ottla.records.markers import (
    ControlType,
    EndTransaction,
    control_type,
    corrupt_control_record,
    encode_key,
    read_marker,
)
from ottla.records.records import Record, build_batch

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


def read_control_record(record: Record) -> ControlMessage | None:
    """What a record of a control batch says; None for a type of a newer Kafka, which readers are to skip.

    Raises KafkaError(CORRUPT_MESSAGE) for bytes that are no control record.
    """
    marker = read_marker(record)
    if marker is not None:
        return marker
    number = control_type(record)
    if number not in READERS:
        return None
    return _decode(record, ControlType(number), record.value or b"")


def _encode(message: ControlMessage) -> tuple[bytes, bytes]:
    if isinstance(message, EndTransaction):
        return encode_key(message.control_type), message.encode_value()
    value = BytesIO()
    entity_writer(type(message))(value, message)
    return encode_key(TYPES[type(message)]), value.getvalue()


def _decode(record: Record, control_type: ControlType, value: bytes) -> ControlMessage:
    """A newer version only adds at the end, which is not read."""
    try:
        message = READERS[control_type](ValueReader(value))
    except ValueError as error:
        raise corrupt_control_record(record, f"its value cannot be read: {error}") from error
    if message.version < 0:
        raise corrupt_control_record(record, f"its value has the version {message.version}")
    return message
