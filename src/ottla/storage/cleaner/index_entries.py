"""Computes the offset index and the time index of a cleaned segment, many batches at a time.

The entries are those that `ottla.storage.segment:Segment` would append batch by batch.
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
    """Batches in the order of the log. Positions are relative to the segment."""

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
        # One entry stays free for `seal`.
        self._time_bytes_max = config.max_index_bytes - _TIME_ENTRY.itemsize
        self._last_entry_position = 0  # of the batch with the last entry
        self._max_timestamp = NO_TIMESTAMP
        self._max_timestamp_offset = base_offset
        self._last_timestamp = NO_TIMESTAMP  # in the time index

    def add(self, batches: PlacedBatches) -> None:
        rows = self._rows_with_entry(batches.positions)
        timestamps, offsets = self._running_max(batches)
        is_later = np.diff(timestamps[rows], prepend=self._last_timestamp) > 0
        count = self._room_for(is_later)
        rows, is_later = rows[:count], is_later[:count]
        entries = np.empty(len(rows), _OFFSET_ENTRY)
        entries["offset"] = batches.last_offsets[rows] - self._base_offset
        entries["position"] = batches.positions[rows]
        self.offset_index += entries.tobytes()
        self._add_times(timestamps[rows[is_later]], offsets[rows[is_later]])
        self._max_timestamp, self._max_timestamp_offset = int(timestamps[-1]), int(offsets[-1])

    def _room_for(self, is_later: Mask) -> int:
        """How many of the entries fit. As in `Segment`, neither index grows once one of them is full."""
        room = (self._offset_bytes_max - len(self.offset_index)) // _OFFSET_ENTRY.itemsize
        time_room = (self._time_bytes_max - len(self.time_index)) // _TIME_ENTRY.itemsize
        if time_room <= 0:
            return 0
        return min(room, int(np.searchsorted(np.cumsum(is_later), time_room)) + 1)

    def seal(self) -> None:
        """Makes the greatest timestamp the last entry of the time index."""
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
        """The batches that get an entry: the first one after more than `index.interval.bytes` since the last entry."""
        found: list[int] = []
        starts, row = positions.tolist(), 0
        while self._last_entry_position + self._interval_bytes < starts[-1]:
            row = bisect_right(starts, self._last_entry_position + self._interval_bytes, row)
            self._last_entry_position = starts[row]
            found.append(row)
        return np.array(found, np.int64)

    def _running_max(self, batches: PlacedBatches) -> tuple[Ints, Ints]:
        """For each batch: the greatest timestamp so far, and the last offset of the first batch with that timestamp."""
        timestamps = np.maximum.accumulate(np.maximum(batches.max_timestamps, self._max_timestamp))
        grows = np.diff(timestamps, prepend=self._max_timestamp) > 0
        since = np.maximum.accumulate(np.where(grows, np.arange(len(grows)), -1))
        offsets: Ints = np.where(since < 0, self._max_timestamp_offset, batches.last_offsets[since])
        return timestamps, offsets
