"""quorum-state and snapshots are Kafka's files."""

import json
import random
import uuid
from uuid import UUID

import pytest

from ottla.broker.quorum.bootstrap import bootstrap_records
from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.quorum_state import read_quorum_state, write_quorum_state
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import SnapshotId, decode_snapshot, encode_snapshot, list_snapshots
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.ready import Entry, HardState, SnapshotChunk
from ottla.model.errors import KafkaError
from ottla.protocol.metadata_records.records import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
    TopicRecord,
)
from ottla.records.records import read_batches
from ottla.sim.disk import SimDisk
from ottla.sim.env import World, simulate


@pytest.fixture
def disk() -> SimDisk:
    disk = SimDisk(random.Random(1), lambda: 0, mounts=("/data",))
    disk.make_dirs("/data/log")
    return disk


def encoded(records: list[MetadataRecord]) -> bytes:
    return encode_snapshot(records, epoch=3, last_contained_log_timestamp=77, now_ms=88)


TOPICS: list[MetadataRecord] = [
    TopicRecord(name=f"t{index}", topic_id=uuid.UUID(int=index + 1)) for index in range(4500)
]


def test_a_node_that_never_voted_has_no_file(disk: SimDisk) -> None:
    assert read_quorum_state(disk, "/data/log") == HardState(0, -1, -1)


def test_the_state_is_read_as_it_was_written(disk: SimDisk) -> None:
    write_quorum_state(disk, "/data/log", HardState(7, 1, -1), (1,))
    assert read_quorum_state(disk, "/data/log") == HardState(7, 1, -1)


def test_the_state_has_kafkas_fields(disk: SimDisk) -> None:
    write_quorum_state(disk, "/data/log", HardState(2, 1, -1), (1,))
    assert json.loads(disk.read_bytes("/data/log/quorum-state")) == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 2,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }


def test_the_state_of_version_1_is_read_too(disk: SimDisk) -> None:
    state = {
        "leaderId": -1,
        "leaderEpoch": 5,
        "votedId": 1,
        "data_version": 1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA",
    }
    disk.write_atomically("/data/log/quorum-state", json.dumps(state).encode())
    assert read_quorum_state(disk, "/data/log") == HardState(5, -1, 1)


def test_the_voted_directory_is_written_where_the_voters_are_in_the_log(disk: SimDisk) -> None:
    state = HardState(5, -1, 1, UUID(int=7))
    write_quorum_state(disk, "/data/log", state, None)
    assert read_quorum_state(disk, "/data/log") == state
    assert json.loads(disk.read_bytes("/data/log/quorum-state")) == {
        "leaderId": -1,
        "leaderEpoch": 5,
        "votedId": 1,
        "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAABw",
        "data_version": 1,
    }


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"data_version": 2}', b'{"data_version": 0}'])
def test_a_damaged_state_is_rejected_with_its_path(disk: SimDisk, data: bytes) -> None:
    disk.write_atomically("/data/log/quorum-state", data)
    with pytest.raises(KafkaError, match="/data/log/quorum-state is not a quorum state"):
        read_quorum_state(disk, "/data/log")


def test_a_snapshot_is_read_as_it_was_written() -> None:
    assert list(decode_snapshot(encoded(TOPICS), "file")) == TOPICS


def test_a_snapshot_has_a_header_batches_of_records_and_a_footer() -> None:
    batches = read_batches(encoded(TOPICS))
    assert [batch.header.is_control for batch in batches] == [True, False, False, False, True]
    assert [batch.header.base_offset for batch in batches] == [0, 1, 2001, 4001, 4501]
    assert {batch.header.partition_leader_epoch for batch in batches} == {3}


def test_a_snapshot_without_its_footer_is_rejected() -> None:
    data = encoded(TOPICS[:3])
    footer = read_batches(data)[-1].header.size
    with pytest.raises(
        KafkaError, match="the metadata snapshot file does not begin with a header and end with a footer"
    ):
        decode_snapshot(data[:-footer], "file")


@pytest.mark.parametrize("cut", [0, 1, 60, 100, -1])
def test_a_truncated_snapshot_is_rejected(cut: int) -> None:
    with pytest.raises(KafkaError, match="the metadata snapshot file"):
        decode_snapshot(encoded(TOPICS[:3])[:cut], "file")


