"""The log `__cluster_metadata-0`: raft's entries as batches, and the snapshots that replace its beginning."""

import contextlib
import logging
from collections.abc import Iterator, Sequence

from kio.schema.leader_change_message.v0.data import LeaderChangeMessage, Voter

from ottla.broker.quorum.flushed_offset import FlushedOffset, offset_after_damage
from ottla.broker.quorum.membership_records import (
    encode_membership,
    membership_of_batch,
    membership_of_snapshot,
)
from ottla.broker.quorum.settings import QuorumSettings
from ottla.broker.quorum.snapshots import SnapshotId, decode_snapshot, list_snapshots
from ottla.core.raft.log_state import LogState, OffsetAndEpoch
from ottla.core.raft.messages import ReplicatedBatch
from ottla.core.raft.ready import Entry, LeaderChange, MembershipChange, SnapshotChunk
from ottla.core.raft.voter_set import LoggedMembership, MembershipRecord, VoterHistory, VoterSet
from ottla.env.disk import Disk
from ottla.env.threads import Threads
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import METADATA_TOPIC, METADATA_TOPIC_ID, NO_LEADER_EPOCH, NO_TIMESTAMP, TopicPartition
from ottla.records.control import ControlMessage, build_control_batch
from ottla.records.header import read_header
from ottla.records.records import Batch, Record, build_batch, read_batches
from ottla.storage.checkpoints import CorruptCheckpointError
from ottla.storage.damaged_log import DamagedLogError
from ottla.storage.file_names import LOG_SUFFIX
from ottla.storage.flush import FlushWork
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.truncation import prepare_read

logger = logging.getLogger("ottla.quorum")

METADATA_PARTITION = TopicPartition(METADATA_TOPIC, 0)
READ_BYTES = 1 << 20
_PARSED_BYTES = 16 * 1024  # at once: some hundred records, which takes a few milliseconds
_INDEX_INTERVAL_BYTES = 4096
_INDEX_ENTRY_BYTES = 12  # of the time index, which has the larger entries
_INDEX_ENTRIES_MIN = 16
_PART_SUFFIX = ".part"
_UNFINISHED_SUFFIXES = (_PART_SUFFIX, ".tmp")


