"""The real disk, which a test can fill."""

import errno
import os
from collections.abc import Sequence

from ottla.env.disk import Bytes
from ottla.env.real_disk import RealDisk, RealFile, RealMappedFile


class Volume:
    def __init__(self) -> None:
        self.is_full = False

    def check_room(self, path: str) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


class ControlledFile(RealFile):
    __slots__ = ("_volume",)

    def __init__(self, path: str, descriptor: int, volume: Volume) -> None:
        super().__init__(path, descriptor)
        self._volume = volume

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        self._volume.check_room(self.path)
        super().write_at(position, buffers)


class ControlledMappedFile(RealMappedFile):
    def __init__(self, path: str, size: int | None, volume: Volume) -> None:
        if size is not None:
            volume.check_room(path)
        super().__init__(path, size)
        self._volume = volume

    def reserve(self, end: int) -> None:
        self._volume.check_room(self.path)
        super().reserve(end)


class ControlledDisk(RealDisk):
    """Nothing can be written while the volume is full. Whatever is there can be read, renamed and removed."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return ControlledFile(path, os.open(path, flags, 0o644), self._volume)

    def map(self, path: str, size: int | None = None) -> RealMappedFile:
        return ControlledMappedFile(path, size, self._volume)

    def write_atomically(self, path: str, data: bytes) -> None:
        self._volume.check_room(path)
        super().write_atomically(path, data)

    def make_dirs(self, path: str) -> None:
        if not self.exists(path):
            self._volume.check_room(path)
        super().make_dirs(path)

    def space(self, path: str) -> tuple[int, int]:
        total, free = super().space(path)
        return total, 0 if self._volume.is_full else free
