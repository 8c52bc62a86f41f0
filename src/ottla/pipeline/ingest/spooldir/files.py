"""A file that was taken, what makes it the same file, and the pieces it is read in."""

import os
import stat
from typing import NamedTuple

from ottla.pipeline.ingest.spooldir.splitting import Splitting


class Identity(NamedTuple):
    """A name can be used again: another of these under it is another file, or the same one changed."""

    size: int
    mtime_ns: int
    inode: int


class TakenFile(NamedTuple):
    """`name` is relative to the folder and goes into the records; how it becomes records stays as it was when taken."""

    number: int
    path: str
    name: str
    identity: Identity
    splitting: Splitting


class Piece(NamedTuple):
    """Whole records of a file: bytes `start` to `end` and their checksum. `line` is the first one's number, from 1."""

    file: int
    start: int
    end: int
    line: int
    records: int
    crc: int


class Found(NamedTuple):
    """A file as a look at the folder shows it. ctime tells when it was last touched in any way; nobody can set it."""

    path: str
    name: str
    identity: Identity
    ctime: float


def identity_of(found: os.stat_result) -> Identity:
    return Identity(found.st_size, found.st_mtime_ns, found.st_ino)


def stat_file(path: str) -> os.stat_result | None:
    """None where no such file is."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    return found if stat.S_ISREG(found.st_mode) else None


def read_fully(descriptor: int, start: int, size: int) -> bytes:
    """Less than `size` only where the file ends."""
    parts = []
    while size and (part := os.pread(descriptor, size, start)):
        parts.append(part)
        start += len(part)
        size -= len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
