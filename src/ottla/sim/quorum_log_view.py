"""What the log of a node has on disk, batch by batch, for the checkers of the quorum."""

from typing import NamedTuple
from zlib import crc32

from ottla.records.header import HEADER_SIZE, read_header
from ottla.sim.disk import SimDisk
from ottla.storage.file_names import LOG_SUFFIX, parse_segment_file, segment_file


class LoggedBatch(NamedTuple):
    """Two batches are the same if their offsets, epochs and `crc`, that of all bytes, are equal."""

    base_offset: int
    next_offset: int
    epoch: int
    crc: int


class LogView:
    """Reads only what was appended since the last time, unless the end of the log has changed."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._segments: dict[
            int, list[tuple[int, LoggedBatch]]
        ] = {}  # by base offset; end positions and batches

    def batches(self, end_offset: int) -> list[LoggedBatch]:
        """All batches before `end_offset`, also those before the start offset whose segment is not deleted."""
        names = self._disk.peek_names(self._directory)
        found = [parsed for parsed in map(parse_segment_file, names) if parsed is not None]
        bases = sorted(base for base, suffix in found if suffix == LOG_SUFFIX)
        self._segments = {base: self._segments.get(base, []) for base in bases}
        for base in bases:
            self._read_segment(base)
        return [
            batch for base in bases for _, batch in self._segments[base] if batch.next_offset <= end_offset
        ]

    def _read_segment(self, base: int) -> None:
        known = self._segments[base]
        data = self._disk.peek(segment_file(self._directory, base, LOG_SUFFIX))
        while known and not _is_at(data, known[-2][0] if len(known) > 1 else 0, known[-1]):
            known.pop()
        position = known[-1][0] if known else 0
        while position + HEADER_SIZE <= len(data):
            header = read_header(data, position)
            end = position + header.size
            if header.size < HEADER_SIZE or end > len(data):
                break
            known.append((end, _batch(data, position, end)))
            position = end


def _is_at(data: bytes, position: int, known: tuple[int, LoggedBatch]) -> bool:
    end, batch = known
    return end <= len(data) and _batch(data, position, end) == batch


def _batch(data: bytes, position: int, end: int) -> LoggedBatch:
    header = read_header(data, position)
    epoch = header.partition_leader_epoch
    return LoggedBatch(header.base_offset, header.next_offset, epoch, crc32(data[position:end]))
