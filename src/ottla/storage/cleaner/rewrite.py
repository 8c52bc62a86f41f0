"""Runs a cleaning job: maps the keys of the dirty part, then writes one cleaned segment after the other.

It reads closed segments and writes `.cleaned` files, and does not touch any other file of the log. It does not sync:
the broker does that when it swaps a segment, while this process cleans the next one.
"""

import contextlib
from collections.abc import Iterator, Sequence

import numpy as np

from ottla.env.disk import Disk, File
from ottla.model.errors import ErrorCode, KafkaError
from ottla.storage.cleaner.batch_cleaner import BatchCleaner, CleaningRules, map_offsets
from ottla.storage.cleaner.batch_columns import ScannedBatches
from ottla.storage.cleaner.chunks import CHUNK_BYTES, Chunk, ChunkReader, Throttle
from ottla.storage.cleaner.cleaned_segment import CleanedSegment
from ottla.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningResult, SegmentToClean
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions
from ottla.storage.file_names import (
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    segment_file,
)
from ottla.storage.mapped_index import INT32_MAX
from ottla.storage.txn_index import AbortedTxn

# Batches that the first pass remembers, about 40 bytes each. The second pass reads the other segments whole.
_SCANNED_MAX = 400_000


def clean_log(job: CleaningJob, disk: Disk, throttle: Throttle) -> Iterator[CleanedGroup | CleaningResult]:
    """Yields the cleaned groups in the order of the log, in which they must be swapped in, and last the result.

    Raises KafkaError if the log cannot be cleaned, and OSError if the disk fails.
    """
    yield from _LogRewriter(job, disk, throttle).run()


class _LogRewriter:
    def __init__(self, job: CleaningJob, disk: Disk, throttle: Throttle) -> None:
        self._job = job
        self._disk = disk
        self._throttle = throttle
        self._reader = ChunkReader(max(job.io_bytes, CHUNK_BYTES), throttle)
        self._checked: set[SegmentToClean] = set()
        self._scanned: dict[SegmentToClean, list[ScannedBatches]] = {}
        self._scanned_count = 0
        self._bytes_read = self._bytes_written = self._records_read = self._records_kept = 0
        self._map = OffsetMap(
            job.dedupe_bytes, job.load_factor, job.first_uncleanable_offset - job.first_dirty_offset
        )

    def run(self) -> Iterator[CleanedGroup | CleaningResult]:
        job = self._job
        is_full = not self._fill_map()
        end_offset = self._map.latest_offset + 1
        if end_offset <= job.first_dirty_offset:
            raise KafkaError(
                ErrorCode.kafka_storage_error,
                f"{job.topic_partition}: the keys of one batch at offset {job.first_dirty_offset} do not fit into the "
                f"{self._map.entries_max} entries of the cleaner's offset map. Raise log.cleaner.dedupe.buffer.size or "
                "lower log.cleaner.threads",
            )
        segments = [segment for segment in job.segments if segment.base_offset < end_offset]
        transactions = CleanedTransactions(_aborted_from(job, segments[0].base_offset))
        rules = CleaningRules(
            job.first_dirty_offset,
            job.now_ms,
            job.config.delete_retention_ms,
            job.hash_seed,
            job.last_records,
        )
        cleaner = BatchCleaner(self._map, transactions, rules)
        for group in _group_segments(job, self._disk, segments):
            yield self._rewrite_group(group, cleaner, transactions)
        yield CleaningResult(
            clean_up_to=end_offset,
            keys=self._map.entries,
            map_is_full=is_full,
            records_read=self._records_read,
            records_kept=self._records_kept,
            bytes_read=self._bytes_read,
            bytes_written=self._bytes_written,
        )

    def _fill_map(self) -> bool:
        """Returns False if the map is full before the end of the dirty part."""
        job = self._job
        dirty = [
            segment
            for segment, following in zip(job.segments, [*job.segments[1:], None], strict=True)
            if following is None or following.base_offset > job.first_dirty_offset
        ]
        transactions = CleanedTransactions(_aborted_from(job, dirty[0].base_offset))
        for segment in dirty:
            file = self._disk.open(segment_file(job.directory, segment.base_offset, LOG_SUFFIX))
            for chunk in self._reader.read(file, segment.size):
                if not map_offsets(self._map, chunk, job.first_dirty_offset, transactions, job.hash_seed):
                    self._scanned.pop(segment, None)
                    return False
                self._remember_batches(segment, chunk)
            file.close()
            self._checked.add(segment)
        self._map.latest_offset = max(self._map.latest_offset, job.first_uncleanable_offset - 1)
        return True

    def _remember_batches(self, segment: SegmentToClean, chunk: Chunk) -> None:
        """Only for segments that are dirty from their start, and for all batches of a segment or none."""
        self._scanned_count += len(chunk.batches)
        if self._scanned_count > _SCANNED_MAX:
            self._scanned.pop(segment, None)
        elif segment.base_offset >= self._job.first_dirty_offset:
            scanned = ScannedBatches.of_buffer(chunk.batches, chunk.position)
            self._scanned.setdefault(segment, []).append(scanned)

    def _chunks(
        self, segment: SegmentToClean, file: File, cleaner: BatchCleaner, *, is_end: bool
    ) -> Iterator[Chunk]:
        """The batches of the segment that may survive, and its last batch if `is_end`."""
        parts = self._scanned.pop(segment, None)
        if parts is None:
            yield from self._reader.read(file, segment.size, is_checked=segment in self._checked)
            return
        scanned = ScannedBatches.concatenate(parts)
        assert int((scanned.ends - scanned.positions).sum()) == segment.size, "batches would be lost"
        may_survive = cleaner.may_survive(scanned)
        may_survive[-1] |= is_end
        self._records_read += int(scanned.records_counts[~may_survive].sum())
        yield from self._reader.read_again(file, scanned, np.flatnonzero(may_survive))

    def _rewrite_group(
        self, group: Sequence[SegmentToClean], cleaner: BatchCleaner, transactions: CleanedTransactions
    ) -> CleanedGroup:
        job, disk = self._job, self._disk
        base_offset = group[0].base_offset
        with_batches = [segment for segment in group if segment.size]
        last = max(with_batches, key=lambda segment: segment.base_offset, default=group[0])
        cleaned = CleanedSegment(disk, job.directory, base_offset, job.config)
        bytes_before = sum(segment.size for segment in group)
        is_changed = len(group) > 1
        for segment in group:
            file = disk.open(segment_file(job.directory, segment.base_offset, LOG_SUFFIX))
            is_end = segment is last
            for chunk in self._chunks(segment, file, cleaner, is_end=is_end):
                output = cleaner.clean(chunk, is_end=chunk.is_last and is_end)
                self._throttle(output.size)
                if output.size:
                    cleaned.append(output.sizes, output.last_offsets, output.max_timestamps, output.buffers)
                is_changed |= output.is_changed
                self._records_read += output.records_read
                self._records_kept += output.records_kept
            self._bytes_read += segment.size
            file.close()
        for txn in transactions.kept:
            cleaned.append_aborted(txn)
        transactions.kept.clear()
        self._bytes_written += cleaned.size
        cleaned.finish()
        is_changed |= cleaned.size < bytes_before
        if not is_changed:
            cleaned.remove()
        return CleanedGroup(
            base_offset,
            tuple(segment.base_offset for segment in group),
            cleaned.size,
            bytes_before,
            is_changed,
        )


