"""One segment of a log: a file of batches and its indexes.

The log file and the indexes are opened on first use, so a broker with thousands of idle partitions has no descriptors
open for them.
"""

import contextlib
import logging
import threading
import zlib
from collections.abc import Callable, Sequence

from ottla.env.disk import Bytes, Disk, File
from ottla.model.ids import NO_TIMESTAMP
from ottla.records.header import HEADER_SIZE, LOG_OVERHEAD, BatchHeader, read_header
from ottla.storage.batch_scan import (
    PlacedBatch,
    find_batch,
    iter_headers,
    iter_valid_batches,
    read_whole_batch,
)
from ottla.storage.damaged_log import DamagedLogError
from ottla.storage.file_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    OFFSET_INDEX_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    segment_file,
)
from ottla.storage.log_config import LogConfig
from ottla.storage.mapped_index import INT32_MAX, CorruptIndexError
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.time_index import TimeIndex
from ottla.storage.timestamp_search import TimestampSearch, search_from_timestamp, search_max_timestamp
from ottla.storage.txn_index import TxnIndex

logger = logging.getLogger("ottla.storage")

_UNKNOWN = -2  # a timestamp that was not read yet

BatchObserver = Callable[[BatchHeader, memoryview], None]


class Segment:
    def __init__(
        self,
        disk: Disk,
        directory: str,
        base_offset: int,
        config: LogConfig,
        *,
        size: int,
        now_ms: int,
    ) -> None:
        self.base_offset = base_offset
        self.size = size
        self.path = segment_file(directory, base_offset, LOG_SUFFIX)
        self.created_ms = now_ms
        self._disk = disk
        self._directory = directory
        self._interval_bytes = config.index_interval_bytes
        self._jitter_ms = _jitter_ms(directory, base_offset, config)
        self._file: File | None = None
        self.is_modified = False  # since the log was opened
        self._is_torn = False  # bytes of a failed write may follow `size`
        self._is_preallocated = False  # zeros follow `size`
        self._indexes_checked = False
        # Held by a thread that rebuilds the indexes; reentrant, because it uses them itself.
        self._preparing = threading.RLock()
        self._offset_index = OffsetIndex(
            disk,
            segment_file(directory, base_offset, OFFSET_INDEX_SUFFIX),
            base_offset,
            config.max_index_bytes,
        )
        self._time_index = TimeIndex(
            disk,
            segment_file(directory, base_offset, TIME_INDEX_SUFFIX),
            base_offset,
            config.max_index_bytes,
        )
        self.txn_index = TxnIndex(disk, segment_file(directory, base_offset, TXN_INDEX_SUFFIX), base_offset)
        self._bytes_since_index = 0
        self._first_timestamp = _UNKNOWN
        self._max_timestamp = _UNKNOWN
        self._max_timestamp_offset = base_offset

    @classmethod
    def create(
        cls, disk: Disk, directory: str, base_offset: int, config: LogConfig, now_ms: int
    ) -> "Segment":
        """Creates an empty segment. Files of the same name that a failure left are truncated."""
        segment = cls(disk, directory, base_offset, config, size=0, now_ms=now_ms)
        try:
            segment._file = disk.open(segment.path, create=True)
            segment._file.truncate(0)
            segment._offset_index.create()
            segment._time_index.create()
            segment.txn_index.clear()
            if config.preallocate:
                segment._preallocate(config.segment_bytes)
        except OSError:
            segment.discard()
            raise
        segment._indexes_checked = True
        segment.is_modified = True
        segment._max_timestamp = NO_TIMESTAMP
        return segment

    def discard(self) -> None:
        """Removes an empty segment after a failed roll; the next start would take it for the end of the log."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(OSError):
                self._disk.remove(segment_file(self._directory, self.base_offset, suffix))

    def _preallocate(self, size: int) -> None:
        """Extends the file to its full length. `seal` truncates it to its real size."""
        self.file.truncate(size)
        self._is_preallocated = True

    def __repr__(self) -> str:
        return f"Segment({self.path}, {self.size} bytes)"

    @property
    def file(self) -> File:
        if self._file is None:
            self._file = self._disk.open(self.path)
        return self._file

    @property
    def offset_index(self) -> OffsetIndex:
        if not self._indexes_checked:
            self.prepare()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if not self._indexes_checked:
            self.prepare()
        return self._time_index

    @property
    def max_timestamp(self) -> int:
        """-1 if no record has a timestamp."""
        return self.max_timestamp_and_offset[0]

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """The greatest timestamp, and the last offset of its batch."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp, self._max_timestamp_offset

    @property
    def largest_timestamp(self) -> int:
        """The timestamp for retention: the greatest of the records, or the time of the last write if they have none."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path)

    def is_older_than(self, oldest_ms: int) -> bool:
        """For retention. Also checks the last batches, because a damaged time index must not delete a segment."""
        if self.largest_timestamp >= oldest_ms:
            return False
        for _, header in iter_headers(self.file, self.offset_index.last_position, self.size):
            if header.max_timestamp >= oldest_ms:
                logger.warning(
                    "rebuilding the indexes of %s: it has later records than its time index", self.path
                )
                self.rebuild_indexes()
                return False
        return True

    # Appending

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether an append of `size` bytes with `max_timestamp` needs a new segment."""
        present = self.size
        if present > config.segment_bytes - size or last_offset - self.base_offset > INT32_MAX:
            return True
        if present:
            first = self._first_timestamp
            age_ms = max_timestamp - first if first >= 0 else self._age_ms(max_timestamp, now_ms)
            if age_ms > config.segment_ms - self._jitter_ms:
                return True
        # Full indexes matter only if this append would add an entry.
        if self._bytes_since_index <= self._interval_bytes and self._indexes_checked:
            return False
        return self.offset_index.is_full or self.time_index.is_full

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Bytes], size: int) -> None:
        """Writes the batches, `size` bytes, in one call. An OSError leaves the segment as it was."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        position = self.size
        if self._bytes_since_index + size - headers[-1].batch_length - LOG_OVERHEAD > self._interval_bytes:
            self._ensure_index_room(len(headers))
        if self._is_torn:
            self._truncate_to_size()
        try:
            (self._file or self.file).write_at(position, buffers)
        except OSError:
            self._is_torn = True
            with contextlib.suppress(OSError):
                self._truncate_to_size()
            raise
        self.is_modified = True
        if not position:
            self._first_timestamp = max(header.max_timestamp for header in headers)
        for header in headers:
            self._index_batch(header, position)
            position += header.batch_length + LOG_OVERHEAD
        self.size = position

    def seal(self) -> None:
        """Ends the appends: adds the last entry of the time index and truncates the files to their final size."""
        if self._is_torn or self._is_preallocated:
            self._truncate_to_size()
        self.txn_index.save()
        if self._max_timestamp >= 0:
            self._time_index.append_last(self._max_timestamp, self._max_timestamp_offset)
        self._offset_index.trim()
        self._time_index.trim()

    def _load_max_timestamp(self) -> None:
        # The last entry in the time index of a sealed segment is its greatest timestamp.
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry

    def _index_batch(self, header: BatchHeader, position: int) -> None:
        """Adds the batch at `position` to the indexes, which must have room for it."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._max_timestamp:
            self._max_timestamp = header.max_timestamp
            self._max_timestamp_offset = last_offset
        if self._bytes_since_index > self._interval_bytes:
            if not (self._offset_index.is_full or self._time_index.is_full):
                self._offset_index.append(last_offset, position)
                self._time_index.append_if_later(self._max_timestamp, self._max_timestamp_offset)
            self._bytes_since_index = 0
        self._bytes_since_index += header.batch_length + LOG_OVERHEAD

    def _ensure_index_room(self, entries: int) -> None:
        self._offset_index.ensure_room(entries)
        self._time_index.ensure_room(entries + 1)

    def _truncate_to_size(self) -> None:
        self.file.truncate(self.size)
        self._is_torn = self._is_preallocated = False

    def _age_ms(self, max_timestamp: int, now_ms: int) -> int:
        """The age of the segment, by the timestamps of its records if they have any."""
        if self._first_timestamp == _UNKNOWN:
            self._first_timestamp = read_header(self.file.read_at(0, HEADER_SIZE)).max_timestamp
        if self._first_timestamp >= 0:
            return max_timestamp - self._first_timestamp
        return now_ms - self.created_ms

    # Searching

    def find(self, offset: int) -> PlacedBatch | None:
        """The batch with `offset`, or the next one if compaction has removed it."""
        return find_batch(self.file, self.offset_index.position_for(offset), self.size, offset)

    def read_next_offset(self) -> int:
        """The offset after the last batch, found by a scan from the last index entry."""
        next_offset = self.base_offset
        if self.size:
            for _, header in iter_headers(self.file, self.offset_index.last_position, self.size):
                next_offset = header.next_offset
        return next_offset

    def search_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampSearch:
        """The search for the first record at or after `start_offset` with `timestamp` or a greater one."""
        offset = max(self.time_index.offset_for(timestamp), start_offset)
        return search_from_timestamp(
            self.file, self.offset_index.position_for(offset), self.size, timestamp, start_offset
        )

    def search_max_timestamp(self) -> TimestampSearch:
        """The search for the record with the greatest timestamp (KIP-734)."""
        timestamp, offset = self.max_timestamp_and_offset
        return search_max_timestamp(self.file, self.offset_index.position_for(offset), self.size, timestamp)

    # Recovery and truncation

    def recover(self, observe: BatchObserver, flushed_offset: int) -> int:
        """Checks every batch and rebuilds the indexes. Truncates the file at the first invalid batch.

        Returns the number of bytes that were cut off. `observe` gets every valid batch in order, to rebuild producers,
        epochs and aborted transactions. Raises DamagedLogError, and truncates nothing, if the invalid batch is below
        `flushed_offset`.
        """
        self._reset_indexes()
        self.txn_index.clear()
        valid, next_offset = 0, self.base_offset
        gap = range(0)  # the missing offsets right before the last valid batch
        for batch in iter_valid_batches(self.file, self.size, self.base_offset):
            if batch.header.last_offset - self.base_offset > INT32_MAX:
                break
            self._index_batch_with_room(batch.header, batch.position)
            observe(batch.header, batch.data)
            gap = range(next_offset, batch.header.base_offset)
            valid, next_offset = batch.position + batch.header.size, batch.header.next_offset
        cut = self.size - valid
        if cut:
            following = read_whole_batch(self.file, valid, self.size) if gap else None
            # No checksum covers the base offset. If the next batch fits into the gap before the last valid one, the
            # offset of that one is damaged and too high, and the next batch is not torn.
            if following is not None and following.header.base_offset in gap:
                next_offset = following.header.base_offset
            if next_offset < flushed_offset:
                raise DamagedLogError(self.path, valid, next_offset, flushed_offset)
            self.file.truncate(valid)
            self.size = valid
        self.seal()
        self._indexes_checked = True
        return cut

    def rebuild_indexes(self) -> None:
        """Rebuilds the offset index and the time index; `repair_txn_indexes` rebuilds the transaction index."""
        self._reset_indexes()
        for position, header in iter_headers(self.file, 0, self.size):
            self._index_batch_with_room(header, position)
        self.seal()
        self._indexes_checked = True

    def read_max_timestamp(self, offset: int, end_position: int) -> tuple[int, int]:
        """The greatest timestamp of the batches before `end_position`, all of which end before `offset`."""
        timestamp, last_offset = self.time_index.entry_before(offset)
        for _, header in iter_headers(self.file, self.offset_index.position_for(last_offset), end_position):
            if header.max_timestamp > timestamp:
                timestamp, last_offset = header.max_timestamp, header.last_offset
        return timestamp, last_offset

    def truncate_to(self, offset: int, max_timestamp: tuple[int, int]) -> None:
        """Removes the batch with `offset` and all later batches. The rest has `max_timestamp`."""
        self.truncation(offset, max_timestamp)()

    def truncation(self, offset: int, max_timestamp: tuple[int, int]) -> Callable[[], None]:
        """The work of `truncate_to`. What it needs is found and open already: file descriptors may run out."""
        found = self.find(offset) if self.size else None
        offset_index, time_index, file = self.offset_index, self.time_index, self.file
        truncate_txn_index = self.txn_index.truncation(offset)

        def truncate() -> None:
            offset_index.truncate_to(offset)
            time_index.truncate_to(offset)
            truncate_txn_index()
            if found is not None:
                file.truncate(found.position)
                self.size = found.position
            self.is_modified = True
            self._bytes_since_index = 0
            if not self.size:
                self._first_timestamp = _UNKNOWN
            self._max_timestamp, self._max_timestamp_offset = max_timestamp

        return truncate

    def prepare(self) -> None:
        """Loads the indexes, and rebuilds them if they are damaged. Can run in any thread; several may wait for one.

        Unless `is_prepared`, the first use of an index does it, which reads the whole segment if they are damaged.
        """
        with self._preparing:
            if not self._indexes_checked:
                self._check_indexes()

    @property
    def is_prepared(self) -> bool:
        return self._indexes_checked

    def _check_indexes(self) -> None:
        try:
            self._offset_index.load()
            if self._offset_index.last_position >= max(self.size, 1):
                raise CorruptIndexError(f"{self._offset_index.path} points beyond the end of {self.path}")
            self._time_index.load()
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("rebuilding the indexes of %s: %s", self.path, error)
            self.rebuild_indexes()
        self._indexes_checked = True

    def _reset_indexes(self) -> None:
        self._offset_index.clear()
        self._time_index.clear()
        self._indexes_checked = False  # until the caller has filled them
        self.is_modified = True
        self._bytes_since_index = 0
        self._first_timestamp = _UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset

    def _index_batch_with_room(self, header: BatchHeader, position: int) -> None:
        if self._bytes_since_index > self._interval_bytes:
            self._ensure_index_room(1)
        self._index_batch(header, position)

    # Closing and deleting

    def paths(self) -> list[str]:
        """All files of the segment."""
        return [self.path, self._offset_index.path, self._time_index.path, self.txn_index.path]

    def index_paths(self) -> list[str]:
        """The index files to sync. An empty one needs no sync: it is rebuilt if a power loss damages it."""
        indexes = (self.offset_index, self.time_index)
        paths = [index.path for index in indexes if index.entries]
        return [*paths, self.txn_index.path] if self.txn_index.needs_sync else paths

    def close(self) -> None:
        """Releases all files as they are. The log file stays open as long as a reader has a region of it."""
        self._offset_index.close()
        self._time_index.close()
        self.txn_index.close()
        self._file = None

    def mark_deleted(self) -> list[str]:
        """Renames the files, so that they are not loaded again after a crash. Returns the paths to remove later."""
        self.close()
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = segment_file(self._directory, self.base_offset, suffix)
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed


def _jitter_ms(directory: str, base_offset: int, config: LogConfig) -> int:
    """Spreads the rolls of many partitions by up to segment.jitter.ms. Depends on the name only, so it is stable."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{directory}/{base_offset}".encode()) % limit if limit > 0 else 0
