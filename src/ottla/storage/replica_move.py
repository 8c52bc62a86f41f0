"""Moves a replica to another data directory while it serves clients (KIP-113).

Sealed segments do not change, so a thread copies them, round by round, into the future folder. When little is left, the
thread completes the future folder and syncs it (`LastCopy`). Only appends of that moment are missing then: one turn of
the event loop copies them, unsynced, and replaces the old folder. No flush may run between the two, as a flushed record
must be in a synced copy. A truncation cuts segments in place, so after one every segment is copied again.

A crash at any step leaves one complete log. A future folder is complete once it has a `partition.metadata`, which is
written last, and it is used only if the folder that it replaces is gone. The names of the two folders are not synced in
that turn, so after a power loss both may be there: `moved-from` in the new one says that it replaces the other.
"""

import contextlib
import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.env.disk import Disk
from ottla.storage.checkpoints import encode_epoch_checkpoint, encode_partition_metadata
from ottla.storage.file_names import (
    FUTURE_DIR_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    MOVED_FROM,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    dir_name_with_suffix,
    parse_segment_file,
    segment_file,
)
from ottla.storage.log import Log
from ottla.storage.log_dir import CheckpointWrite
from ottla.storage.log_loader import LoadedLog
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments

_COPY_BYTES = 1 << 20
# The event loop copies at most this much in the turn that replaces the folder.
LAST_STEP_BYTES = 1 << 20


class MoveAbandonedError(Exception):
    """The move was abandoned; its caller removes the future folder."""


class ReplicaMove:
    """Only `copy` and `LastCopy.run` may run in another thread than that of the log."""

    def __init__(self, disk: Disk, log: Log, path: str, unique_id: uuid.UUID) -> None:
        self.log = log
        self.path = path  # of the target data directory
        self.future_directory = (
            f"{path}/{dir_name_with_suffix(log.topic_partition, FUTURE_DIR_SUFFIX, unique_id)}"
        )
        self.is_abandoned = False
        self._disk = disk
        self._copies: set[Segment] = set()
        self._truncations = log.truncations  # when the copies were made

    @property
    def _copied(self) -> set[Segment]:
        """The segments that need no copy. A truncation may have changed any of them."""
        if self._truncations != self.log.truncations:
            self._truncations, self._copies = self.log.truncations, set()
        return self._copies

    @property
    def bytes_left(self) -> int:
        copied = self._copied
        return sum(segment.size for segment in self.log.segments if segment not in copied)

    @property
    def bytes_copied(self) -> int:
        copied = self._copied
        return sum(segment.size for segment in self.log.segments if segment in copied)

    @property
    def end_offset(self) -> int:
        """The log end offset of the future replica."""
        copied = self._copied
        for segment in self.log.segments:
            if segment not in copied:
                return segment.base_offset
        return self.log.log_end_offset

    def seal(self, now_ms: int) -> list[Segment]:
        """Seals the active segment and returns the segments that are not copied yet."""
        self.log.roll(now_ms)
        copied = self._copied
        return [segment for segment in self.log.segments if segment not in copied][:-1]

    def copy(self, segments: Iterable[Segment]) -> None:
        """Copies sealed segments and syncs them. Can run in a thread, concurrently with all uses of the log."""
        self._disk.make_dirs(self.future_directory)
        for segment in segments:
            segment.prepare()  # a damaged index is rebuilt before it is copied
            snapshot = segment_file(self.log.directory, segment.base_offset, SNAPSHOT_SUFFIX)
            for path in [*segment.paths(), snapshot]:
                self._copy_file(path)
        self._disk.sync_dir(self.future_directory)
        self._disk.sync_dir(self.path)

    def mark_copied(self, segments: Iterable[Segment], truncations: int) -> bool:
        """Returns False if the log was truncated since it had `truncations`: the copies count for nothing then."""
        if truncations != self.log.truncations:
            return False
        self._copied.update(segments)
        return True

    def plan_last_copy(self, topic_id: uuid.UUID, now_ms: int) -> "LastCopy":
        """Seals the active segment. No flush may run until `replace`, or until the copy is dropped."""
        left, log = self.seal(now_ms), self.log
        return LastCopy(
            self,
            topic_id,
            tuple(left),
            tuple(log.segments),
            log.log_start_offset,
            log.log_end_offset,
            log.epochs.entries(),
            log.truncations,
        )

    def complete(self, last: "LastCopy") -> None:
        """For a thread: completes the future folder and syncs it."""
        future, source = self.future_directory, self.log.directory
        with contextlib.suppress(FileNotFoundError):
            self._disk.remove(f"{future}/{PARTITION_METADATA}")  # of an earlier try
        self.copy(last.left)
        self._remove_other_segments({segment.base_offset for segment in last.segments[:-1]})
        # The active segment was empty. Its name determines where the log continues.
        self._disk.open(segment_file(future, last.end_offset, LOG_SUFFIX), create=True)
        self._copy_file(segment_file(source, last.end_offset, SNAPSHOT_SUFFIX))
        self._disk.write_atomically(
            f"{future}/{LEADER_EPOCH_CHECKPOINT}", encode_epoch_checkpoint(last.epochs)
        )
        remove_moved_from(self._disk, source)  # only one of two folders may have it
        self._disk.write_atomically(f"{future}/{MOVED_FROM}", source.rpartition("/")[0].encode())
        self._disk.write_atomically(
            f"{future}/{PARTITION_METADATA}", encode_partition_metadata(last.topic_id)
        )

    def copy_active(self) -> None:
        """Copies the records that were appended since the last copy. Does not sync: none of them is flushed."""
        active = self.log.segments.active
        active.seal()
        for path in active.paths():
            self._copy_file(path, is_synced=False)

    def replace(self, last: "LastCopy") -> Log:
        """Renames the future folder after the old one was renamed, and returns the log in it."""
        log = self.log
        directory = f"{self.path}/{log.topic_partition}"
        self._disk.rename(self.future_directory, directory)
        segments = Segments(self._reopen(segment, directory) for segment in log.segments)
        segments.active.is_modified = True
        segments.active.prepare()
        names = (parse_segment_file(name) for name in self._disk.list_dir(directory))
        snapshots = (parsed[0] for parsed in names if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX)
        loaded = LoadedLog(
            segments=segments,
            snapshots=ProducerSnapshots(self._disk, directory, snapshots),
            producers=log.producers,
            epochs=log.epochs,
            offsets=log.offsets,
            recovery_point=last.end_offset,
            checkpointed_epochs=last.epochs,
        )
        replaced = Log(self._disk, directory, log.topic_partition, log.config, loaded, last.topic_id)
        replaced.note_names_changed(self.path, directory)
        return replaced

    def _reopen(self, segment: Segment, directory: str) -> Segment:
        return Segment(
            self._disk,
            directory,
            segment.base_offset,
            self.log.config,
            size=segment.size,
            now_ms=segment.created_ms,
        )

    def _remove_other_segments(self, kept: set[int]) -> None:
        """Retention or a truncation has deleted them. An older copy of the segment that is now active goes, too."""
        for name in self._disk.list_dir(self.future_directory):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[0] not in kept:
                self._disk.remove(f"{self.future_directory}/{name}")

    def _copy_file(self, path: str, *, is_synced: bool = True) -> None:
        """A missing file is missing in the copy: retention may have removed it, and not every snapshot exists."""
        copy = f"{self.future_directory}/{path.rpartition('/')[2]}"
        try:
            source = self._disk.open(path)
        except FileNotFoundError:
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(copy)  # of an earlier round
            return
        target = self._disk.open(copy, create=True)
        target.truncate(0)
        for position in range(0, source.size(), _COPY_BYTES):
            if self.is_abandoned:
                raise MoveAbandonedError
            target.write_at(position, [source.read_at(position, _COPY_BYTES)])
        if is_synced:
            target.sync()
        target.close()
        source.close()


