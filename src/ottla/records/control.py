"""Control batches: records that brokers write for themselves and for consumers.

The values have Kafka's schemas: the end of a transaction (`ottla.records.markers`), a leader change of the quorum
(KIP-595), the header and footer of a snapshot (KIP-630), the version and voters of the quorum (KIP-853).
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
    EndTransactionMarker,
    control_type,
    corrupt_control_record,
    encode_key,
    read_marker,
)
from ottla.records.records import Record, build_batch

ControlMessage = EndTransactionMarker | QuorumMessage

_READERS = {
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
    """A batch with one record per message. A transaction marker needs a producer id and must be the only message."""
    return build_batch(
        (Record(base_offset + index, timestamp, *_encode(message)) for index, message in enumerate(messages)),
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=producer_id >= 0,
        control=True,
    )


def read_control_record(record: Record) -> ControlMessage | None:
    """The message of a control record; None for unknown types of a newer Kafka, which readers skip.

    Raises KafkaError(CORRUPT_MESSAGE) if it is not a valid control record.
    """
    marker = read_marker(record)
    if marker is not None:
        return marker
    number = control_type(record)
    if number not in _READERS:
        return None
    return _decode(record, ControlType(number), record.value or b"")


def _encode(message: ControlMessage) -> tuple[bytes, bytes]:
    if isinstance(message, EndTransactionMarker):
        return encode_key(message.control_type), message.encode_value()
    value = BytesIO()
    entity_writer(type(message))(value, message)
    return encode_key(TYPES[type(message)]), value.getvalue()


def _decode(record: Record, control_type: ControlType, value: bytes) -> ControlMessage:
    """Newer versions only add fields at the end, which are not read."""
    try:
        message = _READERS[control_type](ValueReader(value))
    except ValueError as error:
        raise corrupt_control_record(record, f"its value cannot be read: {error}") from error
    if message.version < 0:
        raise corrupt_control_record(record, f"its value has the version {message.version}")
    return message
