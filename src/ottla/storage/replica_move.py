"""A replica on its way to another data directory, while it serves (KIP-113).

Sealed segments do not change, so they are copied beside the event loop, round by round, into a folder with the name
of a future replica. When little is left, the rest is copied and the new folder takes the old one's place in one turn
of the event loop, so that no append falls in between.

A crash leaves one whole log at every step: a future folder counts only once it is whole, which its
`partition.metadata`, the last file written, says, and only where the folder that it replaces is gone.
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
    marked_dir_name,
    parse_segment_file,
    segment_file,
)
from ottla.storage.log import Log
from ottla.storage.producer_state import ProducerSnapshots
from ottla.storage.recovery import LoadedLog
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments

_COPY_BYTES = 1 << 20


class MoveAbandonedError(Exception):
    """The move is not wanted any more; whoever began it removes the future folder."""


class ReplicaMove:
    """All but `copy` is for the thread of the log."""

    def __init__(self, disk: Disk, log: Log, path: str, unique_id: uuid.UUID) -> None:
        self.log = log
        self.path = path  # of the data directory that it goes to
        self.future_directory = f"{path}/{marked_dir_name(log.topic_partition, FUTURE_DIR_SUFFIX, unique_id)}"
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
        """Up to where the future replica has the log."""
        for segment in self.log.segments:
            if segment not in self._copied:
                return segment.base_offset
        return self.log.log_end_offset

    def seal(self, now_ms: int) -> list[Segment]:
        """Seals what the log holds, and returns the segments that are still to be copied."""
        self.log.roll(now_ms)
        left = [segment for segment in self.log.segments if segment not in self._copied][:-1]
        for segment in left:
            _ = segment.offset_index  # a damaged index is mended now, and not while it is copied
        return left

    def copy(self, segments: Iterable[Segment]) -> None:
        """Copies sealed segments and syncs them; safe in a worker, beside appends, reads and retention."""
        self._disk.make_dirs(self.future_directory)
        for segment in segments:
            snapshot = segment_file(self.log.directory, segment.base_offset, SNAPSHOT_SUFFIX)
            for path in [*segment.paths(), snapshot]:
                self._copy_file(path)
        self._disk.sync_dir(self.future_directory)
        self._disk.sync_dir(self.path)

    def copied(self, segments: Iterable[Segment]) -> None:
        self._copied.update(segments)

    def complete(self, topic_id: uuid.UUID, now_ms: int) -> None:
        """Makes the future folder whole. The log goes on as it is, and must not be appended to before `replace`."""
        left = self.seal(now_ms)
        self.copy(left)
        self.copied(left)
        self._remove_what_retention_took()
        # The active segment is empty now, and its name is what says where the log goes on.
        log, future = self.log, self.future_directory
        self._disk.open(segment_file(future, log.log_end_offset, LOG_SUFFIX), create=True)
        self._copy_file(segment_file(log.directory, log.log_end_offset, SNAPSHOT_SUFFIX))
        epochs = encode_epoch_checkpoint(log.epochs.entries())
        self._disk.write_atomically(f"{future}/{LEADER_EPOCH_CHECKPOINT}", epochs)
        self._disk.write_atomically(f"{future}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))

    def replace(self, topic_id: uuid.UUID, now_ms: int) -> Log:
        """After the old folder is gone: the future one gets its name, and the log goes on in it."""
        log = self.log
        directory = f"{self.path}/{log.topic_partition}"
        self._disk.rename(self.future_directory, directory)
        self._disk.sync_dir(self.path)
        segments = Segments(self._reopened(segment, directory) for segment in list(log.segments)[:-1])
        segments.add(Segment.create(self._disk, directory, log.log_end_offset, log.config, now_ms))
        names = (parse_segment_file(name) for name in self._disk.list_dir(directory))
        snapshots = (parsed[0] for parsed in names if parsed is not None and parsed[1] == SNAPSHOT_SUFFIX)
        loaded = LoadedLog(
            segments=segments,
            snapshots=ProducerSnapshots(self._disk, directory, snapshots),
            producers=log.producers,
            epochs=log.epochs,
            log_start_offset=log.log_start_offset,
            log_end_offset=log.log_end_offset,
            recovery_point=log.log_end_offset,
            checkpointed_epochs=log.epochs.entries(),
        )
        return Log(self._disk, directory, log.topic_partition, log.config, loaded, topic_id)

    def _reopened(self, segment: Segment, directory: str) -> Segment:
        return Segment(
            self._disk,
            directory,
            segment.base_offset,
            self.log.config,
            size=segment.size,
            now_ms=segment.created_ms,
        )

    def _remove_what_retention_took(self) -> None:
        kept = {segment.base_offset for segment in self.log.segments}
        for name in self._disk.list_dir(self.future_directory):
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[0] not in kept:
                self._disk.remove(f"{self.future_directory}/{name}")

    def _copy_file(self, path: str) -> None:
        """Retention may have taken it, an index may be missing until it is needed, a snapshot may never have been."""
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
