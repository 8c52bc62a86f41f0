"""Files of the spool directory: what identifies a file, and the pieces in which it is read."""

import os
import stat
from typing import NamedTuple

from ottla.pipeline.ingest.spooldir.record_format import RecordFormat


class Identity(NamedTuple):
    """Names are reused: a file of the same name with another identity is another file, or the same one changed."""

    size: int
    mtime_ns: int
    inode: int


class FoundFile(NamedTuple):
    """A file in a listing of the folder. `ctime` is the time of its last change of any kind; no program can set it."""

    path: str
    name: str
    identity: Identity
    ctime: float


class TakenFile(NamedTuple):
    """`name` is relative to the folder and goes into the records. `record_format` stays as it was when taken."""

    number: int
    path: str
    name: str
    identity: Identity
    record_format: RecordFormat


class Piece(NamedTuple):
    """Whole records of a file: bytes `start` to `end` and their checksum. `line` is the first one's number, from 1."""

    file: int
    start: int
    end: int
    line: int
    records: int
    crc: int


def identity_of(status: os.stat_result) -> Identity:
    return Identity(status.st_size, status.st_mtime_ns, status.st_ino)


def stat_file(path: str) -> os.stat_result | None:
    """None if there is no such file."""
    try:
        status = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def read_fully(descriptor: int, start: int, size: int) -> bytes:
    """Less than `size` only if the file ends before."""
    parts = []
    while size and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
