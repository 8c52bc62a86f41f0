"""The log of a partition: append, read, flush, retention, truncation. One thread uses it, except for `FlushWork.sync`.

Every disk failure is an OSError that leaves the log as it was before the call.
"""

import contextlib
import logging
import uuid
from collections.abc import Callable, Sequence

from ottla.env.disk import Bytes, Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_TIMESTAMP, TopicPartition
from ottla.records.header import LOG_OVERHEAD, BatchHeader
from ottla.storage.checkpoints import encode_partition_metadata, read_partition_metadata
from ottla.storage.damaged_log import InconsistentTopicIdError
from ottla.storage.deletion import Deletion
from ottla.storage.file_names import (
    DELETE_DIR_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    PARTITION_METADATA,
    dir_name_with_suffix,
)
from ottla.storage.flush import EpochCheckpoint, FlushWork, UnflushedMarks
from ottla.storage.log_config import LogConfig
from ottla.storage.log_loader import LoadedLog, LogLoader
from ottla.storage.producer_state import replay_batch
from ottla.storage.segment import Segment
from ottla.storage.segments import EMPTY_REGION, LogSlice
from ottla.storage.timestamp_search import TimestampOffset, TimestampSearch
from ottla.storage.truncation import RemainingRecords, prepare_read
from ottla.storage.txn_index import AbortedTxn

logger = logging.getLogger("ottla.storage")


