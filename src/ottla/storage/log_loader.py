"""Loads a log from its files: after a clean shutdown by their names alone, otherwise with checks and repairs."""

import contextlib
import logging
from typing import NamedTuple

from ottla.core.partition.epochs import LeaderEpochCache
from ottla.core.partition.log_offsets import MutableLogOffsets
from ottla.core.partition.producers import ProducerStateTable
from ottla.env.disk import Disk
from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.header import BatchHeader
from ottla.storage.batch_scan import iter_headers, iter_valid_batches
from ottla.storage.checkpoints import CorruptCheckpointError, read_epoch_checkpoint
from ottla.storage.damaged_log import DamagedLogError
from ottla.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LEADER_EPOCH_CHECKPOINT,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    SWAP_SUFFIX,
    UNFLUSHED_SUFFIX,
    parse_segment_file,
    parse_unflushed_file,
    segment_file,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_index import INT32_MAX
from ottla.storage.producer_snapshots import ProducerSnapshots
from ottla.storage.producer_state import load_producers, repair_txn_indexes, replay_batch
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments

logger = logging.getLogger("ottla.storage")


class LoadedLog(NamedTuple):
    segments: Segments
    snapshots: ProducerSnapshots
    producers: ProducerStateTable
    epochs: LeaderEpochCache
    offsets: MutableLogOffsets
    recovery_point: int
    checkpointed_epochs: list[tuple[int, int]]
    unflushed_marks: tuple[int, ...] = ()  # base offsets of segments with an `.unflushed` file


