"""Which batches and records survive: the rules of compaction, on chunks of batches, without a file in sight."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ottla.records.columns import Ints, Mask, RecordColumns
from ottla.records.header import CONTROL_MASK, DELETE_HORIZON_MASK, BatchHeader, Bytes
from ottla.records.markers import control_type
from ottla.records.records import iter_records
from ottla.storage.cleaner.batches import BatchColumns
from ottla.storage.cleaner.changes import Changes, CleanedBatches
from ottla.storage.cleaner.chunks import Chunk
from ottla.storage.cleaner.job import LastRecord
from ottla.storage.cleaner.key_hash import hash_keys
from ottla.storage.cleaner.known_batches import KnownBatches
from ottla.storage.cleaner.look import Look, look_into
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.rebuild import batch_with_horizon, empty_batch
from ottla.storage.cleaner.shorten import shorten
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
    """Takes in the keys of a dirty chunk. False where the map is full: what follows `latest_offset` stays dirty."""
    batches = chunk.batches
    is_wanted = (batches.attributes & CONTROL_MASK == 0) & (batches.last_offsets >= start_offset)
    for index in batches.of_transactions():
        header = batches.header(index)
        if header.is_control:
            transactions.may_lose_marker(header, _control_type(chunk, index))
        elif transactions.is_aborted(header):
            is_wanted[index] = False
    for look in look_into(chunk, np.flatnonzero(is_wanted)):
        columns = look.columns
        rows = np.flatnonzero((columns.key_lengths >= 0) & (columns.offsets >= start_offset))
        positions, lengths, offsets = columns.key_positions, columns.key_lengths, columns.offsets
        if len(rows) < columns.records:
            positions, lengths, offsets = positions[rows], lengths[rows], offsets[rows]
        taken = offset_map.put(*hash_keys(look.buffer, positions, lengths, hash_seed), offsets)
        if taken < len(rows):
            batch = look.batches[np.searchsorted(columns.first_of_batch, rows[taken], side="right") - 1]
            offset_map.latest_offset = max(offset_map.latest_offset, int(batches.base_offsets[batch]) - 1)
            return False
    offset_map.latest_offset = max(offset_map.latest_offset, int(batches.last_offsets[-1]))
    return True


class BatchCleaner:
    """Is to be given the chunks of a log in their order."""

    def __init__(
        self, offset_map: OffsetMap, transactions: CleanedTransactions, rules: CleaningRules
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._rules = rules
        last_offsets = {last.last_data_offset for last in rules.last_records.values()}
        self._producers_last = np.array(sorted(last_offsets), np.int64)

    def clean(self, chunk: Chunk, *, is_end: bool = False) -> CleanedBatches:
        """`is_end`: the cleaned segment ends with this chunk, whose last batch is kept then, if need be empty.

        So a log keeps its end (as in Kafka), and a start that finds the segment half swapped in knows what it replaces.
        """
        batches, changes = chunk.batches, Changes(chunk)
        is_data = batches.attributes & CONTROL_MASK == 0
        changes.drop(is_data & (batches.records_counts == 0))
        is_wanted = is_data & (batches.records_counts > 0) & (batches.base_offsets <= self._map.latest_offset)
        for index in batches.of_transactions():
            header = batches.header(index)
            if header.is_control:
                self._clean_marker(chunk, index, header, changes)
            elif self._transactions.is_aborted(header):
                changes.drop(index)
                is_wanted[index] = False
        is_dirty = int(batches.base_offsets[0]) >= self._rules.first_dirty_offset
        if is_dirty:
            is_superseded = is_wanted & ~self._has_survivors(batches)
            changes.drop(is_superseded)
            is_wanted &= ~is_superseded
        for look in look_into(chunk, np.flatnonzero(is_wanted)):
            self._clean_records(chunk, look, changes, is_dirty=is_dirty)
        self._keep_for_the_header(chunk, changes, is_end=is_end)
        return changes.output()

    def may_stay(self, batches: KnownBatches) -> Mask:
        """Of a dirty segment: False for what is superseded, which `clean` need not be given then."""
        is_over = batches.is_plain & (batches.last_offsets <= self._map.latest_offset)
        is_over &= ~self._has_survivors(batches)
        is_over &= ~np.isin(batches.last_offsets, self._producers_last)
        return ~is_over

    def _has_survivors(self, batches: BatchColumns | KnownBatches) -> Mask:
        """Of dirty batches, whose records are all in the map."""
        survivors = self._map.survivors()
        found: Mask = np.searchsorted(survivors, batches.base_offsets) < np.searchsorted(
            survivors, batches.last_offsets, side="right"
        )
        return found

    def _keep_for_the_header(self, chunk: Chunk, changes: Changes, *, is_end: bool) -> None:
        batches = chunk.batches
        is_last = np.isin(batches.last_offsets, self._producers_last) | (
            batches.attributes & CONTROL_MASK != 0
        )
        is_last[-1] |= is_end
        for index in np.flatnonzero(is_last & changes.is_gone()).tolist():
            header = batches.header(index)
            if self._is_last_of_producer(header) or (is_end and index == len(batches) - 1):
                if header.records_count:
                    changes.rebuild(index, empty_batch(header))
                else:
                    changes.keep(index)

    def _clean_marker(self, chunk: Chunk, index: int, header: BatchHeader, changes: Changes) -> None:
        """A marker whose transaction is gone gets a horizon, and goes once that has passed."""
        kind = _control_type(chunk, index)
        if not self._transactions.may_lose_marker(header, kind):
            return
        if kind is None or (header.has_delete_horizon and header.base_timestamp <= self._rules.now_ms):
            changes.drop(index)
        elif not header.has_delete_horizon:
            (look,) = look_into(chunk, np.array([index]))
            changes.rebuild(index, self._with_horizon(look, header, slice(0, look.columns.records)))

    def _with_horizon(self, look: Look, header: BatchHeader, rows: slice | Ints) -> list[Bytes]:
        bodies, ends = look.columns.bodies[rows], look.columns.ends[rows]
        return batch_with_horizon(
            header,
            look.buffer.data,
            list(zip(bodies.tolist(), ends.tolist(), strict=True)),
            header.base_timestamp + int(look.buffer.timestamp_deltas(bodies).max()),
            self._rules.now_ms + self._rules.delete_retention_ms,
        )

    def _clean_records(self, chunk: Chunk, look: Look, changes: Changes, *, is_dirty: bool) -> None:
        columns, first = look.columns, look.columns.first_of_batch
        is_kept = self._newest(columns) if is_dirty else self._not_older(look)
        tombstones = look.buffer.is_tombstone(columns)
        has_horizon = chunk.batches.attributes[look.batches] & DELETE_HORIZON_MASK != 0
        if bool(has_horizon.any()):
            is_over = has_horizon & (
                chunk.batches.headers["base_timestamp"][look.batches] <= self._rules.now_ms
            )
            is_kept &= ~(tombstones & np.repeat(is_over, np.diff(first)))
        if int(columns.offsets[-1]) > self._map.latest_offset:
            # What the map had no room for is dirty: it stays whatever it is.
            is_kept |= columns.offsets > self._map.latest_offset
        counts = np.add.reduceat(is_kept, first[:-1], dtype=np.int64)
        changes.drop(look.batches[counts == 0])
        needs_horizon = np.logical_or.reduceat(is_kept & tombstones, first[:-1]) & ~has_horizon
        for at in np.flatnonzero(needs_horizon).tolist():
            index = int(look.batches[at])
            rows = first[at] + np.flatnonzero(is_kept[first[at] : first[at + 1]])
            changes.rebuild(index, self._with_horizon(look, chunk.batches.header(index), rows))
        is_partial = (counts > 0) & (counts < np.diff(first)) & ~needs_horizon
        if bool(is_partial.any()):
            rows = np.flatnonzero(is_kept & np.repeat(is_partial, np.diff(first)))
            shorten(chunk, look, look.batches[is_partial], counts[is_partial], rows, changes)

    def _newest(self, columns: RecordColumns) -> Mask:
        """Of records that are all in the map: those that are the last of their key."""
        survivors, offsets = self._map.survivors(), columns.offsets
        begin, end = (
            np.searchsorted(survivors, offsets[0]),
            np.searchsorted(survivors, offsets[-1], side="right"),
        )
        some = survivors[begin:end]
        rows = np.searchsorted(offsets, some)
        is_newest = np.zeros(columns.records, np.bool_)
        is_newest[rows[offsets[rows] == some]] = True
        return is_newest

    def _not_older(self, look: Look) -> Mask:
        """Of records before those in the map: those whose key has no later one."""
        columns = look.columns
        rows = np.flatnonzero(columns.key_lengths >= 0)
        first, second = hash_keys(
            look.buffer, columns.key_positions[rows], columns.key_lengths[rows], self._rules.hash_seed
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