class Log:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        loaded: LoadedLog,
        topic_id: uuid.UUID | None,
    ) -> None:
        self.directory = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.config = config
        self.segments = loaded.segments
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.offsets = loaded.offsets
        self.recovery_point = loaded.recovery_point
        self.clean_up_to: int | None = None  # the end of the compacted part; None: never compacted
        self.deletions: list[Deletion] = []
        self._disk = disk
        self.snapshots = loaded.snapshots
        self._epoch_checkpoint = EpochCheckpoint(
            disk, f"{directory}/{LEADER_EPOCH_CHECKPOINT}", loaded.checkpointed_epochs
        )
        self._unsynced_paths: list[str] = []  # snapshots and partition.metadata
        self._unsynced_directories: list[str] = []
        self._unflushed_marks = UnflushedMarks(disk, directory, loaded.unflushed_marks)
        self._generation = 0  # counts truncations and rolls
        self.truncations = 0  # since the broker has opened the log, also before a move to another directory
        self._closed_cleanly = False

    @classmethod
    def open(
        cls,
        disk: Disk,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        *,
        clean_shutdown: bool,
        now_ms: int,
        log_start_offset: int = 0,
        recovery_point: int = 0,
        flushed_offset: int | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> "Log":
        """Opens a log, or creates an empty one. Writes `topic_id` to partition.metadata if it has none.

        After a clean shutdown no log data is read. The offsets come from the checkpoints of the data directory;
        `flushed_offset` is the recovery point if it is not given. Raises DamagedLogError for damage below
        `flushed_offset`, InconsistentTopicIdError if the records belong to another topic, CorruptCheckpointError if the
        recorded topic id cannot be read, and OSError.
        """
        is_new = not disk.exists(directory)
        if is_new:
            disk.make_dirs(directory)
        recorded = None if is_new else read_partition_metadata(disk, f"{directory}/{PARTITION_METADATA}")
        if recorded is not None and topic_id is not None and recorded != topic_id:
            raise InconsistentTopicIdError(directory, recorded, topic_id)
        loaded = LogLoader(
            disk,
            directory,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown and not is_new,
            now_ms=now_ms,
            flushed_offset=flushed_offset,
        ).load()
        log = cls(disk, directory, topic_partition, config, loaded, recorded)
        if not clean_shutdown or is_new:
            # The files of the last run may not be synced.
            log._unsynced_directories = [_parent(directory), directory]
            log._unsynced_paths = [] if recorded is None else [f"{directory}/{PARTITION_METADATA}"]
        if recorded is None and topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def assign_topic_id(self, topic_id: uuid.UUID) -> None:
        path = f"{self.directory}/{PARTITION_METADATA}"
        data = encode_partition_metadata(topic_id)
        file = self._disk.open(path, create=True)
        file.write_at(0, [data])
        file.truncate(len(data))
        self.topic_id = topic_id
        self._unsynced_paths.append(path)
        self.note_names_changed()

    # Read-only: only the log moves its offsets.

    @property
    def log_start_offset(self) -> int:
        return self.offsets.start

    @property
    def log_end_offset(self) -> int:
        return self.offsets.end

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self.segments)

    # Appending

    def append(self, batches: Sequence[tuple[BatchHeader, Sequence[Bytes]]], now_ms: int) -> None:
        """Appends batches with final headers in one write. An OSError leaves the log as it was."""
        if len(batches) == 1:
            headers, buffers = [batches[0][0]], batches[0][1]
            size, max_timestamp = headers[0].batch_length + LOG_OVERHEAD, headers[0].max_timestamp
            has_marker = headers[0].is_control
        else:
            headers = [header for header, _ in batches]
            buffers = [part for _, parts in batches for part in parts]
            size = sum(header.size for header in headers)
            max_timestamp = max(header.max_timestamp for header in headers)
            has_marker = any(header.is_control for header in headers)
        base_offset = headers[0].base_offset
        end_offset = headers[-1].base_offset + headers[-1].last_offset_delta + 1
        if base_offset < self.offsets.end:
            raise ValueError(
                f"{self.topic_partition} ends at offset {self.offsets.end}: a batch with offset "
                f"{base_offset} cannot be appended"
            )
        segments = self.segments
        segment = segments.active
        if segment.should_roll(self.config, size, max_timestamp, end_offset - 1, now_ms):
            self._check_fits_segment(size)
            self.roll(now_ms, base_offset)
            segment = segments.active
        if has_marker:
            segment.txn_index.entries()  # read before the write, because the marker may add an entry
        segment.append(headers, buffers, size)
        self.offsets.end = end_offset
        segments.cache_position(end_offset, segment, segment.size)
        latest_epoch = self.epochs.latest
        for header, parts in batches:
            epoch = header.partition_leader_epoch
            if epoch != latest_epoch and epoch >= 0:
                self.epochs.assign(epoch, header.base_offset)
                latest_epoch = epoch
            if header.producer_id >= 0:
                data = b"".join(parts) if header.is_control else b""
                replay_batch(self.producers, header, data, segment.txn_index.append)

    def _check_fits_segment(self, size: int) -> None:
        if size > self.config.segment_bytes:
            raise KafkaError(
                ErrorCode.record_list_too_large,
                f"{size} bytes for {self.topic_partition} do not fit into a segment: segment.bytes is "
                f"{self.config.segment_bytes}. Send smaller batches or raise segment.bytes",
            )

    def roll(self, now_ms: int, next_offset: int = 0) -> None:
        """Seals the active segment and starts a new one, at `next_offset` if the log continues after a gap."""
        active = self.segments.active
        base_offset = max(next_offset, self.offsets.end)
        if not active.size and active.base_offset == base_offset:
            return
        active.seal()
        if base_offset == self.offsets.end > self.recovery_point:
            self._unflushed_marks.add(base_offset)
        if active.size:
            # Sealing has changed the indexes, so the segment must be synced again.
            self.recovery_point = min(self.recovery_point, self.offsets.end - 1)
            self._generation += 1
        segment = Segment.create(self._disk, self.directory, base_offset, self.config, now_ms)
        if base_offset not in self.snapshots.offsets:
            try:
                self.snapshots.write(base_offset, self.producers.entries())
            except OSError:
                segment.discard()
                raise
            self._unsynced_paths.append(self.snapshots.path(base_offset))
        self.segments.add(segment)
        # Consumers at the end of the log continue in the new segment.
        self.segments.cache_position(self.offsets.end, segment, 0)
        self.note_names_changed()

    def note_names_changed(self, *directories: str) -> None:
        """The next flush syncs `directories`, by default that of the log."""
        for directory in directories or (self.directory,):
            if directory not in self._unsynced_directories:
                self._unsynced_directories.append(directory)

    # Reading

    def read(
        self, offset: int, max_bytes: int, *, end_offset: int, at_least_one: bool, may_block: bool = True
    ) -> LogSlice:
        """Returns whole batches from the one with `offset` on, below `end_offset`, of at most `max_bytes`.

        If the first batch is larger than `max_bytes`, it is returned only if `at_least_one` is set. Raises ColdLookup
        if an index must be loaded first, unless `may_block` is set.
        """
        if not self.offsets.start <= offset <= self.offsets.end:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition} has offsets {self.offsets.start} to {self.offsets.end}, "
                f"not {offset}",
            )
        if offset >= end_offset:
            return LogSlice(EMPTY_REGION, offset)
        return self.segments.read(
            offset,
            max_bytes,
            end_offset=end_offset,
            log_end_offset=self.offsets.end,
            at_least_one=at_least_one,
            may_block=may_block,
        )

    def prepare_segments(self) -> Callable[[], None] | None:
        """A function for a thread that loads the indexes of all segments; None if they are loaded."""
        unprepared = [segment for segment in self.segments if not segment.is_prepared]
        if not unprepared:
            return None

        def work() -> None:
            for segment in unprepared:
                # Retention may have removed it meanwhile.
                with contextlib.suppress(FileNotFoundError):
                    segment.prepare()

        return work

    def search_by_timestamp(
        self, timestamp: int, from_offset: int
    ) -> tuple[TimestampSearch, int | None] | None:
        """The search for the first record with `timestamp` or a greater one, in the first segment that may have it.

        Leaves out segments below `from_offset`. Also returns the offset to continue from if the search finds nothing,
        which is None after the last segment. Returns None if no segment has such a timestamp.
        """
        for segment in self.segments.from_offset(max(from_offset, self.offsets.start)):
            if segment.size and segment.max_timestamp >= timestamp:
                search = segment.search_by_timestamp(timestamp, self.offsets.start)
                return search, self.segments.next_base_offset(segment)
        return None

    def search_max_timestamp(self) -> TimestampSearch | None:
        """The search for the first record with the greatest timestamp (KIP-734)."""
        written = [segment for segment in self.segments.from_offset(self.offsets.start) if segment.size]
        if not written:
            return None
        return max(written, key=lambda segment: segment.max_timestamp).search_max_timestamp()

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with `timestamp` or a greater one. Reads log data, so it may block."""
        from_offset: int | None = self.offsets.start
        while from_offset is not None:
            found = self.search_by_timestamp(timestamp, from_offset)
            if found is None:
                return None
            search, from_offset = found
            if (record := search.run()) is not None:
                return record
        return None

    def offset_of_max_timestamp(self) -> TimestampOffset | None:
        """The first record with the greatest timestamp. Reads log data, so it may block."""
        search = self.search_max_timestamp()
        return None if search is None else search.run()

    def aborted_transactions(self, from_offset: int, to_offset: int) -> list[tuple[int, int]]:
        """Returns (producer id, first offset) of the transactions that a read_committed fetch of [from, to) skips."""
        found: list[AbortedTxn] = []
        for segment in self.segments.from_offset(from_offset):
            if segment.txn_index.collect(from_offset, to_offset, found):
                break
        return [(aborted.producer_id, aborted.first_offset) for aborted in found]

    # Flushing

    @property
    def recovery_checkpoint(self) -> int:
        """The recovery point to checkpoint: below the end of the active segment.

        A flush does not sync the indexes of the active segment. If the segment is sealed and the power fails before the
        next checkpoint, recovery from this offset still includes the segment and rebuilds its indexes.
        """
        if self._closed_cleanly or self.recovery_point <= self.segments.active.base_offset:
            return self.recovery_point
        return self.recovery_point - 1

    @property
    def unflushed_messages(self) -> int:
        return self.offsets.end - self.recovery_point

    def prepare_flush(self, up_to: int | None = None) -> FlushWork | None:
        """What to sync to move the recovery point to `up_to` (by default the log end); None if there is nothing.

        Leaves out the indexes of the active segment, because recovery rebuilds them after an unclean shutdown.
        """
        offset = self.offsets.end if up_to is None else min(up_to, self.offsets.end)
        epochs = self._epoch_checkpoint.plan(self.epochs.entries())
        if offset <= self.recovery_point and not (
            epochs or self._unsynced_paths or self._unsynced_directories
        ):
            return None
        files, paths = [], list(self._unsynced_paths)
        if offset > self.recovery_point:
            for segment in self.segments.from_offset(self.recovery_point):
                if segment is self.segments.active:
                    if segment.base_offset < offset:  # also if it was truncated to nothing
                        files.append(segment.file)
                elif segment.base_offset < offset:
                    paths += [segment.path, *segment.index_paths()]
        return FlushWork(
            disk=self._disk,
            offset=offset,
            generation=self._generation,
            files=tuple(files),
            paths=tuple(paths),
            epoch_checkpoint=self._epoch_checkpoint,
            epochs=epochs,
            directories=tuple(self._unsynced_directories),
        )

    def complete_flush(self, work: FlushWork) -> None:
        """Moves the recovery point after `work.sync()`."""
        if work.epochs is not None:
            self._epoch_checkpoint.complete(work.epochs)
        if work.generation != self._generation or self._epoch_checkpoint.is_deleted:
            return
        self.recovery_point = max(self.recovery_point, work.offset)
        self._unflushed_marks.remove(lambda base_offset: base_offset <= self.recovery_point)
        self._unsynced_paths = [path for path in self._unsynced_paths if path not in work.paths]
        self._unsynced_directories = [
            path for path in self._unsynced_directories if path not in work.directories
        ]

    def flush(self) -> None:
        """Does all three steps of a flush. Blocks."""
        work = self.prepare_flush()
        if work is not None:
            work.sync()
            self.complete_flush(work)

    # Retention

    def delete_records_before(self, offset: int) -> bool:
        """Moves the log start offset to `offset`, for DeleteRecords. The next retention run deletes segments."""
        if offset > self.offsets.end:
            raise KafkaError(
                ErrorCode.offset_out_of_range,
                f"{self.topic_partition} ends at offset {self.offsets.end}: it cannot start at {offset}",
            )
        if offset <= self.offsets.start:
            return False
        self.offsets.start = offset
        self.epochs.truncate_from_start(offset)
        self.producers.truncate_before(offset)
        return True

    def delete_old_segments(self, now_ms: int, high_watermark: int) -> list[Segment]:
        """Deletes segments by retention and log start offset, and returns them."""
        removed = self._delete_while(self._is_below_start, now_ms, high_watermark)
        config = self.config
        if "delete" not in config.cleanup_policy:
            return removed
        if config.retention_bytes >= 0:
            excess = self.size_bytes - config.retention_bytes

            def exceeds(segment: Segment) -> bool:
                nonlocal excess
                excess -= segment.size
                return excess >= 0

            removed += self._delete_while(exceeds, now_ms, high_watermark)
        if config.retention_ms >= 0:
            oldest_ms = now_ms - config.retention_ms
            removed += self._delete_while(
                lambda segment: segment.is_older_than(oldest_ms), now_ms, high_watermark
            )
        return removed

    def _is_below_start(self, segment: Segment) -> bool:
        next_base_offset = self.segments.next_base_offset(segment)
        return next_base_offset is not None and next_base_offset <= self.offsets.start

    def _delete_while(
        self, is_deletable: Callable[[Segment], bool], now_ms: int, high_watermark: int
    ) -> list[Segment]:
        """Deletes segments from the oldest on; nothing at or above the high watermark, and no empty active segment."""
        deletable: list[Segment] = []
        for segment in self.segments:
            next_base_offset = self.segments.next_base_offset(segment)
            end_offset = self.offsets.end if next_base_offset is None else next_base_offset
            if high_watermark < end_offset or (next_base_offset is None and not segment.size):
                break
            if not is_deletable(segment):
                break
            deletable.append(segment)
        if not deletable:
            return []
        if len(deletable) == len(self.segments):
            # The log needs an active segment, so an empty one replaces the last.
            self.roll(now_ms)
        self._delete_segments(deletable, now_ms)
        self.delete_records_before(self.segments.base_offsets[0])
        return deletable

    def _delete_segments(self, deleted: Sequence[Segment], now_ms: int) -> None:
        self.segments.remove(deleted)
        paths = [path for segment in deleted for path in segment.mark_deleted()]
        followers = set(self.segments.base_offsets[1:])
        self._unflushed_marks.remove(lambda base_offset: base_offset not in followers)
        paths += self.snapshots.mark_deleted(segment.base_offset for segment in deleted)
        due_ms = now_ms + self.config.file_delete_delay_ms
        self.deletions += [Deletion(due_ms, path) for path in paths]
        self.note_names_changed()
        logger.info(
            "%s: deleted %d segments from offset %d on",
            self.topic_partition,
            len(deleted),
            deleted[0].base_offset,
        )

    def due_deletions(self, now_ms: int) -> list[Deletion]:
        """Returns the deletions that are due and removes them from the list; the caller performs them."""
        due = [deletion for deletion in self.deletions if deletion.due_ms <= now_ms]
        if due:
            self.deletions = [deletion for deletion in self.deletions if deletion.due_ms > now_ms]
        return due

    # Compaction

    def replace_segments(self, replaced: Sequence[Segment], segment: Segment, now_ms: int) -> None:
        """Replaces adjacent segments with the cleaned `segment`, whose files the caller renames right after this.

        The replaced segments must be flushed. Otherwise recovery could take a gap before the next segment for a lost
        end.
        """
        paths = [path for old in replaced for path in old.mark_deleted()]
        paths += self.snapshots.mark_deleted(old.base_offset for old in replaced[1:])
        self.segments.replace(replaced, segment)
        due_ms = now_ms + self.config.file_delete_delay_ms
        self.deletions += [Deletion(due_ms, path) for path in paths]
        self.note_names_changed()

    # Truncating

    def truncate_to(self, offset: int, now_ms: int, remaining: RemainingRecords | None = None) -> bool:
        """Truncates the log to end at `offset`. Returns False if it already ends at or before it.

        A batch with `offset` is removed as a whole, because a batch cannot be cut. `remaining` is read if not given.
        """
        if offset >= self.offsets.end:
            self.epochs.truncate_from_end(self.offsets.end)
            return False
        if offset < self.segments.base_offsets[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        max_timestamp, producers = remaining or prepare_read(self, offset)()
        later = [segment for segment in self.segments if segment.base_offset > offset]
        last = self.segments.from_offset(offset)[0]
        truncate = last.truncation(offset, max_timestamp)
        if later:  # removed before the last one is cut: a crash in between leaves no hole
            self._delete_segments(later, now_ms)
        truncate()
        self._truncated_to(offset)
        self.epochs.truncate_from_end(offset)
        if producers is not None:
            self.producers.take_over(producers)
        self.offsets.end = self.segments.active.read_next_offset()
        if self.offsets.end < offset:
            # The removed batch began before `offset`. Only the name of a new segment records where the log continues.
            self.roll(now_ms, offset)
            self.offsets.end = offset
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Removes all records. The next record has `offset`."""
        removed = [segment for segment in self.segments if segment.base_offset != offset]
        if len(removed) < len(self.segments):
            self.segments.from_offset(offset)[0].truncate_to(offset, (NO_TIMESTAMP, offset))
        else:
            # Created before the others are deleted: if file descriptors have run out, the log stays as it was. The mark
            # lets recovery remove it after a crash in between, because the others end before it.
            self._unflushed_marks.add(offset)
            self.segments.add(Segment.create(self._disk, self.directory, offset, self.config, now_ms))
        if removed:
            self._delete_segments(removed, now_ms)
        self._truncated_to(offset)
        self.snapshots.remove(list(self.snapshots.offsets))
        self.offsets.start = offset
        self.epochs.clear()
        self.producers.clear()

    def _truncated_to(self, offset: int) -> None:
        self._generation += 1
        self.truncations += 1
        self.segments.clear_cache()
        self.snapshots.remove([taken for taken in self.snapshots.offsets if taken > offset])
        self.offsets.end = offset
        # The truncation is not synced yet, so the next flush must include this segment.
        self.recovery_point = min(self.recovery_point, self.segments.active.base_offset, offset)
        self.offsets.start = min(self.offsets.start, offset)
        if self.clean_up_to is not None:
            self.clean_up_to = min(self.clean_up_to, offset)

    # Deleting and closing

    def delete_log(self, unique_id: uuid.UUID, now_ms: int) -> Deletion:
        """Renames the folder, so that a crash cannot bring the log back. The caller performs the deletion later.

        The caller also syncs the data directory, so that a power loss does not undo the rename.
        """
        self.close(clean=False)
        self._epoch_checkpoint.is_deleted = True
        target = f"{_parent(self.directory)}/{dir_name_with_suffix(self.topic_partition, DELETE_DIR_SUFFIX, unique_id)}"
        self._disk.rename(self.directory, target)
        self.deletions = []
        return Deletion(now_ms + self.config.file_delete_delay_ms, target, is_directory=True)

    def wait_for_epoch_write(self) -> None:
        """For a thread, after `delete_log`: waits until no flush writes into a folder with this log's name."""
        with self._epoch_checkpoint.lock:
            pass

    def prepare_close(self) -> FlushWork | None:
        """Prepares the files for a clean shutdown and returns what to sync.

        `close` does all of it; a caller uses this to sync many logs in parallel first.
        """
        active = self.segments.active
        active.seal()
        if self.offsets.end and self.offsets.end not in self.snapshots.offsets:
            # No sync needed: if a power loss takes it, the producers are restored from the log.
            self.snapshots.write(self.offsets.end, self.producers.entries())
        if active.is_modified:
            paths = active.index_paths()
            if self.offsets.end <= self.recovery_point:
                # All records are flushed, but a truncation of the file may not be.
                paths.append(active.path)
            self._unsynced_paths += [path for path in paths if path not in self._unsynced_paths]
            active.is_modified = False
        return self.prepare_flush()

    def close(self, *, clean: bool) -> None:
        """`clean`: flushes everything, so that the next start reads no log data. Otherwise only releases the files."""
        if clean:
            work = self.prepare_close()
            if work is not None:
                work.sync()
                self.complete_flush(work)
            self._closed_cleanly = True
        for segment in self.segments:
            segment.close()


def _parent(directory: str) -> str:
    return directory.rpartition("/")[0] or "/"
