"""Which batches and records survive: the rules of compaction, on chunks of batches, without a file in sight."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from ottla.records.columns import PADDING, Mask, PlacedRecords, RecordBuffer, RecordColumns
from ottla.records.compression import NONE
from ottla.records.control import control_type
from ottla.records.header import HEADER_SIZE, BatchHeader, Bytes
from ottla.records.records import iter_records, unpacked_records
from ottla.storage.cleaner.chunks import Chunk, PlacedHeader
from ottla.storage.cleaner.job import LastRecord
from ottla.storage.cleaner.key_hash import hash_keys
from ottla.storage.cleaner.offset_map import OffsetMap
from ottla.storage.cleaner.rebuild import batch_of_records, batch_with_horizon, empty_batch
from ottla.storage.cleaner.transactions import CleanedTransactions

# Compressed batches are unpacked together up to this size.
_UNPACKED_BYTES = 16 << 20
# A column has eight bytes a record, and there are a dozen.
_RECORDS_TOGETHER = 250_000


@dataclass(frozen=True, slots=True)
class CleaningRules:
    now_ms: int
    delete_retention_ms: int
    hash_seed: int
    last_records: Mapping[int, LastRecord]  # by producer id


@dataclass(slots=True)
class CleanedBatches:
    """What is to be written for a chunk, in order."""

    headers: list[BatchHeader] = field(default_factory=list)
    buffers: list[Bytes] = field(default_factory=list)
    size: int = 0
    is_changed: bool = False
    records_read: int = 0
    records_kept: int = 0


class _Look(NamedTuple):
    """What looking into the records of some batches found; `batches` are indexes in the chunk."""

    batches: list[int]
    buffer: RecordBuffer
    columns: RecordColumns


def map_offsets(
    offset_map: OffsetMap, chunk: Chunk, start_offset: int, transactions: CleanedTransactions, hash_seed: int
) -> bool:
    """Takes in the keys of a dirty chunk. False where the map is full: what follows `latest_offset` stays dirty."""
    wanted = []
    for index, (position, header) in enumerate(chunk.batches):
        if header.is_control:
            transactions.may_lose_marker(header, _control_type(chunk, position))
        elif not transactions.is_aborted(header) and header.last_offset >= start_offset:
            wanted.append(index)
    for look in _look_into(chunk, wanted):
        columns = look.columns
        rows = np.flatnonzero((columns.key_lengths >= 0) & (columns.offsets >= start_offset))
        first, second = hash_keys(
            look.buffer, columns.key_positions[rows], columns.key_lengths[rows], hash_seed
        )
        taken = offset_map.put(first, second, columns.offsets[rows])
        if taken < len(rows):
            batch = int(np.searchsorted(columns.first_of_batch, rows[taken], side="right")) - 1
            left_out = chunk.batches[look.batches[batch]].header
            offset_map.latest_offset = max(offset_map.latest_offset, left_out.base_offset - 1)
            return False
    offset_map.latest_offset = max(offset_map.latest_offset, chunk.batches[-1].header.last_offset)
    return True


class BatchCleaner:
    def __init__(
        self, offset_map: OffsetMap, transactions: CleanedTransactions, rules: CleaningRules
    ) -> None:
        self._map = offset_map
        self._transactions = transactions
        self._rules = rules

    def clean(self, chunk: Chunk, *, is_end: bool = False) -> CleanedBatches:
        """`is_end`: the cleaned segment ends with this chunk, whose last batch is kept then, if need be empty.

        So a log keeps its end (as in Kafka), and a start that finds the segment half swapped in knows what it replaces.
        """
        output = CleanedBatches()
        replaced: dict[int, tuple[BatchHeader, list[Bytes]] | None] = {}
        wanted = []
        for index, (_, header) in enumerate(chunk.batches):
            output.records_read += header.records_count
            if header.is_control:
                self._clean_marker(chunk, index, replaced)
            elif self._transactions.is_aborted(header):
                replaced[index] = None
            elif header.base_offset <= self._map.latest_offset:
                wanted.append(index)
            if not header.records_count and not header.is_control:
                replaced[index] = None
        for look in _look_into(chunk, wanted):
            self._clean_records(chunk, look, replaced)
        self._keep_for_the_header(chunk, replaced, is_end)
        _write_out(chunk, replaced, output)
        return output

    def _keep_for_the_header(
        self, chunk: Chunk, replaced: dict[int, tuple[BatchHeader, list[Bytes]] | None], is_end: bool
    ) -> None:
        for index in [index for index, new in replaced.items() if new is None]:
            header = chunk.batches[index].header
            if self._is_last_of_producer(header) or (is_end and index == len(chunk.batches) - 1):
                if header.records_count:
                    replaced[index] = empty_batch(header)
                else:
                    del replaced[index]

    def _clean_marker(
        self, chunk: Chunk, index: int, replaced: dict[int, tuple[BatchHeader, list[Bytes]] | None]
    ) -> None:
        """A marker whose transaction is gone gets a horizon, and goes once that has passed."""
        position, header = chunk.batches[index]
        kind = _control_type(chunk, position)
        if not self._transactions.may_lose_marker(header, kind):
            return
        if kind is None or (header.has_delete_horizon and header.base_timestamp <= self._rules.now_ms):
            replaced[index] = None
        elif not header.has_delete_horizon:
            (look,) = _look_into(chunk, [index])
            everything = slice(0, look.columns.records)
            kept = np.ones(look.columns.records, np.bool_)
            replaced[index] = self._with_horizon(look, header, everything, kept)

    def _with_horizon(
        self, look: _Look, header: BatchHeader, rows: slice, kept: Mask
    ) -> tuple[BatchHeader, list[Bytes]]:
        bodies, ends = look.columns.bodies[rows][kept], look.columns.ends[rows][kept]
        return batch_with_horizon(
            header,
            look.buffer.data,
            list(zip(bodies.tolist(), ends.tolist(), strict=True)),
            header.base_timestamp + int(look.buffer.timestamp_deltas(bodies).max()),
            self._rules.now_ms + self._rules.delete_retention_ms,
        )

    def _clean_records(
        self, chunk: Chunk, look: _Look, replaced: dict[int, tuple[BatchHeader, list[Bytes]] | None]
    ) -> None:
        columns, headers = look.columns, [chunk.batches[index].header for index in look.batches]
        tombstones = look.buffer.is_tombstone(columns)
        kept = self._survivors(look, headers, tombstones)
        starts = columns.first_of_batch[:-1]
        counts = np.add.reduceat(kept.astype(np.int64), starts).tolist()
        with_tombstone = np.logical_or.reduceat(kept & tombstones, starts).tolist()
        partial: list[int] = []
        for at, header in enumerate(headers):
            if not counts[at]:
                replaced[look.batches[at]] = None
            elif with_tombstone[at] and not header.has_delete_horizon:
                rows = slice(int(starts[at]), int(columns.first_of_batch[at + 1]))
                replaced[look.batches[at]] = self._with_horizon(look, header, rows, kept[rows])
            elif counts[at] < header.records_count:
                partial.append(at)
        if partial:
            for at, spans, youngest in _partly_kept(look, kept, partial):
                header = headers[at]
                replaced[look.batches[at]] = batch_of_records(
                    header, look.buffer.data, spans, counts[at], header.base_timestamp + youngest
                )

    def _survivors(self, look: _Look, headers: list[BatchHeader], tombstones: Mask) -> Mask:
        columns, now_ms = look.columns, self._rules.now_ms
        has_key = columns.key_lengths >= 0
        kept = np.zeros(columns.records, np.bool_)
        rows = np.flatnonzero(has_key)
        first, second = hash_keys(
            look.buffer, columns.key_positions[rows], columns.key_lengths[rows], self._rules.hash_seed
        )
        kept[rows] = columns.offsets[rows] >= self._map.get(first, second)
        if bool(tombstones.any()):
            is_over = [header.has_delete_horizon and header.base_timestamp <= now_ms for header in headers]
            kept &= ~(tombstones & np.repeat(is_over, np.diff(columns.first_of_batch)))
        # What the map had no room for is dirty: it stays whatever it is.
        kept |= columns.offsets > self._map.latest_offset
        return kept

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._rules.last_records.get(header.producer_id)
        if last is None or header.producer_id < 0:
            return False
        if last.last_data_offset >= 0:
            return header.last_offset == last.last_data_offset
        return header.is_control and header.producer_epoch == last.producer_epoch


def _partly_kept(
    look: _Look, kept: Mask, batches: list[int]
) -> Iterator[tuple[int, list[tuple[int, int]], int]]:
    """For each of these batches its stretches of records that stay, and the greatest timestamp delta in them."""
    columns = look.columns
    bounds = columns.first_of_batch
    before, behind = np.empty_like(kept), np.empty_like(kept)
    before[1:], behind[:-1] = kept[:-1], kept[1:]
    before[bounds[:-1]] = behind[bounds[1:] - 1] = False
    begin, end = np.flatnonzero(kept & ~before), np.flatnonzero(kept & ~behind)
    first_run = np.searchsorted(begin, bounds).tolist()
    spans = list(zip(columns.starts[begin].tolist(), columns.ends[end].tolist(), strict=True))
    deltas = np.full(columns.records, np.iinfo(np.int64).min)
    deltas[kept] = look.buffer.timestamp_deltas(columns.bodies[kept])
    youngest = np.maximum.reduceat(deltas, bounds[:-1]).tolist()
    for at in batches:
        yield at, spans[first_run[at] : first_run[at + 1]], youngest[at]


def _look_into(chunk: Chunk, indexes: Iterable[int]) -> Iterator[_Look]:
    """The records of these batches in the order of the log, of as many of them together as memory allows."""
    plain: list[int] = []
    packed: list[int] = []
    for index in indexes:
        header = chunk.batches[index].header
        if header.records_count > 0:
            (plain if header.compression == NONE else packed).append(index)
    if packed:
        yield from _look_into_packed(chunk, sorted(plain + packed))
        return
    buffer = RecordBuffer(chunk.data)
    while plain:
        some, plain = _some(chunk, plain)
        placed = [
            _placed(chunk.batches[index], chunk.batches[index].position + HEADER_SIZE) for index in some
        ]
        yield _Look(some, buffer, buffer.columns(placed))


def _some(chunk: Chunk, indexes: list[int]) -> tuple[list[int], list[int]]:
    """As many batches as may be looked into together, and the rest."""
    records = 0
    for at, index in enumerate(indexes):
        records += chunk.batches[index].header.records_count
        if records > _RECORDS_TOGETHER and at:
            return indexes[:at], indexes[at:]
    return indexes, []


def _look_into_packed(chunk: Chunk, indexes: list[int]) -> Iterator[_Look]:
    """In the order of the log: a full map must know what comes before and what after."""
    pieces: list[bytes] = []
    placed: list[PlacedRecords] = []
    size, done = 0, 0
    for at, index in enumerate(indexes):
        position, header = chunk.batches[index]
        data = unpacked_records(chunk.data, position, header)
        placed.append(
            PlacedRecords(
                size, size + len(data), header.records_count, header.base_offset, header.last_offset_delta
            )
        )
        pieces.append(data)
        size += len(data)
        if size >= _UNPACKED_BYTES or at + 1 == len(indexes):
            buffer = RecordBuffer(b"".join([*pieces, PADDING]))
            yield _Look(indexes[done : at + 1], buffer, buffer.columns(placed))
            pieces, placed, size, done = [], [], 0, at + 1


def _placed(batch: PlacedHeader, start: int) -> PlacedRecords:
    header = batch.header
    return PlacedRecords(
        start,
        batch.position + header.size,
        header.records_count,
        header.base_offset,
        header.last_offset_delta,
    )


def _control_type(chunk: Chunk, position: int) -> int | None:
    record = next(iter_records(chunk.data, position), None)
    return None if record is None else control_type(record)


def _write_out(
    chunk: Chunk, replaced: Mapping[int, tuple[BatchHeader, list[Bytes]] | None], output: CleanedBatches
) -> None:
    """Batches that stay as they are go out in stretches, uncopied."""
    view = memoryview(chunk.data)
    run_start = run_end = -1
    for index, (position, header) in enumerate(chunk.batches):
        if index not in replaced:
            if position != run_end:
                if run_end > run_start:
                    output.buffers.append(view[run_start:run_end])
                run_start = position
            run_end = position + header.size
            output.headers.append(header)
            continue
        new = replaced[index]
        output.is_changed = True
        if new is not None:
            if run_end > run_start:
                output.buffers.append(view[run_start:run_end])
            run_start = run_end = -1
            output.headers.append(new[0])
            output.buffers += new[1]
    if run_end > run_start:
        output.buffers.append(view[run_start:run_end])
    output.size = sum(header.size for header in output.headers)
    output.records_kept = sum(header.records_count for header in output.headers)
