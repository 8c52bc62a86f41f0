"""Files, as storage sees them. Positions are explicit, so that one open file serves the writer and every reader.

The real disk is in `real_disk.py`. The simulated one (`ottla.sim.disk`) forgets on a crash what was not synced:
bytes of a file since its `sync`, and names (created, renamed, removed) since `sync_dir` of their folder.
Every failure is an OSError.
"""

from collections.abc import Sequence
from typing import Protocol

Bytes = bytes | bytearray | memoryview


class File(Protocol):
    path: str

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none (simulation)."""
        ...

    def size(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes:
        """At most `length` bytes; fewer only at the end of the file."""
        ...

    def read_into(self, position: int, buffer: memoryview) -> int:
        """Fills `buffer`, as far as the file reaches; returns how much of it."""
        ...

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        """Writes all the buffers one after the other, whole, or raises OSError."""
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Whether a read there would be served from memory, as far as a cheap probe can tell."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class MappedFile(Protocol):
    """A file of fixed size mapped into memory, for indexes. `buffer` works with `struct` and slices."""

    buffer: memoryview

    def reserve(self, end: int) -> None:
        """Makes sure that there is room on the disk for the bytes below `end`: OSError where it is full.

        Without it, storing into a hole of a full disk would end the process (SIGBUS) instead of raising.
        """
        ...

    def sync(self) -> None: ...

    def close(self, size: int | None = None) -> None:
        """Unmaps; with `size`, cuts the file to it."""
        ...


class DirectoryLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Opens for reading and writing. FileNotFoundError where it is missing and `create` is not set."""
        ...

    def map(self, path: str, size: int | None = None) -> MappedFile:
        """Maps a file for reading and writing: as it is, or extended (or created) to `size` with zeros."""
        ...

    def read_bytes(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """After this, and after any crash in it, `path` holds the old content or the new, never a mixture."""
        ...

    def exists(self, path: str) -> bool: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def list_dir(self, path: str) -> list[str]:
        """Names, sorted: a decision must not depend on the order of a directory."""
        ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def link(self, path: str, second: str) -> None:
        """The file at `path` has the name `second` as well from now on."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def sync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DirectoryLock:
        """An exclusive lock on the file `path`. BlockingIOError where another process (or broker) has it."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """(total bytes, usable bytes) of the volume."""
        ...
