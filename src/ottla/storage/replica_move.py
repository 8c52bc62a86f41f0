"""Moves a replica to another data directory while it serves clients (KIP-113).

Sealed segments do not change, so a thread copies them, round by round, into the future folder. When little is left, one
turn of the event loop copies the rest and replaces the old folder, so that no append comes in between.

A crash at any step leaves one complete log. A future folder is complete once it has a `partition.metadata`, which is
written last, and it is used only if the folder that it replaces is gone.
"""

import contextlib
import uuid
from collections.abc import Iterable

from ottla.env.disk import Disk
from ottla.storage.checkpoints import encode_epoch_checkpoint, encode_partition_metadata
from ottla.storage.file_names import (
    FUTURE_DIR_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    PARTITION_METADATA,
    SNAPSHOT_SUFFIX,
    dir_name_with_suffix,
    parse_segment_file,
    segment_file,
)
from ottla.storage.log import Log
from ottla.storage.log_loader import LoadedLog
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments

_COPY_BYTES = 1 << 20


class MoveAbandonedError(Exception):
    """The move was abandoned; its caller removes the future folder."""


class ReplicaMove:
    """Only `copy` may run in another thread than that of the log."""

    def __init__(self, disk: Disk, log: Log, path: str, unique_id: uuid.UUID) -> None:
        self.log = log
        self.path = path  # of the target data directory
        self.future_directory = (
            f"{path}/{dir_name_with_suffix(log.topic_partition, FUTURE_DIR_SUFFIX, unique_id)}"
        )
        self.is_abandoned = False
        self._disk = disk
        self._copied: set[Segment] = set()

    @property
    def bytes_left(self) -> int:
        return sum(segment.size for segment in self.log.segments if segment not in self._copied)

    @property
    def bytes_copied(self) -> int:
        return sum(segment.size for segment in self.log.segments if segment in self._copied)

    @property
    def end_offset(self) -> int:
        """The log end offset of the future replica."""
        for segment in self.log.segments:
            if segment not in self._copied:
                return segment.base_offset
        return self.log.log_end_offset

    def seal(self, now_ms: int) -> list[Segment]:
        """Seals the active segment and returns the segments that are not copied yet."""
        self.log.roll(now_ms)
        left = [segment for segment in self.log.segments if segment not in self._copied][:-1]
        for segment in left:
            _ = segment.offset_index  # rebuilds a damaged index now, not during the copy
        return left

    def copy(self, segments: Iterable[Segment]) -> None:
        """Copies sealed segments and syncs them. Can run in a thread, concurrently with all uses of the log."""
        self._disk.make_dirs(self.future_directory)
        for segment in segments:
            snapshot = segment_file(self.log.directory, segment.base_offset, SNAPSHOT_SUFFIX)
            for path in [*segment.paths(), snapshot]:
                self._copy_file(path)
        self._disk.sync_dir(self.future_directory)
        self._disk.sync_dir(self.path)

    def mark_copied(self, segments: Iterable[Segment]) -> None:
        self._copied.update(segments)

    def complete(self, topic_id: uuid.UUID, now_ms: int) -> None:
        """Completes the future folder. The log must not be appended to between this and `replace`."""
        left = self.seal(now_ms)
        self.copy(left)
        self.mark_copied(left)
        self._remove_deleted_segments()
        # The active segment is empty now. Its name determines where the log continues.
        log, future = self.log, self.future_directory
        self._disk.open(segment_file(future, log.log_end_offset, LOG_SUFFIX), create=True)
        self._copy_file(segment_file(log.directory, log.log_end_offset, SNAPSHOT_SUFFIX))
        epochs = encode_epoch_checkpoint(log.epochs.entries())
        self._disk.write_atomically(f"{future}/{LEADER_EPOCH_CHECKPOINT}", epochs)
        self._disk.write_atomically(f"{future}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))

    def replace(self, topic_id: uuid.UUID, now_ms: int) -> Log:
        """Renames the future folder after the old one is gone, and returns the log in it."""
        log = self.log
        directory = f"{self.path}/{log.topic_partition}"
        self._disk.rename(self.future_directory, directory)
        self._disk.sync_dir(self.path)
        segments = Segments(self._reopen(segment, directory) for segment in list(log.segments)[:-1])
        segments.add(Segment.create(self._disk, directory, log.log_end_offset, log.config, now_ms))
        names = (parse_segment_file(name) for name in self._disk.list_dir(directory))
        snapshots = (parsed[0] for parsed in names if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX)
        loaded = LoadedLog(
            segments=segments,
            snapshots=ProducerSnapshots(self._disk, directory, snapshots),
            producers=log.producers,
            epochs=log.epochs,
            offsets=log.offsets,
            recovery_point=log.log_end_offset,
            checkpointed_epochs=log.epochs.entries(),
        )
        return Log(self._disk, directory, log.topic_partition, log.config, loaded, topic_id)

    def _reopen(self, segment: Segment, directory: str) -> Segment:
        return Segment(
            self._disk,
            directory,
            segment.base_offset,
            self.log.config,
            size=segment.size,
            now_ms=segment.created_ms,
        )

    def _remove_deleted_segments(self) -> None:
        kept = {segment.base_offset for segment in self.log.segments}
        for name in self._disk.list_dir(self.future_directory):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[0] not in kept:
                self._disk.remove(f"{self.future_directory}/{name}")

    def _copy_file(self, path: str) -> None:
        """Ignores a missing file: retention may have removed it, and not every index and snapshot exists."""
        with contextlib.suppress(FileNotFoundError):
            source = self._disk.open(path)
            target = self._disk.open(f"{self.future_directory}/{path.rpartition('/')[2]}", create=True)
            target.truncate(0)
            for position in range(0, source.size(), _COPY_BYTES):
                if self.is_abandoned:
                    raise MoveAbandonedError
                target.write_at(position, [source.read_at(position, _COPY_BYTES)])
            target.sync()
            target.close()
            source.close()
