"""One segment of a log: a file of batches and the indexes that find things in it.

A segment is opened by its name alone. The log file and the indexes are opened when they are first needed, so a
broker with thousands of idle partitions holds no descriptor for them.
"""

import contextlib
import logging
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
from ottla.storage.timestamp_search import TimestampSearch, search_from, search_latest
from ottla.storage.txn_index import TxnIndex

logger = logging.getLogger("ottla.storage")

_UNKNOWN = -2  # a timestamp that nobody has looked up yet

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
        self.is_modified = False  # since it was opened
        self._torn = False  # bytes of a failed write may lie behind `size`
        self._is_preallocated = False  # zeros lie behind `size`
        self._indexes_checked = False
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
        """An empty segment; files of the same name, left by a failure, are emptied."""
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
        """Removes an empty segment that the log could not be given: a start would take it for the end of the log."""
        self.close()
        for suffix in SEGMENT_SUFFIXES:
            with contextlib.suppress(OSError):
                self._disk.remove(segment_file(self._directory, self.base_offset, suffix))

    def _preallocate(self, size: int) -> None:
        """The file has its full length from the start, and its true one again when it is sealed."""
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
            self._check_indexes()
        return self._offset_index

    @property
    def time_index(self) -> TimeIndex:
        if not self._indexes_checked:
            self._check_indexes()
        return self._time_index

    @property
    def max_timestamp(self) -> int:
        """-1 where no record has one."""
        return self.max_timestamp_and_offset[0]

    @property
    def max_timestamp_and_offset(self) -> tuple[int, int]:
        """The greatest timestamp, and the last offset of the batch that has it."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        return self._max_timestamp, self._max_timestamp_offset

    @property
    def largest_timestamp(self) -> int:
        """What retention by time goes by: when records have no timestamps, the time of the last write."""
        timestamp = self.max_timestamp
        return timestamp if timestamp >= 0 else self._disk.modified_ms(self.path)

    def is_older_than(self, oldest_ms: int) -> bool:
        """For retention by time. The last batches must agree: a damaged time index must not delete a segment."""
        if self.largest_timestamp >= oldest_ms:
            return False
        for _, header in iter_headers(self.file, self.offset_index.last_position, self.size):
            if header.max_timestamp >= oldest_ms:
                logger.warning(
                    "rebuilding the indexes of %s: there are later records than its time index has", self.path
                )
                self.rebuild_indexes()
                return False
        return True

    # Writing

    def should_roll(
        self, config: LogConfig, size: int, max_timestamp: int, last_offset: int, now_ms: int
    ) -> bool:
        """Whether `size` more bytes, the youngest of them of `max_timestamp`, belong into a new segment."""
        present = self.size
        if present > config.segment_bytes - size or last_offset - self.base_offset > INT32_MAX:
            return True
        if present:
            first = self._first_timestamp
            waited_ms = max_timestamp - first if first >= 0 else self._waited_ms(max_timestamp, now_ms)
            if waited_ms > config.segment_ms - self._jitter_ms:
                return True
        # The indexes matter only where this append would add to them.
        if self._bytes_since_index <= self._interval_bytes and self._indexes_checked:
            return False
        return self.offset_index.is_full or self.time_index.is_full

    def append(self, headers: Sequence[BatchHeader], buffers: Sequence[Bytes], size: int) -> None:
        """Writes `size` bytes in one go. An OSError leaves the segment as it was."""
        if self._max_timestamp == _UNKNOWN:
            self._load_max_timestamp()
        position = self.size
        if self._bytes_since_index + size - headers[-1].batch_length - LOG_OVERHEAD > self._interval_bytes:
            self._ensure_index_room(len(headers))
        if self._torn:
            self._cut_torn_bytes()
        try:
            (self._file or self.file).write_at(position, buffers)
        except OSError:
            self._torn = True
            with contextlib.suppress(OSError):
                self._cut_torn_bytes()
            raise
        self.is_modified = True
        if not position:
            self._first_timestamp = max(header.max_timestamp for header in headers)
        for header in headers:
            self._account(header, position)
            position += header.batch_length + LOG_OVERHEAD
        self.size = position

    def seal(self) -> None:
        """No more appends: the time index gets its last entry, the indexes and the file their final size."""
        if self._torn or self._is_preallocated:
            self._cut_torn_bytes()
        self.txn_index.save()
        if self._max_timestamp >= 0:
            self.time_index.append_last(self._max_timestamp, self._max_timestamp_offset)
        self._offset_index.trim()
        self._time_index.trim()

    def _load_max_timestamp(self) -> None:
        # A sealed segment's time index ends with its greatest timestamp.
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry

    def _account(self, header: BatchHeader, position: int) -> None:
        """Takes the batch at `position` into the indexes; the room for it has been made sure of."""
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
        self.offset_index.ensure_room(entries)
        self.time_index.ensure_room(entries + 1)

    def _cut_torn_bytes(self) -> None:
        self.file.truncate(self.size)
        self._torn = self._is_preallocated = False

    def _waited_ms(self, max_timestamp: int, now_ms: int) -> int:
        """How long the segment has been filling, in the time of its records where they have one."""
        if self._first_timestamp == _UNKNOWN:
            self._first_timestamp = read_header(self.file.read_at(0, HEADER_SIZE)).max_timestamp
        if self._first_timestamp >= 0:
            return max_timestamp - self._first_timestamp
        return now_ms - self.created_ms

    # Finding

    def find(self, offset: int) -> PlacedBatch | None:
        """The first batch with `offset` or, where compaction left a hole, with the next there is."""
        return find_batch(self.file, self.offset_index.position_for(offset), self.size, offset)

    def read_next_offset(self) -> int:
        """The offset after the last batch, by a scan from the last index entry."""
        next_offset = self.base_offset
        if self.size:
            for _, header in iter_headers(self.file, self.offset_index.last_position, self.size):
                next_offset = header.next_offset
        return next_offset

    def search_by_timestamp(self, timestamp: int, start_offset: int) -> TimestampSearch:
        """The lookup of the first record at or after both."""
        offset = max(self.time_index.offset_for(timestamp), start_offset)
        return search_from(
            self.file, self.offset_index.position_for(offset), self.size, timestamp, start_offset
        )

    def search_max_timestamp(self) -> TimestampSearch:
        """The lookup of the record with the greatest timestamp (KIP-734)."""
        timestamp, offset = self.max_timestamp_and_offset
        return search_latest(self.file, self.offset_index.position_for(offset), self.size, timestamp)

    # Mending

    def recover(self, observe: BatchObserver, flushed_offset: int) -> int:
        """Checks every batch and rebuilds the indexes; cuts the file at the first bad one, by so many bytes.

        `observe` gets every good batch in order, for what else is to be rebuilt: producers, epochs, aborted
        transactions. Raises DamagedLogError, and cuts nothing, if the bad one is below `flushed_offset`.
        """
        self._start_indexes_anew()
        self.txn_index.clear()
        valid, next_offset = 0, self.base_offset
        gap = range(0)  # offsets that are missing right before the last good batch
        for batch in iter_valid_batches(self.file, self.size, self.base_offset):
            if batch.header.last_offset - self.base_offset > INT32_MAX:
                break
            self._account_checked(batch.header, batch.position)
            observe(batch.header, batch.data)
            gap = range(next_offset, batch.header.base_offset)
            valid, next_offset = batch.position + batch.header.size, batch.header.next_offset
        cut = self.size - valid
        if cut:
            following = read_whole_batch(self.file, valid, self.size) if gap else None
            # No checksum covers an offset. If the next batch would fill the gap before the last good one, it is the
            # offset of that one that is damaged and too high, and the next one is not torn.
            if following is not None and following.header.base_offset in gap:
                next_offset = following.header.base_offset
            if next_offset < flushed_offset:
                raise DamagedLogError(self.path, valid, next_offset, flushed_offset)
            self.file.truncate(valid)
            self.size = valid
        self.seal()
        return cut

    def rebuild_indexes(self) -> None:
        """Those that find a batch; `repair_txn_indexes` takes care of the third."""
        self._start_indexes_anew()
        for position, header in iter_headers(self.file, 0, self.size):
            self._account_checked(header, position)
        self.seal()

    def truncate_to(self, offset: int) -> None:
        """Removes the batch that holds `offset` and all that follow it."""
        found = self.find(offset) if self.size else None
        self.offset_index.truncate_to(offset)
        self.time_index.truncate_to(offset)
        self.txn_index.truncate_to(offset)
        if found is not None:
            self.file.truncate(found.position)
            self.size = found.position
        self.is_modified = True
        self._bytes_since_index = 0
        if not self.size:
            self._first_timestamp = _UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = self.time_index.last_entry
        from_position = self.offset_index.position_for(self._max_timestamp_offset)
        for _, header in iter_headers(self.file, from_position, self.size):
            if header.max_timestamp > self._max_timestamp:
                self._max_timestamp, self._max_timestamp_offset = header.max_timestamp, header.last_offset

    def _check_indexes(self) -> None:
        self._indexes_checked = True
        try:
            self._offset_index.load()
            if self._offset_index.last_position >= max(self.size, 1):
                raise CorruptIndexError(f"{self._offset_index.path} points beyond the end of {self.path}")
            self._time_index.load()
        except (CorruptIndexError, FileNotFoundError) as error:
            logger.warning("rebuilding the indexes of %s: %s", self.path, error)
            self.rebuild_indexes()

    def _start_indexes_anew(self) -> None:
        self._offset_index.clear()
        self._time_index.clear()
        self._indexes_checked = True
        self.is_modified = True
        self._bytes_since_index = 0
        self._first_timestamp = _UNKNOWN
        self._max_timestamp, self._max_timestamp_offset = NO_TIMESTAMP, self.base_offset

    def _account_checked(self, header: BatchHeader, position: int) -> None:
        if self._bytes_since_index > self._interval_bytes:
            self._ensure_index_room(1)
        self._account(header, position)

    # Ending

    def paths(self) -> list[str]:
        """All its files."""
        return [self.path, self._offset_index.path, self._time_index.path, self.txn_index.path]

    def index_paths(self) -> list[str]:
        """What is to be synced beside the log. An empty index need not be: it is rebuilt if it does not stay so."""
        indexes = (self.offset_index, self.time_index)
        paths = [index.path for index in indexes if index.entries]
        return [*paths, self.txn_index.path] if self.txn_index.needs_sync else paths

    def close(self) -> None:
        """Lets go of all files as they are. The log file stays open as long as a reader has a region of it."""
        self._offset_index.close()
        self._time_index.close()
        self.txn_index.close()
        self._file = None

    def mark_deleted(self) -> list[str]:
        """Renames the files, so that a crash cannot bring the segment back; returns what is to be removed later."""
        self.close()
        renamed = []
        for suffix in SEGMENT_SUFFIXES:
            path = segment_file(self._directory, self.base_offset, suffix)
            with contextlib.suppress(FileNotFoundError):
                self._disk.rename(path, path + DELETED_SUFFIX)
                renamed.append(path + DELETED_SUFFIX)
        return renamed


def _jitter_ms(directory: str, base_offset: int, config: LogConfig) -> int:
    """Spreads the rolls of many partitions by up to segment.jitter.ms; the name decides, so that it is stable."""
    limit = min(config.segment_jitter_ms, config.segment_ms)
    return zlib.crc32(f"{directory}/{base_offset}".encode()) % limit if limit > 0 else 0