class MetadataLog:
    """After `open`, every snapshot (the oldest first) is followed by its part of the log; replay begins at the last."""

    def __init__(
        self, disk: Disk, directory: str, log: Log, snapshots: list[SnapshotId], flushed: FlushedOffset
    ) -> None:
        self.directory = directory
        self.snapshots = snapshots
        self._disk = disk
        self._log = log
        self._flushed = flushed
        self.end_offset_at_open = log.log_end_offset
        self.parsed_bytes = _PARSED_BYTES  # simulations change it
        self.appended_bytes = 0  # since it was opened
        self.last_append_ms = NO_TIMESTAMP

    @staticmethod
    def has_records(disk: Disk, directory: str) -> bool:
        """Whether there is a metadata log, intact or not."""
        if not disk.exists(directory):
            return False
        logs = [name for name in disk.list_dir(directory) if name.endswith(LOG_SUFFIX)]
        return any(disk.file_size(f"{directory}/{name}") for name in logs) or any(
            snapshot.end_offset for snapshot in list_snapshots(disk, directory)
        )

    @classmethod
    def open(cls, disk: Disk, directory: str, settings: QuorumSettings, now_ms: int) -> "MetadataLog":
        """Truncates a torn last write. Raises KafkaError if flushed records are damaged or missing."""
        _remove_unfinished(disk, directory)
        flushed = FlushedOffset(disk, directory)
        flushed_offset = flushed.read()
        if flushed_offset is None:
            flushed_offset = offset_after_damage(disk, directory)
        snapshots = list_snapshots(disk, directory)
        latest = snapshots[-1] if snapshots else SnapshotId(0, NO_LEADER_EPOCH)
        try:
            log = _open_log(disk, directory, settings, now_ms, flushed_offset)
        except DamagedLogError as error:
            if latest.end_offset < flushed_offset:
                raise KafkaError(
                    error.code,
                    f"{error.description}. Restore the directory of the metadata log from a backup. To give up the "
                    f"metadata from this offset on instead, cut the file to {error.position} bytes, and remove "
                    f"{flushed.path} and all later segments",
                ) from error
            # The snapshot contains all of it, if it can be read.
            path = f"{directory}/{latest.file_name}"
            decode_snapshot(disk.read_bytes(path), path)
            log = _open_log(disk, directory, settings, now_ms, 0)
        if max(log.log_end_offset, latest.end_offset) < flushed_offset:
            log.close(clean=False)
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"the metadata log in {directory} ends at offset {log.log_end_offset}, but was on disk up to offset "
                f"{flushed_offset}: its end is lost. Restore the directory from a backup, or remove {flushed.path} to "
                "go on without the lost records",
            )
        if _is_replaced_by(log, latest):
            logger.warning(
                "the metadata log in %s ends at offset %d, its snapshot at %d: it goes on from the snapshot",
                directory,
                log.log_end_offset,
                latest.end_offset,
            )
            flushed.lower_to(latest.end_offset)
            log.truncate_fully_and_start_at(latest.end_offset, now_ms)
        if latest.end_offset < log.log_start_offset:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"the metadata log in {directory} starts at offset {log.log_start_offset}, and no snapshot reaches "
                "it: restore the newest .checkpoint file",
            )
        opened = cls(disk, directory, log, snapshots, flushed)
        if snapshots:
            opened._remove_old_snapshots()
        return opened

    @property
    def log_start_offset(self) -> int:
        return self._log.log_start_offset

    @property
    def log_end_offset(self) -> int:
        return self._log.log_end_offset

    @property
    def flushed_end_offset(self) -> int:
        """All records before it survive a power loss: the log is flushed up to it, or a snapshot has them."""
        return max(self._flushed.offset, self.snapshots[-1].end_offset if self.snapshots else 0)

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes

    def log_state(self) -> LogState:
        """What raft is to know of this log."""
        snapshots = [OffsetAndEpoch(snapshot.end_offset, snapshot.epoch) for snapshot in self.snapshots]
        log = self._log
        return LogState(log.log_start_offset, log.log_end_offset, log.epochs.entries(), snapshots)

    def voter_history(self, static: VoterSet, *, is_fixed: bool = True) -> VoterHistory:
        """The voters in the last snapshot and in the log after it; `static` if there are none.

        Raises KafkaError if offsets or epochs after the snapshot are out of order, as raft leaves no gaps: the checksum
        of a batch does not cover them.
        """
        history = VoterHistory(static, is_fixed=is_fixed)
        if self.snapshots:
            latest = self.snapshots[-1]
            history.install(
                latest.end_offset, membership_of_snapshot(self._disk.read_bytes(self.snapshot_path(latest)))
            )
        for logged in self._check_order():
            history.append(*logged)
        return history

    def _check_order(self) -> Iterator[LoggedMembership]:
        offset = self.snapshots[-1].end_offset if self.snapshots else self._log.log_start_offset
        epoch = NO_LEADER_EPOCH
        while offset < self._log.log_end_offset:
            batches = self.read_raw(offset, READ_BYTES)
            if not batches:
                raise self._damaged(f"has no records from offset {offset} on")
            for batch in batches:
                if batch.base_offset > offset:
                    raise self._damaged(f"has no records from offset {offset} to {batch.base_offset}")
                if batch.epoch < epoch:
                    raise self._damaged(f"goes back to an epoch before {epoch} at offset {offset}")
                offset, epoch = batch.next_offset, batch.epoch
                yield from batch.membership

    def batches_from(self, offset: int, end_offset: int) -> Iterator[Batch]:
        """All batches with records from `offset` to `end_offset`."""
        while offset < end_offset:
            found = self._log.read(offset, self.parsed_bytes, end_offset=end_offset, at_least_one=True)
            batches = read_batches(found.region.read())
            if not batches:
                raise self._damaged(f"has no records from offset {offset} to {end_offset}")
            for batch in batches:
                self.last_append_ms = max(self.last_append_ms, batch.header.max_timestamp)
                yield batch
                offset = batch.header.next_offset

    def read_raw(self, offset: int, max_bytes: int) -> tuple[ReplicatedBatch, ...]:
        """The batches from `offset` on as they are in the file; at least one if there is one."""
        found = self._log.read(offset, max_bytes, end_offset=self._log.log_end_offset, at_least_one=True)
        data, position, batches = found.region.read(), 0, []
        while position < len(data):
            header = read_header(data, position)
            end = position + header.size
            epoch = header.partition_leader_epoch
            part = data[position:end]
            membership = membership_of_batch(part) if header.is_control else ()
            batches.append(ReplicatedBatch(header.base_offset, header.next_offset, epoch, part, membership))
            position = end
        return tuple(batches)

    def _damaged(self, what: str) -> KafkaError:
        return KafkaError(
            ErrorCode.kafka_storage_error,
            f"the metadata log in {self.directory} {what}: a segment is missing or damaged. Restore the directory from "
            "a backup",
        )

    def append(self, entries: Sequence[Entry | ReplicatedBatch], now_ms: int) -> None:
        """Writes entries of this leader, or batches from another one, which are not flushed yet.

        Raises OSError. Some entries may be in the log then: the caller may only repeat the call with the same entries.
        """
        for entry in entries:
            if entry.base_offset < self._log.log_end_offset:
                continue
            data = entry.data if isinstance(entry, ReplicatedBatch) else _encode_entry(entry, now_ms)
            self._log.append([(read_header(data), (data,))], now_ms)
            self.appended_bytes += len(data)
        self.last_append_ms = now_ms

    async def truncate_to(self, offset: int, threads: Threads, now_ms: int) -> None:
        """Raises OSError."""
        # First the recorded offset: after a crash in between, the records beyond it are not missed.
        await threads.run(lambda: self._flushed.lower_to(offset))
        remaining = await threads.run(prepare_read(self._log, offset))
        self._log.truncate_to(offset, now_ms, remaining)

    def _remove_old_snapshots(self) -> None:
        """Removes the snapshots before the start of the log. Raises OSError."""
        while self.snapshots[0].end_offset < self._log.log_start_offset:
            self._disk.remove(self.snapshot_path(self.snapshots[0]))
            del self.snapshots[0]

    def prepare_flush(self) -> FlushWork | None:
        return self._log.prepare_flush()

    def sync(self, work: FlushWork) -> None:
        """May run in any thread, at the same time as reads. Raises OSError."""
        work.sync()
        self._flushed.write(work.offset)

    def flushed(self, work: FlushWork) -> None:
        self._log.complete_flush(work)

    def snapshot_path(self, snapshot: SnapshotId) -> str:
        return f"{self.directory}/{snapshot.file_name}"

    def read_snapshot(self, snapshot: OffsetAndEpoch, position: int, max_bytes: int) -> tuple[int, bytes]:
        """The size of a snapshot, and its bytes from `position` on. May run in any thread. Raises OSError."""
        path = self.snapshot_path(SnapshotId(snapshot.offset, snapshot.epoch))
        size = self._disk.file_size(path)
        if not 0 <= position < size:
            return size, b""
        with contextlib.closing(self._disk.open(path)) as file:
            return size, file.read_at(position, min(max_bytes, size - position))

    async def write_chunk(
        self, chunk: SnapshotChunk, threads: Threads, now_ms: int
    ) -> tuple[MembershipRecord, ...]:
        """Writes a part of a snapshot that another node sends. After the last part it replaces the whole log.

        Returns the voters in the snapshot after the last part.

        Raises KafkaError if the snapshot is damaged, and OSError.
        """
        snapshot = SnapshotId(chunk.snapshot.offset, chunk.snapshot.epoch)
        path = f"{self.snapshot_path(snapshot)}{_PART_SUFFIX}"

        def write() -> tuple[MembershipRecord, ...]:
            with contextlib.closing(self._disk.open(path, create=True)) as file:
                if chunk.position == 0:
                    file.truncate(0)
                file.write_at(chunk.position, [chunk.data])
            if not chunk.is_last:
                return ()
            data = self._disk.read_bytes(path)
            decode_snapshot(data, path)
            self.write_snapshot(snapshot, data)
            # The log may have been flushed beyond the snapshot, with records that were not committed.
            self._flushed.lower_to(snapshot.end_offset)
            self._disk.remove(path)
            return membership_of_snapshot(data)

        membership = await threads.run(write)
        if chunk.is_last:
            self._log.truncate_fully_and_start_at(snapshot.end_offset, now_ms)
            self.snapshots.append(snapshot)
            await threads.run(self._remove_old_snapshots)
        return membership

    def write_snapshot(self, snapshot: SnapshotId, data: bytes) -> None:
        """May run in any thread. Raises OSError."""
        self._disk.write_atomically(self.snapshot_path(snapshot), data)

    def clean(self, settings: QuorumSettings, high_watermark: int, now_ms: int) -> None:
        """Deletes old snapshots by size and age, never the last one, each with the log before the next one.

        As in Kafka (KIP-630), the log before the oldest snapshot stays: followers that are behind fetch it, instead of
        the whole image.
        """
        sizes = [self._disk.file_size(self.snapshot_path(snapshot)) for snapshot in self.snapshots]
        while len(self.snapshots) > 1:
            path = self.snapshot_path(self.snapshots[0])
            is_too_large = 0 <= settings.retention_bytes < self.size_bytes + sum(sizes)
            is_old = 0 <= settings.retention_ms < now_ms - self._disk.modified_ms(path)
            if not is_too_large and not is_old:
                break
            self._disk.remove(path)
            del self.snapshots[0], sizes[0]
            if self._log.delete_records_before(self.snapshots[0].end_offset):
                self._log.delete_old_segments(now_ms, high_watermark)

    def remove_deleted(self, now_ms: int) -> None:
        """Removes the files of deleted segments after file.delete.delay.ms."""
        for deletion in self._log.due_deletions(now_ms):
            try:
                deletion.perform(self._disk)
            except OSError as error:
                logger.warning("%s could not be removed, the next start retries: %s", deletion.path, error)

    def close(self, *, clean: bool) -> None:
        self._log.close(clean=clean)
        if clean:
            self._flushed.write(self._log.log_end_offset)
            self._flushed.close()


