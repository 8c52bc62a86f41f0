"""The rules of compaction: which batches and records of a chunk are kept. No file is touched here."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ottla.records.columns import Ints, Mask, RecordColumns
from ottla.records.header import CONTROL_MASK, DELETE_HORIZON_MASK, BatchHeader, Bytes
from ottla.records.markers import control_type
from ottla.records.records import iter_records
from ottla.storage.cleaner.batch_builder import batch_with_horizon, empty_batch
from ottla.storage.cleaner.batch_columns import BatchColumns, ScannedBatches
from ottla.storage.cleaner.batch_records import BatchRecords, read_records
from ottla.storage.cleaner.chunk_changes import ChunkChanges, CleanedBatches
from ottla.storage.cleaner.chunks import Chunk
from ottla.storage.cleaner.job import LastRecord
from ottla.storage.cleaner.key_hash import hash_keys
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.transactions import CleanedTransactions


@dataclass(frozen=True, slots=True)
class CleaningRules:
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    hash_seed: int
    last_records: Mapping[int, LastRecord]  # by producer id


def map_offsets(
    offset_map: OffsetMap, chunk: Chunk, start_offset: int, transactions: CleanedTransactions, hash_seed: int
) -> bool:
    """Adds the keys of a dirty chunk to the map.

    Returns False if the map is full: records after its `latest_offset` stay dirty then.
    """
    batches = chunk.batches
    is_mapped = (batches.attributes & CONTROL_MASK == 0) & (batches.last_offsets >= start_offset)
    for index in batches.transactional():
        header = batches.header(index)
        if header.is_control:
            transactions.can_discard_marker(header, _control_type(chunk, index))
        elif transactions.is_aborted(header):
            is_mapped[index] = False
    for records in read_records(chunk, np.flatnonzero(is_mapped)):
        columns = records.columns
        rows = np.flatnonzero((columns.key_lengths >= 0) & (columns.offsets >= start_offset))
        positions, lengths, offsets = columns.key_positions, columns.key_lengths, columns.offsets
        if len(rows) < columns.records:
            positions, lengths, offsets = positions[rows], lengths[rows], offsets[rows]
        added = offset_map.put(*hash_keys(records.buffer, positions, lengths, hash_seed), offsets)
        if added < len(rows):
            batch = records.batches[np.searchsorted(columns.first_of_batch, rows[added], side="right") - 1]
            offset_map.latest_offset = max(offset_map.latest_offset, int(batches.base_offsets[batch]) - 1)
            return False
    offset_map.latest_offset = max(offset_map.latest_offset, int(batches.last_offsets[-1]))
    return True


class BatchCleaner:
    """Cleans the chunks of a log, which must come in the order of the log."""

    def __init__(
        self, offset_map: OffsetMap, transactions: CleanedTransactions, rules: CleaningRules
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._rules = rules
        last_offsets = {last.last_data_offset for last in rules.last_records.values()}
        self._last_data_offsets = np.array(sorted(last_offsets), np.int64)

    def clean(self, chunk: Chunk, *, is_end: bool = False) -> CleanedBatches:
        """`is_end`: the cleaned segment ends with this chunk. Its last batch is kept then, without records if need be.

        So a log keeps its end offset, as in Kafka, and after a crash during the swap the loader can read from the
        cleaned segment which segments it replaces.
        """
        batches, changes = chunk.batches, ChunkChanges(chunk)
        is_data = batches.attributes & CONTROL_MASK == 0
        changes.drop(is_data & (batches.records_counts == 0))
        is_examined = (
            is_data & (batches.records_counts > 0) & (batches.base_offsets <= self._map.latest_offset)
        )
        for index in batches.transactional():
            header = batches.header(index)
            if header.is_control:
                self._clean_marker(chunk, index, header, changes)
            elif self._transactions.is_aborted(header):
                changes.drop(index)
                is_examined[index] = False
        is_dirty = int(batches.base_offsets[0]) >= self._rules.first_dirty_offset
        if is_dirty:
            is_superseded = is_examined & ~self._has_survivors(batches)
            changes.drop(is_superseded)
            is_examined &= ~is_superseded
        for records in read_records(chunk, np.flatnonzero(is_examined)):
            self._clean_records(chunk, records, changes, is_dirty=is_dirty)
        self._keep_needed_headers(chunk, changes, is_end=is_end)
        return changes.output()

    def may_survive(self, batches: ScannedBatches) -> Mask:
        """For batches of a dirty segment: False if `clean` would drop the batch, so it need not be read again."""
        is_superseded = batches.is_plain & (batches.last_offsets <= self._map.latest_offset)
        is_superseded &= ~self._has_survivors(batches)
        is_superseded &= ~np.isin(batches.last_offsets, self._last_data_offsets)
        return ~is_superseded

    def _has_survivors(self, batches: BatchColumns | ScannedBatches) -> Mask:
        """Whether any record of a dirty batch is the newest of its key. The map has all keys of dirty batches."""
        survivors = self._map.surviving_offsets()
        found: Mask = np.searchsorted(survivors, batches.base_offsets) < np.searchsorted(
            survivors, batches.last_offsets, side="right"
        )
        return found

    def _keep_needed_headers(self, chunk: Chunk, changes: ChunkChanges, *, is_end: bool) -> None:
        """Keeps the last batch of each producer, for its sequence numbers, and the last batch of the segment."""
        batches = chunk.batches
        is_last = np.isin(batches.last_offsets, self._last_data_offsets) | (
            batches.attributes & CONTROL_MASK != 0
        )
        is_last[-1] |= is_end
        for index in np.flatnonzero(is_last & changes.is_dropped()).tolist():
            header = batches.header(index)
            if self._is_last_of_producer(header) or (is_end and index == len(batches) - 1):
                if header.records_count:
                    changes.rebuild(index, empty_batch(header))
                else:
                    changes.undo_drop(index)

    def _clean_marker(self, chunk: Chunk, index: int, header: BatchHeader, changes: ChunkChanges) -> None:
        """Gives a marker without remaining records a delete horizon, or drops it if its horizon has passed."""
        kind = _control_type(chunk, index)
        if not self._transactions.can_discard_marker(header, kind):
            return
        if kind is None or (header.has_delete_horizon and header.base_timestamp <= self._rules.now_ms):
            changes.drop(index)
        elif not header.has_delete_horizon:
            (records,) = read_records(chunk, np.array([index]))
            changes.rebuild(index, self._with_horizon(records, header, slice(0, records.columns.records)))

    def _with_horizon(self, records: BatchRecords, header: BatchHeader, rows: slice | Ints) -> list[Bytes]:
        bodies, ends = records.columns.bodies[rows], records.columns.ends[rows]
        return batch_with_horizon(
            header,
            records.buffer.data,
            list(zip(bodies.tolist(), ends.tolist(), strict=True)),
            header.base_timestamp + int(records.buffer.timestamp_deltas(bodies).max()),
            self._rules.now_ms + self._rules.delete_retention_ms,
        )

    def _clean_records(
        self, chunk: Chunk, records: BatchRecords, changes: ChunkChanges, *, is_dirty: bool
    ) -> None:
        columns, first = records.columns, records.columns.first_of_batch
        is_kept = self._is_newest_in_map(columns) if is_dirty else self._has_no_newer_in_map(records)
        tombstones = records.buffer.is_tombstone(columns)
        has_horizon = chunk.batches.attributes[records.batches] & DELETE_HORIZON_MASK != 0
        if bool(has_horizon.any()):
            has_expired = has_horizon & (
                chunk.batches.headers["base_timestamp"][records.batches] <= self._rules.now_ms
            )
            is_kept &= ~(tombstones & np.repeat(has_expired, np.diff(first)))
        if int(columns.offsets[-1]) > self._map.latest_offset:
            # The map had no room for these records. They stay dirty, so all of them are kept.
            is_kept |= columns.offsets > self._map.latest_offset
        counts = np.add.reduceat(is_kept, first[:-1], dtype=np.int64)
        changes.drop(records.batches[counts == 0])
        needs_horizon = np.logical_or.reduceat(is_kept & tombstones, first[:-1]) & ~has_horizon
        for at in np.flatnonzero(needs_horizon).tolist():
            index = int(records.batches[at])
            rows = first[at] + np.flatnonzero(is_kept[first[at] : first[at + 1]])
            changes.rebuild(index, self._with_horizon(records, chunk.batches.header(index), rows))
        is_partial = (counts > 0) & (counts < np.diff(first)) & ~needs_horizon
        if bool(is_partial.any()):
            rows = np.flatnonzero(is_kept & np.repeat(is_partial, np.diff(first)))
            changes.keep_records(records, records.batches[is_partial], counts[is_partial], rows)

    def _is_newest_in_map(self, columns: RecordColumns) -> Mask:
        """For records of the dirty part, which are all in the map: whether each is the newest of its key."""
        survivors, offsets = self._map.surviving_offsets(), columns.offsets
        begin, end = (
            np.searchsorted(survivors, offsets[0]),
            np.searchsorted(survivors, offsets[-1], side="right"),
        )
        candidates = survivors[begin:end]
        rows = np.searchsorted(offsets, candidates)
        is_newest = np.zeros(columns.records, np.bool_)
        is_newest[rows[offsets[rows] == candidates]] = True
        return is_newest

    def _has_no_newer_in_map(self, records: BatchRecords) -> Mask:
        """For records of the clean part: whether the map has no later offset for the key."""
        columns = records.columns
        rows = np.flatnonzero(columns.key_lengths >= 0)
        first, second = hash_keys(
            records.buffer, columns.key_positions[rows], columns.key_lengths[rows], self._rules.hash_seed
        )
        is_kept = np.zeros(columns.records, np.bool_)
        is_kept[rows] = columns.offsets[rows] >= self._map.get(first, second)
        return is_kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._rules.last_records.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _control_type(chunk: Chunk, index: int) -> int | None:
    record = next(iter_records(chunk.data, int(chunk.batches.positions[index])), None)
    return None if record is None else control_type(record)
