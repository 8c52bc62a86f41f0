"""Cuts files into pieces of whole records, and reads the pieces.

The driver reads a file once, and notes the first line and the checksum of every piece. So a task can begin in the
middle of a file and knows its line; a record that is too long is found before anything from there on is in the log; and
a task that reads a piece can prove that its bytes are those that were taken.
"""

import os
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.pipeline.ingest.spooldir.errors import (
    file_changed,
    file_missing,
    file_unreadable,
    record_too_long,
)
from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile, identity_of, read_fully, stat_file
from ottla.pipeline.ingest.spooldir.record_format import find_too_long, last_record_end

# The cost of opening a file, in bytes: so a batch does not have very many tiny files.
_FILE_COST_BYTES = 64 * 1024


class FilePosition(NamedTuple):
    """How far a file is taken: the next byte, and the number of the next record."""

    byte: int = 0
    line: int = 1


class Limits(NamedTuple):
    split_bytes: int
    record_bytes_max: int


def cost(pieces: Iterable[Piece]) -> int:
    return sum(piece.end - piece.start + _FILE_COST_BYTES for piece in pieces)


def next_piece(file: TakenFile, descriptor: int, position: FilePosition, limits: Limits) -> Piece:
    """The piece at `position` of an open file, which must still be as it was when it was taken."""
    delimiter = file.record_format.delimiter
    rest = file.identity.size - position.byte
    if not delimiter and rest > limits.record_bytes_max:
        raise record_too_long(file.path, position.line, position.byte, limits.record_bytes_max)
    window = (
        min(rest, max(limits.split_bytes, limits.record_bytes_max + len(delimiter))) if delimiter else rest
    )
    block = read_fully(descriptor, position.byte, window)
    difference = _describe_difference(file, os.fstat(descriptor))
    if difference or len(block) < window:
        raise file_changed(file.path, difference or f"it has fewer than {file.identity.size} bytes")
    records, end = _cut(
        file, position, block, is_last=window == rest, record_bytes_max=limits.record_bytes_max
    )
    with memoryview(block) as view:
        crc = zlib.crc32(view[:end])
    return Piece(file.number, position.byte, position.byte + end, position.line, records, crc)


def _cut(
    file: TakenFile, position: FilePosition, block: bytes, is_last: bool, record_bytes_max: int
) -> tuple[int, int]:
    """How many records of the block are in the piece, and where the piece ends in the block."""
    delimiter = file.record_format.delimiter
    if not delimiter:
        return int(bool(block)), len(block)
    at = find_too_long(block, delimiter, record_bytes_max, is_last)
    if at is not None:
        line = position.line + len(block[:at].split(delimiter)) - 1
        raise record_too_long(file.path, line, position.byte + at, record_bytes_max)
    records, end = last_record_end(block, delimiter)
    if is_last and end < len(block):
        return records + 1, len(block)
    return records, end


def end_of(piece: Piece) -> FilePosition:
    return FilePosition(piece.end, piece.line + piece.records)


def _describe_difference(file: TakenFile, status: os.stat_result) -> str:
    """How a file differs from the one that was taken, as far as the file system tells; "" if it does not."""
    was, now = file.identity, identity_of(status)
    if now.size != was.size:
        return f"it had {was.size} bytes and has {now.size}"
    if now.inode != was.inode:
        return "it was replaced by another file"
    return "" if now.mtime_ns == was.mtime_ns else "it was written to"


def describe_change(
    file: TakenFile, status: os.stat_result, pieces_of: Callable[[TakenFile], list[Piece] | None]
) -> str:
    """How a file changed since it was taken; "" if it has the same bytes, perhaps touched or restored from a copy.

    `pieces_of` gives all pieces of the file. If it gives None, only the file system tells whether the file changed.
    """
    difference = _describe_difference(file, status)
    if not difference or status.st_size != file.identity.size:
        return difference
    pieces = pieces_of(file)
    return "" if pieces is not None and _has_same_bytes(file, pieces) else difference


def _has_same_bytes(file: TakenFile, pieces: Iterable[Piece]) -> bool:
    with open(file.path, "rb") as opened:
        return all(
            zlib.crc32(read_fully(opened.fileno(), piece.start, piece.end - piece.start)) == piece.crc
            for piece in pieces
        )


def read_piece(file: TakenFile, piece: Piece) -> bytes:
    """The bytes of a piece. Raises PipelineError if they are not those that were taken."""
    size = piece.end - piece.start
    try:
        with open(file.path, "rb") as opened:
            data = read_fully(opened.fileno(), piece.start, size)
            now = os.fstat(opened.fileno()).st_size
    except OSError as error:
        raise (
            file_missing(file.path, file.identity.size)
            if stat_file(file.path) is None
            else file_unreadable(file.path, error)
        ) from None
    if now != file.identity.size:
        raise file_changed(file.path, f"it had {file.identity.size} bytes and has {now}")
    if zlib.crc32(data) != piece.crc:
        raise file_changed(file.path, f"its bytes from {piece.start} to {piece.end} are different")
    return data
