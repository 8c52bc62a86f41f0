"""A snapshot that the leader sends may replace the log while this node replays it, or writes a snapshot of its own."""

import asyncio
import uuid
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.broker.quorum import loader as loader_module
from ottla.broker.quorum.loader import MetadataLoader
from ottla.broker.quorum.metadata_log import MetadataLog
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshot_writer import SnapshotWriter
from ottla.broker.quorum.snapshots import SnapshotId, encode_snapshot
from ottla.core.raft.log_state import OffsetAndEpoch
from ottla.core.raft.ready import Entry, SnapshotChunk
from ottla.core.raft.voter_set import VoterHistory, VoterSet
from ottla.protocol.metadata_records.codec import encode_record
from ottla.protocol.metadata_records.records import FeatureLevelRecord, MetadataRecord, TopicRecord
from ottla.sim.env import World, simulate
from ottla.sim.threads import SimThreads

DIRECTORY = "/data/log"
METADATA_VERSION = 25
RECORDS = 400  # the log is read in several parts
AT_ONCE = SimThreads(Random(1), delay_ms_max=0)


def records(count: int) -> list[MetadataRecord]:
    topics = [
        TopicRecord(name=f"topic-{number:040d}", topic_id=uuid.UUID(int=number)) for number in range(1, count)
    ]
    return [FeatureLevelRecord(name="metadata.version", feature_level=METADATA_VERSION), *topics]


class Node:
    """A log of `RECORDS` committed records in epoch 1, and its loader."""

    def __init__(self, world: World) -> None:
        self.disk = world.new_disk("/data")
        self.disk.make_dirs(DIRECTORY)
        self.env = world.process("node", self.disk).env
        self.settings = QuorumSettings(snapshot_bytes=1)
        self.log = MetadataLog.open(self.disk, DIRECTORY, self.settings, 0)
        for offset, record in enumerate(records(RECORDS)):
            self.log.append([Entry(offset, 1, (encode_record(record, METADATA_VERSION),))], 0)
        self.published: list[int] = []
        self.loader = MetadataLoader(
            self.env, self.log, [lambda old, new: self.published.append(new.offset)], lambda: None
        )

    async def install(self, snapshot: SnapshotId, count: int) -> None:
        """The leader has sent a snapshot with `count` records."""
        data = encode_snapshot(records(count), epoch=snapshot.epoch, last_contained_log_timestamp=0, now_ms=0)
        chunk = SnapshotChunk(OffsetAndEpoch(snapshot.end_offset, snapshot.epoch), 0, data, is_last=True)
        await self.log.write_chunk(chunk, AT_ONCE, 0)


def test_a_log_that_is_replaced_while_it_is_replayed_goes_on_from_the_snapshot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(loader_module, "RECORDS_PER_TURN", 1)

    async def main(world: World) -> None:
        node = Node(world)
        applying = asyncio.create_task(node.loader.apply(RECORDS))
        await asyncio.sleep(0)
        await node.install(SnapshotId(1_000, 2), RECORDS + 5)
        await applying
        assert node.published == [node.loader.applied_offset]
        assert 0 < node.loader.applied_offset < RECORDS - 1
        node.loader.load_snapshot(node.log.snapshots[-1])
        await node.loader.apply(1_000)
        assert node.loader.image.offset == 999
        assert len(node.loader.image.topics) == RECORDS + 4

    simulate(main, 1)


def start_own_snapshot(
    node: Node, start_offsets: list[int] | None = None
) -> tuple[SnapshotWriter, list[OffsetAndEpoch]]:
    """The writer, and the snapshots of which it has told raft. It tells raft the start of the log too."""
    written: list[OffsetAndEpoch] = []
    driver: Any = SimpleNamespace(
        snapshot_written=written.append,
        log_cleaned=([] if start_offsets is None else start_offsets).append,
        node=SimpleNamespace(high_watermark=RECORDS, history=VoterHistory(VoterSet(()))),
    )
    writer = SnapshotWriter(node.env, node.settings, node.log, driver, node.loader)
    writer.maybe_write()
    return writer, written


def test_an_own_snapshot_that_is_older_than_that_of_the_leader_is_dropped() -> None:
    async def main(world: World) -> None:
        node = Node(world)
        await node.loader.apply(RECORDS)
        writer, written = start_own_snapshot(node)
        await node.install(SnapshotId(1_000, 2), RECORDS)
        await writer.close()
        assert (node.log.snapshots, written) == ([SnapshotId(1_000, 2)], [])
        names = [name for name in node.disk.list_dir(DIRECTORY) if ".checkpoint" in name]
        assert names == [SnapshotId(1_000, 2).file_name]

    simulate(main, 1)


def test_an_own_snapshot_that_is_also_that_of_the_leader_is_kept() -> None:
    async def main(world: World) -> None:
        node = Node(world)
        await node.loader.apply(RECORDS)
        writer, written = start_own_snapshot(node)
        same = SnapshotId(RECORDS, 1)
        await node.install(same, RECORDS)
        await writer.close()
        assert (node.log.snapshots, written) == ([same], [])
        reopened = MetadataLog.open(node.disk.reopen(), DIRECTORY, node.settings, 0)
        assert reopened.snapshots == [same]

    simulate(main, 1)


def test_the_first_snapshot_leaves_the_log_before_it_for_followers_that_are_behind() -> None:
    """As in Kafka: the log starts later only when an older snapshot was deleted."""

    async def main(world: World) -> None:
        node = Node(world)
        await node.loader.apply(RECORDS)
        writer, written = start_own_snapshot(node)
        await writer.close()
        assert written == [OffsetAndEpoch(RECORDS, 1)]
        assert node.log.log_start_offset == 0

    simulate(main, 1)


@pytest.mark.parametrize(("retention_bytes", "start_offset"), [(1 << 30, 0), (60_000, 200), (1, RECORDS)])
def test_the_log_before_a_snapshot_is_deleted_with_the_snapshot_before_it(
    retention_bytes: int, start_offset: int
) -> None:
    async def main(world: World) -> None:
        disk = world.new_disk("/data")
        disk.make_dirs(DIRECTORY)
        settings = QuorumSettings(retention_bytes=retention_bytes, segment_bytes=10_000)
        log = MetadataLog.open(disk, DIRECTORY, settings, 0)
        for offset in range(RECORDS):
            log.append([Entry(offset, 1, (bytes(200),))], 0)
        for end_offset in (100, 200, 300, RECORDS):
            log.write_snapshot(SnapshotId(end_offset, 1), bytes(100))
            log.snapshots.append(SnapshotId(end_offset, 1))
        log.clean(settings, RECORDS, 0)
        assert log.log_start_offset == start_offset
        assert log.snapshots[0].end_offset == (start_offset or 100)
        assert retention_bytes == 1 or log.size_bytes <= retention_bytes

    simulate(main, 1)


def test_raft_learns_the_start_of_a_log_that_could_not_be_cleaned_completely() -> None:
    async def main(world: World) -> None:
        node = Node(world)
        node.settings = QuorumSettings(snapshot_bytes=1, retention_bytes=1)
        for end_offset in (100, 200):
            node.log.write_snapshot(SnapshotId(end_offset, 1), bytes(100))
            node.log.snapshots.append(SnapshotId(end_offset, 1))
        await node.loader.apply(RECORDS)
        start_offsets: list[int] = []
        writer, _ = start_own_snapshot(node, start_offsets)
        path = node.log.snapshot_path(SnapshotId(200, 1))
        node.disk.fail(path, operations=frozenset({"remove"}))
        await writer.close()
        assert start_offsets == [node.log.log_start_offset] == [200]

    simulate(main, 1)
