"""Control batches have Kafka's bytes, and all control batches of Kafka can be read."""

from uuid import UUID

import pytest
from aiokafka.record.control_record import ABORT_MARKER, COMMIT_MARKER, ControlRecord
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.k_raft_version_record.v0.data import KRaftVersionRecord
from kio.schema.leader_change_message.v0 import data as leader_change_v0
from kio.schema.leader_change_message.v1.data import LeaderChangeMessage, Voter
from kio.schema.snapshot_footer_record.v0.data import SnapshotFooterRecord
from kio.schema.snapshot_header_record.v0.data import SnapshotHeaderRecord
from kio.schema.voters_record.v0 import data as voters
from tests.examples import examples

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.control import ControlMessage, build_control_batch, read_control_record
from ottla.records.header import read_header, sealed_parts
from ottla.records.markers import (
    ControlType,
    EndTransactionMarker,
    build_marker_batch,
    control_type,
    read_marker_batch,
)
from ottla.records.records import Record, build_batch, read_batches

DIRECTORY = UUID("6f3b1b7e-8f7c-4b25-9d0c-0a8f5a1d2c3e")
LEADER_CHANGE = LeaderChangeMessage(
    version=1,
    leader_id=1,
    voters=(Voter(voter_id=1, voter_directory_id=DIRECTORY),),
    granting_voters=(Voter(voter_id=1, voter_directory_id=None),),
)
VOTERS = voters.VotersRecord(
    version=0,
    voters=(
        voters.Voter(
            voter_id=1,
            voter_directory_id=DIRECTORY,
            endpoints=(voters.Endpoint(name="CONTROLLER", host="localhost", port=9093),),
            k_raft_version_feature=voters.KRaftVersionFeature(
                min_supported_version=0, max_supported_version=1
            ),
        ),
    ),
)
MESSAGES: list[tuple[ControlMessage, ControlType]] = [
    (EndTransactionMarker(False, 3), ControlType.ABORT),
    (EndTransactionMarker(True, 3), ControlType.COMMIT),
    (LEADER_CHANGE, ControlType.LEADER_CHANGE),
    (
        leader_change_v0.LeaderChangeMessage(
            version=0, leader_id=1, voters=(leader_change_v0.Voter(voter_id=1),), granting_voters=()
        ),
        ControlType.LEADER_CHANGE,
    ),
    (SnapshotHeaderRecord(version=0, last_contained_log_timestamp=12345), ControlType.SNAPSHOT_HEADER),
    (SnapshotFooterRecord(version=0), ControlType.SNAPSHOT_FOOTER),
    (KRaftVersionRecord(version=0, k_raft_version=1), ControlType.KRAFT_VERSION),
    (VOTERS, ControlType.KRAFT_VOTERS),
]


@pytest.mark.parametrize(("message", "kind"), MESSAGES, ids=lambda value: type(value).__name__)
def test_each_message_survives_a_round_trip(message: ControlMessage, kind: ControlType) -> None:
    [(header, [record])] = read_batches(
        build_control_batch([message], base_offset=9, timestamp=5, leader_epoch=2)
    )
    assert header.is_control
    assert (record.offset, record.timestamp, header.partition_leader_epoch) == (9, 5, 2)
    assert control_type(record) == kind
    assert read_control_record(record) == message


def test_a_transaction_marker_contains_its_producer() -> None:
    batch = build_control_batch(
        [EndTransactionMarker(True, 17)], base_offset=40, timestamp=1, producer_id=8, producer_epoch=2
    )
    [(header, [record])] = read_batches(batch)
    assert header.is_transactional
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (8, 2, -1)
    assert record.key == bytes.fromhex("00000001")
    assert record.value == bytes.fromhex("000000000011")


@pytest.mark.parametrize(("commit", "marker"), [(True, COMMIT_MARKER), (False, ABORT_MARKER)])
def test_a_consumer_reads_our_markers(commit: bool, marker: ControlRecord) -> None:
    batch = build_control_batch([EndTransactionMarker(commit, 1)], base_offset=0, timestamp=0, producer_id=1)
    [(_, [record])] = read_batches(batch)
    assert record.key is not None
    assert ControlRecord.parse(record.key) == marker


