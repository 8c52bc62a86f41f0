"""The file operations that storage uses. Every call names a position, so the writer and all readers share one file.

The real disk is in `real_disk.py`. A crash of the simulated disk (`ottla.sim.disk`) loses what was not synced: bytes
written after the last `sync` of a file, and names created, renamed or removed after the last `sync_dir` of the folder.
Every failure is an OSError.
"""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 if there is none (in a simulation)."""
        ...

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """Returns `length` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fills `buffer` and returns the number of bytes read; fewer than its length only at the end of the file."""
        ...

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        """Writes all buffers one after the other, or raises OSError."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether a read there would be served from the page cache, as far as a cheap probe can tell."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MappedFile(Protocol):
    """A memory-mapped file of fixed size, for indexes."""

    buffer: memoryview

    def reserve(self, end: int) -> None:
        """Allocates disk space for the bytes below `end`. Raises OSError if the disk is full.

        Without it, a store into a hole of a sparse file on a full disk would kill the process (SIGBUS).
        """
        ...

    def sync(self) -> None: ...

    def close(self, size: int | None = None) -> None:
        """Unmaps the file and, if `size` is given, truncates it to `size`."""
        ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing. Raises FileNotFoundError if the file is missing and `create` is not set."""
        ...

    def map(self, path: str, size: int | None = None) -> MappedFile:
        """Maps a file for reading and writing. With `size`, creates it or extends it with zeros first."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replaces the content of `path`. A crash at any time leaves the old content or the new, never a mixture."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_dir(self, path: str) -> list[str]:
        """Sorted names, because no decision may depend on the order that the file system returns."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, source: str, target: str) -> None:
        """Gives the file `source` a second name (a hard link)."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock:
        """Takes an exclusive lock on the file `path`. Raises BlockingIOError if another process or broker has it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """Returns (total bytes, usable bytes) of the volume."""
        ...
