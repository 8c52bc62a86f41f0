"""A range of bytes in a file, which can be sent to a socket without a copy in Python (sendfile)."""

from typing import NamedTuple, Protocol


class ReadableFile(Protocol):
    def fileno(self) -> int: ...

    def read_at(self, position: int, length: int) -> bytes: ...

    def is_cached(self, position: int, length: int) -> bool: ...


class FileRegion(NamedTuple):
    """`length` bytes of `file` from `position`. Holding the region keeps the file open."""

    file: ReadableFile
    position: int
    length: int

    def read(self) -> bytes:
        return self.file.read_at(self.position, self.length)