def test_the_header_of_a_snapshot_is_one_batch_of_several_messages() -> None:
    messages = [message for message, kind in MESSAGES if kind in (3, 5, 6)]
    [(header, records)] = read_batches(build_control_batch(messages, base_offset=0, timestamp=7))
    assert header.last_offset == 2
    assert [read_control_record(record) for record in records] == messages


@pytest.mark.parametrize(("message", "kind"), MESSAGES[2:], ids=lambda value: type(value).__name__)
def test_tagged_fields_and_versions_of_a_newer_kafka_are_ignored(
    message: ControlMessage, kind: ControlType
) -> None:
    [(_, [record])] = read_batches(build_control_batch([message], base_offset=0, timestamp=0))
    assert record.value is not None
    newer = record._replace(value=record.value[:-1] + b"\x01\x09\x02hi")
    assert read_control_record(newer) == message


def test_an_array_with_a_wrong_length_allocates_nothing() -> None:
    lying = bytes.fromhex("000100000001ffffffff0f")
    with pytest.raises(KafkaError, match="array claims 4294967294 elements"):
        read_control_record(Record(0, 0, bytes.fromhex("00000002"), lying))


def test_a_type_of_a_newer_kafka_is_skipped() -> None:
    assert read_control_record(Record(0, 0, bytes.fromhex("00000063"), b"whatever")) is None


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        (None, b"", "key has 0 bytes"),
        ("0000", "", "key has 2 bytes"),
        ("ffff0001", "000000000001", "version -1"),
        ("00000001", "0000", "has 2 bytes, not 6"),
        ("00000001", "ffff00000001", "version -1"),
        ("00000002", "", "cannot be read"),
        ("00000004", "ffff", "version -1"),
        ("00000002", "00010000", "cannot be read"),
        ("00000006", "00", "cannot be read"),
    ],
)
def test_a_malformed_control_record_is_a_corrupt_message(key: str | None, value: str, words: str) -> None:
    record = Record(
        4, 0, None if key is None else bytes.fromhex(key), bytes.fromhex(value) if value else None
    )
    with pytest.raises(KafkaError, match=words) as caught:
        read_control_record(record)
    assert caught.value.code is ErrorCode.corrupt_message
    assert "offset 4" in caught.value.message


@examples(100)
@given(kind=st.integers(0, 7), value=st.binary(max_size=60))
def test_any_value_is_a_message_or_a_kafka_error(kind: int, value: bytes) -> None:
    try:
        read_control_record(Record(0, 0, bytes([0, 0, 0, kind]), value))
    except KafkaError:
        pass


@examples(60)
@given(
    message=st.builds(EndTransactionMarker, st.booleans(), st.integers(-1, 2**31 - 1)),
    timestamp=st.integers(0, 2**62),
    producer_id=st.integers(0, 2**63 - 1),
    producer_epoch=st.integers(0, 2**15 - 1),
)
def test_the_fast_path_for_markers_writes_the_same_bytes(
    message: EndTransactionMarker, timestamp: int, producer_id: int, producer_epoch: int
) -> None:
    values = {"timestamp": timestamp, "producer_id": producer_id, "producer_epoch": producer_epoch}
    header, data = build_marker_batch(message, **values)
    assert data == build_control_batch([message], base_offset=0, **values)
    assert read_header(data)._replace(crc=0) == header
    assert read_marker_batch(data) == message


@pytest.mark.parametrize("message", [message for message, _ in MESSAGES])
def test_other_control_batches_are_no_markers(message: ControlMessage) -> None:
    data = build_control_batch([message], base_offset=7, timestamp=1000)
    assert read_marker_batch(data) == (message if isinstance(message, EndTransactionMarker) else None)


def test_a_marker_with_another_layout_can_be_read() -> None:
    """A newer Kafka may add fields to the value, and compaction may leave empty batches."""
    key, value = b"\x00\x00\x00\x01", b"\x00\x01\x00\x00\x00\x09 and more"
    newer = build_batch(
        [Record(0, 1, key, value)], producer_id=5, producer_epoch=0, transactional=True, control=True
    )
    assert read_marker_batch(newer) == EndTransactionMarker(True, 9)
    header, _ = build_marker_batch(
        EndTransactionMarker(True, 9), timestamp=1, producer_id=5, producer_epoch=0
    )
    empty = b"".join(sealed_parts(header._replace(batch_length=49, records_count=0), b""))
    assert read_marker_batch(empty) is None