def test_the_indexes_of_the_metadata_log_have_room_for_a_whole_segment_and_not_for_more(
    disk: SimDisk,
) -> None:
    settings = QuorumSettings(segment_bytes=1 << 20)
    log = MetadataLog.open(disk, "/data/log", settings, 0)
    offset = 0
    while log.size_bytes < 1_040_000:
        entry = Entry(offset, 1, (bytes(4000),))
        log.append([entry], 0)
        offset = entry.next_offset
    assert [name for name in disk.list_dir("/data/log") if name.endswith(".log")] == [f"{0:020d}.log"]
    assert disk.file_size(f"/data/log/{0:020d}.timeindex") < 4096


def log_that_ends_at(disk: SimDisk, offset: int) -> MetadataLog:
    """It was flushed."""
    log = MetadataLog.open(disk, "/data/log", QuorumSettings(), 0)
    log.append([Entry(0, 1, tuple(b"%d" % number for number in range(offset)))], 0)
    work = log.prepare_flush()
    assert work is not None
    log.sync(work)
    log.flushed(work)
    return log


@pytest.mark.parametrize("end_offset", [7, 10, 12])
@pytest.mark.parametrize("crashes_before_truncation", [False, True])
def test_a_node_starts_after_a_snapshot_has_replaced_a_log_that_was_longer(
    disk: SimDisk, end_offset: int, crashes_before_truncation: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main(world: World) -> None:
        log = log_that_ends_at(disk, 10)
        chunk = SnapshotChunk(OffsetAndEpoch(end_offset, 2), 0, encoded(TOPICS[:3]), is_last=True)
        threads = world.process("node", disk).env.threads
        if crashes_before_truncation:
            monkeypatch.setattr(log, "_log", None)
            with pytest.raises(AttributeError):
                await log.write_chunk(chunk, threads, 0)
        else:
            await log.write_chunk(chunk, threads, 0)
        disk.kill()
        reopened = MetadataLog.open(disk.reopen(), "/data/log", QuorumSettings(), 0)
        assert (reopened.log_start_offset, reopened.log_end_offset) == (end_offset, end_offset)
        reopened.append([Entry(end_offset, 2, (b"next",))], 0)
        assert (
            MetadataLog.open(disk.reopen(), "/data/log", QuorumSettings(), 0).log_start_offset == end_offset
        )

    simulate(main, 1)


def test_files_that_a_crash_left_unfinished_are_removed_at_the_start(disk: SimDisk) -> None:
    log_that_ends_at(disk, 10).close(clean=True)
    snapshot = SnapshotId(10, 1).file_name
    disk.write_atomically(f"/data/log/{snapshot}", encoded(TOPICS[:3]))
    before = disk.list_dir("/data/log")
    for name in (f"{SnapshotId(7, 1).file_name}.part", f"{snapshot}.tmp", "quorum-state.tmp"):
        disk.open(f"/data/log/{name}", create=True).write_at(0, [b"unfinished"])
    MetadataLog.open(disk, "/data/log", QuorumSettings(), 0)
    assert disk.list_dir("/data/log") == before


def test_snapshots_are_listed_from_the_oldest(disk: SimDisk) -> None:
    for name in (SnapshotId(200, 3).file_name, SnapshotId(9, 1).file_name, "x.checkpoint", f"{7:020d}.log"):
        disk.write_atomically(f"/data/log/{name}", b"")
    assert list_snapshots(disk, "/data/log") == [SnapshotId(9, 1), SnapshotId(200, 3)]
    assert list_snapshots(disk, "/data/none") == []
    assert SnapshotId(200, 3).file_name == "00000000000000000200-0000000003.checkpoint"


def test_a_formatted_directory_has_the_first_features_of_the_cluster(disk: SimDisk) -> None:
    features: list[MetadataRecord] = [
        FeatureLevelRecord(name="metadata.version", feature_level=25),
        FeatureLevelRecord(name="group.version", feature_level=1),
    ]
    disk.write_atomically("/data/bootstrap.checkpoint", encoded(features))
    begin, *between, end = bootstrap_records(disk, "/data", 0)
    assert (type(begin), between, type(end)) == (BeginTransactionRecord, features, EndTransactionRecord)