class LogLoader:
    """`log_start_offset` and `recovery_point` come from the checkpoints.

    Recovery checks the log from the recovery point on. An unreadable batch below `flushed_offset` (by default the
    recovery point) is damage and not a torn write: `load` raises DamagedLogError and truncates nothing.
    """

    def __init__(
        self,
        disk: Disk,
        directory: str,
        config: LogConfig,
        *,
        log_start_offset: int,
        recovery_point: int,
        clean_shutdown: bool,
        now_ms: int,
        flushed_offset: int | None = None,
    ) -> None:
        self._disk = disk
        self._directory = directory
        self._config = config
        self._log_start_offset = log_start_offset
        self._recovery_point = recovery_point
        self._flushed_offset = recovery_point if flushed_offset is None else flushed_offset
        self._clean_shutdown = clean_shutdown
        self._now_ms = now_ms
        self._unflushed_marks: set[int] = set()
        self._producers = ProducerStateTable()
        self._epochs = LeaderEpochCache()

    def load(self) -> LoadedLog:
        files = self._segment_files()
        snapshots = ProducerSnapshots(
            self._disk, self._directory, (offset for offset, suffix in files if suffix == SNAPSHOT_SUFFIX)
        )
        segments = self._open_segments(files)
        checkpointed_epochs = self._load_epochs(segments)
        if self._clean_shutdown:
            end_offset = self._end_offset_after_clean_shutdown(segments, snapshots)
        else:
            end_offset = self._recover(segments, snapshots)
        if len(segments):
            self._ignore_log_start_beyond(end_offset)
        else:
            end_offset = self._log_start_offset
            segments.add(Segment.create(self._disk, self._directory, end_offset, self._config, self._now_ms))
        log_start_offset = max(self._log_start_offset, segments.base_offsets[0])
        self._remove_outdated_marks(segments)
        self._finish_producers(segments, snapshots, end_offset)
        repair_txn_indexes(segments, snapshots, end_offset)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(log_start_offset)
        recovery_point = end_offset if self._clean_shutdown else min(self._recovery_point, end_offset)
        return LoadedLog(
            segments=segments,
            snapshots=snapshots,
            producers=self._producers,
            epochs=self._epochs,
            offsets=MutableLogOffsets(log_start_offset, end_offset),
            recovery_point=recovery_point,
            checkpointed_epochs=checkpointed_epochs,
            unflushed_marks=tuple(sorted(self._unflushed_marks)),
        )

    def _segment_files(self) -> set[tuple[int, str]]:
        """Returns (offset, suffix) of the segments' files, after finishing what a crash interrupted."""
        names = self._disk.list_dir(self._directory)
        if any(name.endswith((DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names):
            self._finish_interrupted_operations(names)
            names = self._disk.list_dir(self._directory)
        marks = (parse_unflushed_file(name) for name in names)
        self._unflushed_marks = {base_offset for base_offset in marks if base_offset is not None}
        return {parsed for name in names if (parsed := parse_segment_file(name)) is not None}

    def _finish_interrupted_operations(self, names: list[str]) -> None:
        """Completes deletions, removes unfinished cleaned segments, and completes swaps of finished ones."""
        found: dict[str, list[tuple[int, str]]] = {DELETED_SUFFIX: [], CLEANED_SUFFIX: [], SWAP_SUFFIX: []}
        for name in names:
            stem, _, ending = name.rpartition(".")
            parsed = parse_segment_file(stem)
            if parsed is not None and "." + ending in found:
                found["." + ending].append((parsed[0], name))
        # While a segment has a `.cleaned` file, none of the segments that it replaces was changed.
        unfinished = {base_offset for base_offset, _ in found[CLEANED_SUFFIX]}
        unfinished_swaps = [swap for swap in found[SWAP_SUFFIX] if swap[0] in unfinished]
        # Before anything is removed, because a damaged segment must not replace others.
        ends = {
            base_offset: self._check_swap(base_offset)
            for base_offset in sorted({swap[0] for swap in found[SWAP_SUFFIX]} - unfinished)
        }
        for _, name in [*found[DELETED_SUFFIX], *found[CLEANED_SUFFIX], *unfinished_swaps]:
            self._disk.remove(f"{self._directory}/{name}")
        for base_offset, end_offset in ends.items():
            swapped = [name for offset, name in found[SWAP_SUFFIX] if offset == base_offset]
            self._complete_swap(base_offset, end_offset, names, swapped)

    def _check_swap(self, base_offset: int) -> int:
        """Returns the end offset of the cleaned segment; its base offset if its log file has its final name already."""
        path = segment_file(self._directory, base_offset, LOG_SUFFIX) + SWAP_SUFFIX
        end_offset, position = base_offset, 0
        if self._disk.exists(path):
            size = self._disk.file_size(path)
            for batch in iter_valid_batches(self._disk.open(path), size, base_offset):
                if batch.header.last_offset - base_offset > INT32_MAX:
                    break
                position, end_offset = batch.position + batch.header.size, batch.header.next_offset
            if position < size:
                raise KafkaError(
                    ErrorCode.kafka_storage_error,
                    f"{path} is damaged at position {position}. This compacted segment was to replace others, none of "
                    "which was removed. Restore it from a backup. Or, if all segments from offset "
                    f"{base_offset} on are there, rename those that end with .deleted to their names without it, and "
                    "remove the .swap files",
                )
        return end_offset

    def _complete_swap(self, base_offset: int, end_offset: int, names: list[str], swapped: list[str]) -> None:
        """Removes all segments whose base offset is in the range of the cleaned segment, and renames its files."""
        for name in names:
            parsed = parse_segment_file(name)
            if parsed is not None and parsed[1] != SNAPSHOT_SUFFIX and base_offset < parsed[0] < end_offset:
                self._disk.remove(f"{self._directory}/{name}")
        # A power loss must not bring them back beside the new segment.
        self._disk.sync_dir(self._directory)
        for name in swapped:
            path = f"{self._directory}/{name}"
            self._disk.rename(path, path.removesuffix(SWAP_SUFFIX))
            if self._disk.exists(path):  # it had both names
                self._disk.remove(path)
        logger.info(
            "%s: completed the interrupted swap of the compacted segment at offset %d",
            self._directory,
            base_offset,
        )

    def _open_segments(self, files: set[tuple[int, str]]) -> Segments:
        base_offsets = sorted(offset for offset, suffix in files if suffix == LOG_SUFFIX)
        known = set(base_offsets)
        for offset, suffix in sorted(files):
            if suffix != SNAPSHOT_SUFFIX and offset not in known:
                path = segment_file(self._directory, offset, suffix)
                logger.warning("removing %s: it has no log file", path)
                self._disk.remove(path)
        return Segments(
            Segment(
                self._disk,
                self._directory,
                base_offset,
                self._config,
                size=self._disk.file_size(segment_file(self._directory, base_offset, LOG_SUFFIX)),
                now_ms=self._now_ms,
            )
            for base_offset in base_offsets
        )

    def _load_epochs(self, segments: Segments) -> list[tuple[int, int]]:
        """Returns the entries of the checkpoint; later ones may be only in the log."""
        try:
            entries = read_epoch_checkpoint(self._disk, f"{self._directory}/{LEADER_EPOCH_CHECKPOINT}")
            self._epochs.load(entries)
            return entries
        except CorruptCheckpointError as error:
            logger.warning("rebuilding the leader epochs of %s from its log: %s", self._directory, error)
            for segment in segments:
                if segment.size:
                    for _, header in iter_headers(segment.file, 0, segment.size):
                        self._note_epoch(header)
            return []

    def _note_epoch(self, header: BatchHeader) -> None:
        epoch, latest = header.partition_leader_epoch, self._epochs.latest
        if epoch >= 0 and (latest is None or epoch > latest):
            self._epochs.assign(epoch, header.base_offset)

    def _end_offset_after_clean_shutdown(self, segments: Segments, snapshots: ProducerSnapshots) -> int:
        """Reads no log data: a clean shutdown leaves a producer snapshot at the log end, the recovery point."""
        if not len(segments):
            return self._log_start_offset
        active = segments.active
        if self._recovery_point > active.base_offset and self._recovery_point in snapshots.offsets:
            return self._recovery_point
        end_offset = active.read_next_offset()
        if end_offset < self._recovery_point:
            self._warn_about_recovery_point(end_offset, "the log continues after its last batch")
        return end_offset

    def _ignore_log_start_beyond(self, end_offset: int) -> None:
        """A log start offset beyond the log end is wrong, and must not delete the segments.

        A power loss cannot cause it, because a log start offset is checkpointed only after all records below it are
        flushed. Kafka removes the segments and continues at the log start offset. Here no record is lost if the
        checkpoint is wrong; if it is right and files are missing, deleted records come back.
        """
        if end_offset >= self._log_start_offset:
            return
        logger.warning(
            "%s/log-start-offset-checkpoint says that %s starts at offset %d, but it ends at offset %d: the entry is "
            "ignored and all segments are kept. Check whether segment files are missing",
            *self._directory.rsplit("/", 1),
            self._log_start_offset,
            end_offset,
        )
        self._log_start_offset = 0

    def _warn_about_recovery_point(self, end_offset: int, consequence: str) -> None:
        logger.warning(
            "%s/recovery-point-offset-checkpoint says that %s is flushed up to offset %d, but it ends at offset %d: "
            "the entry is ignored and %s. Check whether segment files are missing",
            *self._directory.rsplit("/", 1),
            self._recovery_point,
            end_offset,
            consequence,
        )

    def _recover(self, segments: Segments, snapshots: ProducerSnapshots) -> int:
        if not len(segments):
            return self._log_start_offset
        recovery_point = self._recovery_point
        end_offset = self._recover_from(recovery_point, segments, snapshots)
        if end_offset < recovery_point:
            # The entry is wrong, or files are missing: which segments are flushed is unknown.
            self._recovery_point = recovery_point
            self._warn_about_recovery_point(end_offset, "every segment is checked")
            self._recovery_point = 0
            end_offset = self._recover_from(0, segments, snapshots)
        return end_offset

    def _recover_from(self, recovery_point: int, segments: Segments, snapshots: ProducerSnapshots) -> int:
        unflushed = segments.from_offset(recovery_point)
        end_offset = unflushed[0].base_offset
        load_producers(self._producers, snapshots, segments, end_offset)
        # The checkpoint may be older than a truncation; the batches from here on have the right epochs.
        self._epochs.truncate_from_end(end_offset)
        for index, segment in enumerate(unflushed):
            is_marked = segment.base_offset in self._unflushed_marks
            if index and segment.base_offset != end_offset and is_marked:
                if end_offset < self._flushed_offset:
                    raise DamagedLogError(segment.path, 0, end_offset, self._flushed_offset)
                # A power loss hit before the previous segment was on disk; or, if that one reaches beyond this one,
                # before its deletion was. Any other gap is legal: compaction leaves gaps, and they stay when
                # cleanup.policy changes.
                logger.warning(
                    "removing %d segments of %s from offset %d on: the log before them ends at offset %d",
                    len(unflushed) - index,
                    self._directory,
                    segment.base_offset,
                    end_offset,
                )
                self._remove(segments, unflushed[index:])
                break
            end_offset, cut = self._recover_segment(segment)
            if cut:
                logger.warning(
                    "cut %d bytes from the end of %s at position %d: %s",
                    cut,
                    segment.path,
                    segment.size,
                    "they were preallocated, or hold a torn batch"
                    if self._config.preallocate
                    else "the batch there is torn or damaged",
                )
                # The truncation is not synced yet, so the next flush must include this segment.
                self._recovery_point = min(self._recovery_point, segment.base_offset)
                following = unflushed[index + 1 :]
                if following and following[0].base_offset == end_offset:
                    continue  # the zeros of a preallocated file, whose truncation was not synced: nothing is missing
                self._remove(segments, following)
                break
        return end_offset

    def _recover_segment(self, segment: Segment) -> tuple[int, int]:
        """Returns the offset after the last valid batch, and the number of bytes that were cut off."""
        next_offset = segment.base_offset

        def observe(header: BatchHeader, data: memoryview) -> None:
            nonlocal next_offset
            next_offset = header.next_offset
            self._note_epoch(header)
            if header.producer_id >= 0:
                replay_batch(self._producers, header, data, segment.txn_index.append)

        cut = segment.recover(observe, self._flushed_offset)
        return next_offset, cut

    def _finish_producers(self, segments: Segments, snapshots: ProducerSnapshots, end_offset: int) -> None:
        snapshots.remove([offset for offset in snapshots.offsets if offset > end_offset])
        snapshots.remove_strays(segments.base_offsets)
        if self._clean_shutdown:
            load_producers(self._producers, snapshots, segments, end_offset)

    def _remove_outdated_marks(self, segments: Segments) -> None:
        """Keeps only the marks of segments that follow another one and begin beyond the recovery point."""
        followers = {base for base in segments.base_offsets[1:] if base > self._recovery_point}
        for base_offset in sorted(self._unflushed_marks - followers):
            self._disk.remove(segment_file(self._directory, base_offset, UNFLUSHED_SUFFIX))
        self._unflushed_marks &= followers

    def _remove(self, segments: Segments, removed: list[Segment]) -> None:
        segments.remove(removed)
        for segment in removed:
            for path in segment.mark_deleted():
                with contextlib.suppress(FileNotFoundError):
                    self._disk.remove(path)
