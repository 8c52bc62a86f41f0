"""Taking a file: it is read once on the driver, and cut into pieces of whole records with their numbers and checksums.

So a task can begin anywhere in a file and still know its line, a record that is too long is found before anything of
it is promised, and whoever reads a piece again can prove that the bytes are those that were taken.
"""

import os
import zlib
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ottla.pipeline.ingest.spooldir.files import Piece, TakenFile, identity_of, read_fully, stat_file
from ottla.pipeline.ingest.spooldir.splitting import last_end, too_long
from ottla.pipeline.ingest.spooldir.troubles import changed, gone, record_too_long, unreadable

# What opening a file costs, counted as bytes, so that a batch of many tiny files stays a small batch.
FILE_COST_BYTES = 64 * 1024


class Place(NamedTuple):
    """How far a file is taken: the byte and the number of the record that come next."""

    position: int = 0
    line: int = 1


class Limits(NamedTuple):
    split_bytes: int
    record_bytes_max: int


def cost(pieces: Iterable[Piece]) -> int:
    return sum(piece.end - piece.start + FILE_COST_BYTES for piece in pieces)


def next_piece(file: TakenFile, descriptor: int, place: Place, limits: Limits) -> Piece:
    """The piece at `place` of an open file, which must still be as it was when it was taken."""
    delimiter = file.splitting.delimiter
    rest = file.identity.size - place.position
    if not delimiter and rest > limits.record_bytes_max:
        raise record_too_long(file.path, place.line, place.position, limits.record_bytes_max)
    window = (
        min(rest, max(limits.split_bytes, limits.record_bytes_max + len(delimiter))) if delimiter else rest
    )
    block = read_fully(descriptor, place.position, window)
    difference = difference_of(file, os.fstat(descriptor))
    if difference or len(block) < window:
        raise changed(file.path, difference or f"it has fewer than {file.identity.size} bytes")
    records, end = cut(file, place, block, is_last=window == rest, record_bytes_max=limits.record_bytes_max)
    with memoryview(block) as view:
        crc = zlib.crc32(view[:end])
    return Piece(file.number, place.position, place.position + end, place.line, records, crc)


def cut(file: TakenFile, place: Place, block: bytes, is_last: bool, record_bytes_max: int) -> tuple[int, int]:
    """How many records of the block make the piece, and where it ends in the block."""
    delimiter = file.splitting.delimiter
    if not delimiter:
        return int(bool(block)), len(block)
    at = too_long(block, delimiter, record_bytes_max, is_last)
    if at is not None:
        line = place.line + len(block[:at].split(delimiter)) - 1
        raise record_too_long(file.path, line, place.position + at, record_bytes_max)
    records, end = last_end(block, delimiter)
    if is_last and end < len(block):
        return records + 1, len(block)
    return records, end


def after(piece: Piece) -> Place:
    return Place(piece.end, piece.line + piece.records)


def difference_of(file: TakenFile, found: os.stat_result) -> str:
    """In which way a file is not the one that was taken, as far as the file system tells; "" if in none."""
    was, now = file.identity, identity_of(found)
    if now.size != was.size:
        return f"it had {was.size} bytes and has {now.size}"
    if now.inode != was.inode:
        return "another file stands in its place"
    return "" if now.mtime_ns == was.mtime_ns else "it was written to"


def change_of(
    file: TakenFile, found: os.stat_result, pieces_of: Callable[[TakenFile], list[Piece] | None]
) -> str:
    """As `difference_of`, but a file that holds the same bytes is the same: touched, or put back from a copy.

    `pieces_of` gives all pieces of the file, None where they are not known: then the file system's word counts.
    """
    difference = difference_of(file, found)
    if not difference or found.st_size != file.identity.size:
        return difference
    pieces = pieces_of(file)
    return "" if pieces is not None and holds(file, pieces) else difference


def holds(file: TakenFile, pieces: Iterable[Piece]) -> bool:
    with open(file.path, "rb") as opened:
        return all(
            zlib.crc32(read_fully(opened.fileno(), piece.start, piece.end - piece.start)) == piece.crc
            for piece in pieces
        )


def read_piece(file: TakenFile, piece: Piece) -> bytes:
    """The bytes of a piece, which are those that were taken, or an error."""
    size = piece.end - piece.start
    try:
        with open(file.path, "rb") as opened:
            data = read_fully(opened.fileno(), piece.start, size)
            now = os.fstat(opened.fileno()).st_size
    except OSError as error:
        raise (
            gone(file.path, file.identity.size)
            if stat_file(file.path) is None
            else unreadable(file.path, error)
        ) from None
    if now != file.identity.size:
        raise changed(file.path, f"it had {file.identity.size} bytes and has {now}")
    if zlib.crc32(data) != piece.crc:
        raise changed(file.path, f"other bytes stand between {piece.start} and {piece.end}")
    return data