def _remove_unfinished(disk: Disk, directory: str) -> None:
    """Removes parts of a snapshot that the leader was sending, and files that were being replaced. Raises OSError."""
    for name in disk.list_dir(directory) if disk.exists(directory) else ():
        if name.endswith(_UNFINISHED_SUFFIXES):
            disk.remove(f"{directory}/{name}")


def _is_replaced_by(log: Log, snapshot: SnapshotId) -> bool:
    """Whether a leader has sent the snapshot, and this node stopped before it had removed the log.

    As in Kafka: the log ends before the snapshot, or has no records of its epoch. It may have records then that were
    never committed.
    """
    if log.log_end_offset < snapshot.end_offset:
        return True
    epochs = log.epochs.entries()  # empty if the log is, or if their file is lost
    is_empty = log.log_start_offset == log.log_end_offset
    return bool(epochs) and not is_empty and snapshot.epoch > epochs[-1][0]


def _open_log(disk: Disk, directory: str, settings: QuorumSettings, now_ms: int, flushed_offset: int) -> Log:
    config = LogConfig(
        segment_bytes=settings.segment_bytes,
        segment_ms=settings.segment_ms,
        index_interval_bytes=_INDEX_INTERVAL_BYTES,
        max_index_bytes=_index_bytes(settings.segment_bytes),
        # Only records that are in a snapshot may be deleted.
        retention_ms=-1,
        retention_bytes=-1,
        file_delete_delay_ms=settings.file_delete_delay_ms,
    )
    try:
        return Log.open(
            disk,
            directory,
            METADATA_PARTITION,
            config,
            # The log is small and the whole cluster depends on it: every start checks all of it.
            clean_shutdown=False,
            now_ms=now_ms,
            flushed_offset=flushed_offset,
            topic_id=METADATA_TOPIC_ID,
        )
    except CorruptCheckpointError as error:
        raise KafkaError(ErrorCode.kafka_storage_error, str(error)) from error


