"""The offset up to which the metadata log was flushed: damage below it is not a torn last write.

The file `ottla-recovery-point` beside the log has it. It is written after every flush, but not flushed itself, so it is
exact after a kill, and some seconds old after a power loss. The file has two lines, written alternately, each with a
checksum: if a power loss tears one of them, the other is intact.
"""

import contextlib
import logging

from ottla.env.disk import Disk, File
from ottla.records.checksum import crc32c
from ottla.storage.batch_scan import find_valid_batch, iter_valid_batches
from ottla.storage.file_names import LOG_SUFFIX, parse_segment_file, segment_file

logger = logging.getLogger("ottla.quorum")

RECOVERY_POINT = "ottla-recovery-point"
_LINES = 2
_LINE_BYTES = len(b"00000000000000000000 00000000\n")


class FlushedOffset:
    """Not thread-safe: one thread at a time."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self.path = f"{directory}/{RECOVERY_POINT}"
        self.offset = 0  # of the last flush, as far as it is known
        self._disk = disk
        self._directory = directory
        self._file: File | None = None
        self._line = 0  # the next one to write
        self._is_synced = True

    def read(self) -> int | None:
        """None if the file is damaged, or missing, as in a directory of Kafka."""
        try:
            data = self._disk.read_bytes(self.path)
        except FileNotFoundError:
            return None
        offsets = [_decode(data[start : start + _LINE_BYTES]) for start in range(0, len(data), _LINE_BYTES)]
        known = [offset for offset in offsets if offset is not None]
        if not known:
            logger.warning("%s is damaged and will be written again", self.path)
            return None
        self._line = (offsets.index(max(known)) + 1) % _LINES
        self.offset = max(known)
        return self.offset

    def write(self, offset: int) -> None:
        """Raises OSError."""
        if self._file is None:
            is_new = not self._disk.exists(self.path)
            self._file = self._disk.open(self.path, create=True)
            if is_new:
                self._file.write_at(0, [_encode(0) * _LINES])
                self._file.sync()
                self._disk.sync_dir(self._directory)
        self._file.write_at(self._line * _LINE_BYTES, [_encode(offset)])
        self._line = (self._line + 1) % _LINES
        self._is_synced = False
        self.offset = offset

    def lower_to(self, offset: int) -> None:
        """The log is about to be truncated to `offset`. Raises OSError."""
        for _ in range(_LINES):
            self.write(offset)
        assert self._file is not None
        self._file.sync()
        self._is_synced = True

    def close(self) -> None:
        if self._file is not None:
            if not self._is_synced:
                self._file.sync()
            self._file.close()
            self._file = None


def offset_after_damage(disk: Disk, directory: str) -> int:
    """The end offset of the first intact batch after a damaged one; 0 if there is none.

    For a log without a recovery point: only the last write can be torn, so an intact batch behind it proves damage.
    """
    if not disk.exists(directory):
        return 0
    parsed = (parse_segment_file(name) for name in disk.list_dir(directory))
    next_offset, is_damaged = 0, False
    for base_offset in sorted(found[0] for found in parsed if found is not None and found[1] == LOG_SUFFIX):
        path = segment_file(directory, base_offset, LOG_SUFFIX)
        size, position = disk.file_size(path), 0
        with contextlib.closing(disk.open(path)) as file:
            if is_damaged and (later := find_valid_batch(file, 0, size, base_offset)) is not None:
                return later.header.next_offset
            next_offset = max(next_offset, base_offset)
            for batch in iter_valid_batches(file, size, next_offset):
                position, next_offset = batch.position + batch.header.size, batch.header.next_offset
            if position < size:
                is_damaged = True
                # An intact batch with a wrong offset: the batch before it is damaged.
                if (later := find_valid_batch(file, position, size, base_offset)) is not None:
                    return later.header.next_offset
    return 0


def _encode(offset: int) -> bytes:
    digits = b"%020d" % offset
    return b"%s %08x\n" % (digits, crc32c(digits))


def _decode(line: bytes) -> int | None:
    digits = line[:20]
    return int(digits) if digits.isdigit() and _encode(int(digits)) == line else None