def _aborted_from(job: CleaningJob, from_offset: int) -> Iterator[AbortedTxn]:
    """The aborted transactions that end at or after `from_offset`."""
    return (txn for txn in job.aborted if txn.last_offset >= from_offset)


def _group_segments(
    job: CleaningJob, disk: Disk, segments: Sequence[SegmentToClean]
) -> list[list[SegmentToClean]]:
    """Groups adjacent segments that fit into one segment by their size, their indexes and their offsets."""
    groups: list[list[SegmentToClean]] = []
    size = index_bytes = time_index_bytes = 0
    ends = [*(segment.base_offset for segment in segments[1:]), job.first_uncleanable_offset]
    for segment, end_offset in zip(segments, ends, strict=True):
        own_index = _file_size(disk, job.directory, segment, OFFSET_INDEX_SUFFIX)
        own_time_index = _file_size(disk, job.directory, segment, TIME_INDEX_SUFFIX)
        if (
            groups
            and size + segment.size <= job.config.segment_bytes
            and index_bytes + own_index <= job.config.max_index_bytes
            and time_index_bytes + own_time_index <= job.config.max_index_bytes
            and end_offset - 1 - groups[-1][0].base_offset <= INT32_MAX
        ):
            groups[-1].append(segment)
            size, index_bytes = size + segment.size, index_bytes + own_index
            time_index_bytes += own_time_index
        else:
            groups.append([segment])
            size, index_bytes, time_index_bytes = segment.size, own_index, own_time_index
    return groups


def _file_size(disk: Disk, directory: str, segment: SegmentToClean, suffix: str) -> int:
    with contextlib.suppress(FileNotFoundError):
        return disk.file_size(segment_file(directory, segment.base_offset, suffix))
    return 0
