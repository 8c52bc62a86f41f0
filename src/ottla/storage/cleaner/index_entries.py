"""The entries of a segment's two indexes, many batches at a time: what `ottla.storage.segment:Segment` does one by one.

A segment that is cleaned has its batches in columns. Its indexes are small and written once, when all is known.
"""

from bisect import bisect_right
from typing import NamedTuple

import numpy as np

from ottla.model.ids import NO_TIMESTAMP
from ottla.records.columns import Ints, Mask
from ottla.storage.log_config import LogConfig

_OFFSET_ENTRY = np.dtype([("offset", ">u4"), ("position", ">u4")])
_TIME_ENTRY = np.dtype([("timestamp", ">i8"), ("offset", ">u4")])


class PlacedBatches(NamedTuple):
    """Batches in the order of the log; positions are in the segment."""

    positions: Ints
    last_offsets: Ints
    max_timestamps: Ints


class IndexEntries:
    def __init__(self, base_offset: int, config: LogConfig) -> None:
        self.offset_index = bytearray()
        self.time_index = bytearray()
        self._base_offset = base_offset
        self._interval_bytes = config.index_interval_bytes
        self._offset_bytes_max = config.max_index_bytes
        # One slot stays free for the entry that seals the segment.
        self._time_bytes_max = config.max_index_bytes - _TIME_ENTRY.itemsize
        self._counted_from = 0  # the position of the batch that had the last entry
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._last_timestamp = NO_TIMESTAMP  # in the time index

    def add(self, batches: PlacedBatches) -> None:
        rows = self._rows_with_entry(batches.positions)
        timestamps, offsets = self._greatest(batches)
        is_later = np.diff(timestamps[rows], prepend=self._last_timestamp) > 0
        taken = self._room_for(is_later)
        rows, is_later = rows[:taken], is_later[:taken]
        entries = np.empty(len(rows), _OFFSET_ENTRY)
        entries["offset"] = batches.last_offsets[rows] - self._base_offset
        entries["position"] = batches.positions[rows]
        self.offset_index += entries.tobytes()
        self._add_times(timestamps[rows[is_later]], offsets[rows[is_later]])
        self._max_timestamp, self._max_timestamp_offset = int(timestamps[-1]), int(offsets[-1])

    def _room_for(self, is_later: Mask) -> int:
        """How many entries can be made, of which some are for both indexes: none once either of them is full."""
        room = (self._offset_bytes_max - len(self.offset_index)) // _OFFSET_ENTRY.itemsize
        time_room = (self._time_bytes_max - len(self.time_index)) // _TIME_ENTRY.itemsize
        if time_room <= 0:
            return 0
        return min(room, int(np.searchsorted(np.cumsum(is_later), time_room)) + 1)

    def seal(self) -> None:
        """The time index ends with the greatest timestamp."""
        if self._max_timestamp > self._last_timestamp:
            self._add_times(np.array([self._max_timestamp]), np.array([self._max_timestamp_offset]))

    def _add_times(self, timestamps: Ints, offsets: Ints) -> None:
        entries = np.empty(len(timestamps), _TIME_ENTRY)
        entries["timestamp"] = timestamps
        entries["offset"] = offsets - self._base_offset
        self.time_index += entries.tobytes()
        if len(timestamps):
            self._last_timestamp = int(timestamps[-1])

    def _rows_with_entry(self, positions: Ints) -> Ints:
        """Each the first batch behind more than `index.interval.bytes` since the one before."""
        found: list[int] = []
        places, row = positions.tolist(), 0
        while self._counted_from + self._interval_bytes < places[-1]:
            row = bisect_right(places, self._counted_from + self._interval_bytes, row)
            self._counted_from = places[row]
            found.append(row)
        return np.array(found, np.int64)

    def _greatest(self, batches: PlacedBatches) -> tuple[Ints, Ints]:
        """For each batch, the greatest timestamp up to it and the last offset of the first batch that has it."""
        timestamps = np.maximum.accumulate(np.maximum(batches.max_timestamps, self._max_timestamp))
        grows = np.diff(timestamps, prepend=self._max_timestamp) > 0
        since = np.maximum.accumulate(np.where(grows, np.arange(len(grows)), -1))
        offsets: Ints = np.where(since < 0, self._max_timestamp_offset, batches.last_offsets[since])
        return timestamps, offsets
