"""A segment that compaction writes. Nobody reads it before the swap."""

from collections.abc import Sequence

from ottla.env.disk import Bytes, Disk
from ottla.records.columns import Ints
from ottla.storage.cleaner.index_entries import IndexEntries, PlacedBatches
from ottla.storage.file_names import (
    CLEANED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.txn_index import AbortedTxn, TxnIndex


class CleanedSegment:
    """The names of its files end with `.cleaned`. Files of these names that a failure left are emptied."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, config: LogConfig) -> None:
        self.size = 0
        self._disk = disk
        self._log, self._offset_index, self._time_index, txn_index = (
            segment_file(directory, base_offset, suffix + CLEANED_SUFFIX)
            for suffix in (LOG_SUFFIX, OFFSET_INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
        )
        self._txn_index = TxnIndex(disk, txn_index, base_offset)
        self._txn_index.clear()
        self._entries = IndexEntries(base_offset, config)
        self._file = disk.open(self._log, create=True)
        self._file.truncate(0)

    def append(self, sizes: Ints, last_offsets: Ints, max_timestamps: Ints, buffers: Sequence[Bytes]) -> None:
        """Appends one or more batches; `buffers` are the bytes of all of them."""
        self._file.write_at(self.size, buffers)
        ends = self.size + sizes.cumsum()
        self._entries.add(PlacedBatches(ends - sizes, last_offsets, max_timestamps))
        self.size = int(ends[-1])

    def append_aborted(self, aborted: AbortedTxn) -> None:
        self._txn_index.append(aborted)

    def finish(self) -> None:
        """Writes the indexes, even empty ones: Kafka takes a missing index for damage."""
        self._entries.seal()
        for path, entries in (
            (self._offset_index, self._entries.offset_index),
            (self._time_index, self._entries.time_index),
        ):
            file = self._disk.open(path, create=True)
            file.truncate(0)
            if entries:
                file.write_at(0, [entries])
            file.close()
        self._file.close()
        self._txn_index.close()

    def remove(self) -> None:
        """Removes the files of a finished segment that is not needed."""
        for path in (self._log, self._offset_index, self._time_index, self._txn_index.path):
            self._disk.remove(path)
