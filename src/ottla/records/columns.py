"""The records of many batches as columns: the position of each record, of its key and of its other fields.

For code that must read every record: compaction and the pipeline's reader. A Python loop reads about a million records
per second; here each numpy operation handles one field of thousands of records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ottla.model.errors import ErrorCode, KafkaError
from ottla.records.varint import read_varint

Ints = NDArray[np.int64]
Words = NDArray[np.uint64]
Mask = NDArray[np.bool_]

# Numbers are read as words of eight bytes at any position, so this many bytes must follow the last record.
PADDING = bytes(16)
# With fewer batches than this, stepping through them with numpy is slower than a plain loop.
_LANES_MIN = 24
# After _EQUAL_MIN records of the same size, look for a run of them. A run of up to _RUN_MIN was not worth the look.
_EQUAL_MIN, _RUN_MIN = 4, 64

_ONE = np.uint64(1)
_STOP_BITS = np.uint64(0x8080808080808080)
_SEVEN_BITS = np.uint64(0x7F7F7F7F7F7F7F7F)
_PAIRS, _PAIRS_HIGH = np.uint64(0x007F007F007F007F), np.uint64(0x7F007F007F007F00)
_QUADS, _QUADS_HIGH = np.uint64(0x00003FFF00003FFF), np.uint64(0x3FFF00003FFF0000)
_HALF, _HALF_HIGH = np.uint64(0x0FFFFFFF), np.uint64(0x0FFFFFFF00000000)
_TWO, _FOUR = np.uint64(2), np.uint64(4)
_NULL = 1  # the varint of -1
_LENGTH_MIN = 6  # attributes, two deltas, key and value lengths, header count: a byte each


def _table_of_sizes() -> Ints:
    """The size of a record by its first two bytes; -1 if its length takes more bytes or is negative."""
    pairs = np.arange(1 << 16)
    is_long = (pairs & 0x80) != 0
    values = np.where(is_long, (pairs & 0x7F) | ((pairs >> 8) << 7), pairs & 0x7F)
    unknown = (values & 1 != 0) | (is_long & (pairs >= 0x8000))
    return np.where(unknown, -1, (values >> 1) + 1 + is_long)


_SIZES = _table_of_sizes()


class BatchSpan(NamedTuple):
    """The decompressed records of one batch, between `start` and `end` of a buffer."""

    start: int
    end: int
    records_count: int
    base_offset: int
    last_offset_delta: int


class BatchSpans(NamedTuple):
    """`BatchSpan` of many batches, as columns."""

    starts: Ints
    ends: Ints
    records_counts: Ints
    base_offsets: Ints
    last_offset_deltas: Ints


class RecordColumns(NamedTuple):
    """One entry per record, in the order of the batches. Positions are in the buffer."""

    first_of_batch: Ints  # the index of the first record of each batch, and at the end the number of records
    starts: Ints
    ends: Ints
    bodies: Ints  # the position after the length, where the attributes are
    offsets: Ints
    key_positions: Ints
    key_lengths: Ints  # -1 for null

    @property
    def records(self) -> int:
        return len(self.starts)


class RecordBuffer:
    """A buffer of records, read as numpy arrays. `data` must end with `PADDING`."""

    def __init__(self, data: bytes | bytearray) -> None:
        self.data = data
        self.bytes = np.frombuffer(data, np.uint8)
        self.pairs: NDArray[np.uint16] = np.ndarray((len(data) - 1,), np.dtype("<u2"), data, strides=(1,))
        self.words: Words = np.ndarray((len(data) - 7,), np.dtype("<u8"), data, strides=(1,))

    def columns(self, batches: Sequence[BatchSpan]) -> RecordColumns:
        """Raises KafkaError(CORRUPT_MESSAGE) if the records do not match the batches. No batch may be empty."""
        return self.columns_at(BatchSpans(*np.array(batches, np.int64).T))

    def columns_at(self, spans: BatchSpans) -> RecordColumns:
        try:
            return self._columns(spans)
        except IndexError:
            raise _corrupt("a field reaches beyond its batch") from None

    def _columns(self, spans: BatchSpans) -> RecordColumns:
        first = np.zeros(len(spans.starts) + 1, np.int64)
        np.cumsum(spans.records_counts, out=first[1:])
        starts = self._walk(spans, first)
        bodies = self.bodies(starts)
        ends = np.empty_like(starts)
        ends[:-1] = starts[1:]
        ends[first[1:] - 1] = spans.ends
        offset_positions, key_length_positions = self._skip_timestamp_and_offset(bodies + 1)
        key_lengths, key_positions = self._key_lengths(key_length_positions)
        if bool(np.any(key_positions + np.maximum(key_lengths, 0) >= ends)):
            raise _corrupt("a key reaches beyond its record")
        offsets = self._offsets(spans, first, offset_positions)
        return RecordColumns(first, starts, ends, bodies, offsets, key_positions, key_lengths)

    def is_tombstone(self, columns: RecordColumns) -> Mask:
        value_lengths = self.bytes[columns.key_positions + np.maximum(columns.key_lengths, 0)]
        is_null: Mask = value_lengths == _NULL
        return is_null

    def timestamp_deltas(self, bodies: Ints) -> Ints:
        return self.varints(bodies + 1)[0]

    def fields(self, positions: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
        """The starts, lengths (-1 for null) and end positions of the fields at `positions`.

        Raises KafkaError(CORRUPT_MESSAGE) if a field reaches beyond the end of its record.
        """
        try:
            lengths, starts = self.varints(positions)
        except IndexError:
            raise _corrupt("a field reaches beyond its batch") from None
        behind = starts + np.maximum(lengths, 0)
        if bool(np.any((lengths < -1) | (behind > ends))):
            raise _corrupt("a field reaches beyond its record")
        return starts, lengths, behind

    # -- positions of records

    def _walk(self, spans: BatchSpans, first: Ints) -> Ints:
        """The start of each record. Each step advances all batches that have more records by one record."""
        starts = np.empty(int(first[-1]), np.int64)
        longest_first = np.argsort(-spans.records_counts, kind="stable")
        at, limits = spans.starts[longest_first], spans.ends[longest_first]
        slots, remaining = first[:-1][longest_first], spans.records_counts[longest_first].tolist()
        done, lanes = 0, len(remaining)
        while lanes >= _LANES_MIN:
            here = at[:lanes]
            starts[slots[:lanes]] = here
            here += self._record_sizes(here)
            slots[:lanes] += 1
            done += 1
            while lanes and remaining[lanes - 1] <= done:
                lanes -= 1
        for lane in range(lanes):
            slot, count = int(slots[lane]), remaining[lane] - done
            found, at[lane] = self.complete_records(int(at[lane]), count, int(limits[lane]))
            if len(found) < count:
                raise _corrupt("its records do not fill it")
            starts[slot : slot + count] = found
        if bool(np.any(at != limits)):
            raise _corrupt("its records do not fill it")
        return starts

    def _record_sizes(self, positions: Ints) -> Ints:
        """Including the length field. Most lengths have one or two bytes and are looked up in a table."""
        sizes: Ints = _SIZES[self.pairs[positions]]
        if int(sizes.min()) >= 0:
            return sizes
        lengths, behind = self.varints(positions)
        if bool(np.any(lengths < 0)):
            raise _corrupt("a record claims a length below zero")
        return behind - positions + lengths

    def complete_records(self, position: int, count: int, end: int) -> tuple[list[int], int]:
        """The starts of up to `count` complete records between `position` and `end`, and the end of the last one.

        Reads one record after the other, but takes a run of records of the same size in one step.
        """
        data = self.data
        starts: list[int] = []
        size_before, equal, equal_min = -1, 0, _EQUAL_MIN
        while len(starts) < count and position < end:
            byte = data[position]
            if byte < 0x80:
                length, body = (byte >> 1) ^ -(byte & 1), position + 1
            else:
                length, body = self._read_one(position)
            if body > end:  # the length itself is cut off
                break
            if length < _LENGTH_MIN:
                raise _corrupt(f"a record claims a length of {length}")
            size = body - position + length
            if position + size > end:
                break
            starts.append(position)
            position += size
            equal = equal + 1 if size == size_before else 0
            size_before = size
            if equal >= equal_min:
                run = self._run(position, size, min(count - len(starts), (end - position) // size))
                starts += run.tolist()
                position += size * len(run)
                equal, equal_min = 0, _EQUAL_MIN if len(run) > _RUN_MIN else 2 * equal_min
        return starts, position

    def _run(self, position: int, size: int, count: int) -> Ints:
        """The starts of consecutive records of `size` bytes from `position`; at most `count`."""
        starts = position + size * np.arange(count)
        differs = np.flatnonzero(_SIZES[self.pairs[starts]] != size)
        return starts[: differs[0]] if len(differs) else starts

    def bodies(self, starts: Ints) -> Ints:
        """The positions of the attributes, after the lengths, of the records at `starts`."""
        pairs = self.pairs[starts]
        if bool(np.any(_SIZES[pairs] < 0)):
            return self.varints(starts)[1]
        return starts + 1 + ((pairs >> 7) & 1)

    # -- fields

    def varints(self, positions: Ints) -> tuple[Ints, Ints]:
        """The varints at `positions` and the positions after them."""
        word = self.words[positions]
        stop = ~word & _STOP_BITS
        lowest = stop & (~stop + _ONE)
        upto = lowest | (lowest - _ONE)
        word &= upto & _SEVEN_BITS
        word = (word & _PAIRS) | ((word & _PAIRS_HIGH) >> _ONE)
        word = (word & _QUADS) | ((word & _QUADS_HIGH) >> _TWO)
        word = (word & _HALF) | ((word & _HALF_HIGH) >> _FOUR)
        values = (word >> _ONE).astype(np.int64) ^ -(word & _ONE).astype(np.int64)
        behind = positions + (np.bitwise_count(upto) >> 3)
        if not bool(np.all(stop)):
            self._read_long(positions, np.flatnonzero(stop == 0), values, behind)
        return values, behind

    def _read_long(self, positions: Ints, rows: Ints, values: Ints, behind: Ints) -> None:
        """Varints of nine or ten bytes do not fit a word. They are rare, so they are read one by one."""
        for row in rows.tolist():
            values[row], behind[row] = self._read_one(int(positions[row]))

    def _read_one(self, position: int) -> tuple[int, int]:
        try:
            return read_varint(self.data, position)
        except (IndexError, ValueError) as error:
            raise _corrupt(str(error)) from None

    def _skip_timestamp_and_offset(self, positions: Ints) -> tuple[Ints, Ints]:
        """The positions of the offset deltas and of the key lengths, without decoding the numbers before them."""
        stop = ~self.words[positions] & _STOP_BITS
        first = stop & (~stop + _ONE)
        stop ^= first
        second = stop & (~stop + _ONE)
        offsets = positions + (np.bitwise_count(first | (first - _ONE)) >> 3)
        keys = positions + (np.bitwise_count(second | (second - _ONE)) >> 3)
        if not bool(np.all(second)):
            rows = np.flatnonzero(second == 0)
            offsets[rows] = self.varints(positions[rows])[1]
            keys[rows] = self.varints(offsets[rows])[1]
        return offsets, keys

    def _key_lengths(self, positions: Ints) -> tuple[Ints, Ints]:
        short = self.bytes[positions].astype(np.int64)
        if bool(np.any(short >= 0x80)):
            return self.varints(positions)
        return (short >> 1) ^ -(short & 1), positions + 1

    def _offsets(self, spans: BatchSpans, first: Ints, positions: Ints) -> Ints:
        """In a batch without gaps, offsets count up from the base offset and need not be read."""
        bases, counts = spans.base_offsets, spans.records_counts
        offsets = np.arange(int(first[-1]), dtype=np.int64) + np.repeat(bases - first[:-1], counts)
        has_holes = counts != spans.last_offset_deltas + 1
        if bool(np.any(has_holes)):
            rows = np.flatnonzero(np.repeat(has_holes, counts))
            offsets[rows] = self.varints(positions[rows])[0] + np.repeat(bases, counts)[rows]
        return offsets


def _corrupt(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.corrupt_message, f"the records of a batch cannot be read: {reason}")