@dataclass(frozen=True, slots=True)
class LastCopy:
    """Completes the future folder in a thread, with the state of the log when it was planned."""

    move: ReplicaMove
    topic_id: uuid.UUID
    left: tuple[Segment, ...]
    segments: tuple[Segment, ...]
    log_start_offset: int
    end_offset: int  # the base offset of the active segment, which was empty
    epochs: list[tuple[int, int]]
    truncations: int

    def run(self, checkpoints: Iterable[CheckpointWrite]) -> None:
        """For a thread. Raises OSError and MoveAbandonedError."""
        self.move.complete(self)
        # Before the rename: after a crash, DeleteRecords must still be in effect.
        for checkpoint in checkpoints:
            checkpoint.write()

    @property
    def is_current(self) -> bool:
        """Whether nothing but a few appends came after the copy. Otherwise it must be repeated."""
        log = self.move.log
        return (
            log.truncations == self.truncations
            and tuple(log.segments) == self.segments
            and log.log_start_offset == self.log_start_offset
            and log.recovery_point <= self.end_offset
            and log.segments.active.size <= LAST_STEP_BYTES
        )


def remove_moved_from(disk: Disk, directory: str) -> None:
    """For a thread. Makes the removal durable, so that the mark cannot come back after the next move."""
    with contextlib.suppress(FileNotFoundError):
        disk.remove(f"{directory}/{MOVED_FROM}")
        disk.sync_dir(directory)


def read_moved_from(disk: Disk, directory: str) -> str | None:
    """The data directory from which the replica in this folder was moved, if the folder there may still exist."""
    try:
        return disk.read_bytes(f"{directory}/{MOVED_FROM}").decode()
    except FileNotFoundError:
        return None