def _index_bytes(segment_bytes: int) -> int:
    """As much as the index of a full segment needs: it is mapped while the segment is active."""
    entries = max(segment_bytes // _INDEX_INTERVAL_BYTES, _INDEX_ENTRIES_MIN) + 1
    return entries * _INDEX_ENTRY_BYTES


def _encode_entry(entry: Entry, now_ms: int) -> bytes:
    match entry.payload:
        case LeaderChange() as change:
            messages = [_leader_change(change)]
        case MembershipChange(records=records):
            messages = encode_membership(records)
        case values:
            return build_batch(
                (
                    Record(entry.base_offset + index, now_ms, None, value)
                    for index, value in enumerate(values)
                ),
                leader_epoch=entry.epoch,
            )
    return build_control_batch(
        messages, base_offset=entry.base_offset, timestamp=now_ms, leader_epoch=entry.epoch
    )


def _leader_change(change: LeaderChange) -> ControlMessage:
    """KIP-853 has a version 1 with directory ids, but Apache Kafka 4.3 writes and reads version 0 only."""
    return LeaderChangeMessage(
        version=0,
        leader_id=change.leader_id,
        voters=tuple(Voter(voter_id=voter) for voter in change.voters),
        granting_voters=tuple(Voter(voter_id=voter) for voter in change.granting_voters),
    )
