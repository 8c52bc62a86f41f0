"""The real disk: positioned vectored writes, memory maps, file locks."""

import contextlib
import fcntl
import mmap
import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from ottla.env.disk import Bytes

_PAGE_BYTES = mmap.PAGESIZE
IOV_MAX = os.sysconf("SC_IOV_MAX")
# Space for an index is allocated in steps: small partitions stay small, large ones need few system calls.
_RESERVE_STEP = 64 * 1024
_FIRST_RESERVE = 4 * 1024
_RWF_NOWAIT: int | None = getattr(os, "RWF_NOWAIT", None)


class RealFile:
    """Closes its descriptor with the last reference, because a region that is being sent outlives its segment."""

    __slots__ = ("_descriptor", "path")

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def fileno(self) -> int:
        return self._descriptor

    def size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, position)
        if len(data) == length or not data:
            return data
        # A signal or the limit of the system call (2 GiB) may end a read before the end of the file.
        parts, done = [data], len(data)
        while done < length and (data := os.pread(self._descriptor, length - done, position + done)):
            parts.append(data)
            done += len(data)
        return b"".join(parts)

    def read_into(self, position: int, buffer: memoryview) -> int:
        done = 0
        while done < len(buffer) and (count := os.preadv(self._descriptor, [buffer[done:]], position + done)):
            done += count
        return done

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        remaining = sum(map(len, buffers))
        if len(buffers) <= IOV_MAX and os.pwritev(self._descriptor, buffers, position) == remaining:
            return  # nearly always
        while remaining:
            written = os.pwritev(self._descriptor, buffers[:IOV_MAX], position)
            position += written
            remaining -= written
            if remaining:
                buffers = _without_first(buffers, written)

    def is_cached(self, position: int, length: int) -> bool:
        """Probes the first and the last page. Readahead has normally loaded the pages between them."""
        if _RWF_NOWAIT is None or length <= 0:
            return True
        last = position + length - 1
        return self._probe(position) and (position // _PAGE_BYTES == last // _PAGE_BYTES or self._probe(last))

    def _probe(self, position: int) -> bool:
        try:
            os.preadv(self._descriptor, [bytearray(1)], position, _RWF_NOWAIT or 0)
        except BlockingIOError:
            return False
        except OSError:
            # Most file systems that do not support the probe (EOPNOTSUPP) keep their files in memory.
            return True
        return True

    def truncate(self, size: int) -> None:
        # If an empty file is truncated, ext4 allocates and writes all of its later content in close() (auto_da_alloc):
        # 300 ms for a segment of 1 GB, on the event loop.
        if os.fstat(self._descriptor).st_size != size:
            os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fsync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        with contextlib.suppress(OSError):
            self.close()


def _without_first(buffers: Sequence[Bytes], count: int) -> list[Bytes]:
    """The rest of `buffers` after `count` bytes were written."""
    for index, buffer in enumerate(buffers):
        size = len(buffer)
        if count < size:
            return [memoryview(buffer)[count:], *buffers[index + 1 :]]
        count -= size
    return []


class RealMappedFile:
    def __init__(self, path: str, size: int | None) -> None:
        self.path = path
        descriptor = os.open(path, os.O_RDWR | (os.O_CREAT if size is not None else 0), 0o644)
        try:
            present = os.fstat(descriptor).st_size
            if size is not None and size > present:
                os.ftruncate(descriptor, size)
                present = size
            # An empty file cannot be mapped, and has nothing to read.
            self._map = mmap.mmap(descriptor, present) if present else None
        finally:
            os.close(descriptor)
        self._reserved = 0
        self.buffer = memoryview(self._map) if self._map is not None else memoryview(bytearray())

    def reserve(self, end: int) -> None:
        if end <= self._reserved:
            return
        step = _RESERVE_STEP if end > _FIRST_RESERVE else _FIRST_RESERVE
        wanted = min(-(-end // step) * step, len(self.buffer))
        if hasattr(os, "posix_fallocate"):  # not on macOS
            descriptor = os.open(self.path, os.O_RDWR)
            try:
                os.posix_fallocate(descriptor, self._reserved, wanted - self._reserved)
            finally:
                os.close(descriptor)
        self._reserved = wanted

    def sync(self) -> None:
        """Calls fsync, which also writes mapped pages, and lets other threads run meanwhile."""
        try:
            descriptor = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            return  # renamed for deletion: nobody will read it again
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def close(self, size: int | None = None) -> None:
        self.buffer.release()
        if self._map is not None:
            self._map.close()
            self._map = None
        if size is not None:
            os.truncate(self.path, size)


class RealDirectoryLock:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)  # releases the lock


class RealDisk:
    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o644))

    def map(self, path: str, size: int | None = None) -> RealMappedFile:
        return RealMappedFile(path, size)

    def read_bytes(self, path: str) -> bytes:
        return Path(path).read_bytes()

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        file = RealFile(temporary, descriptor)
        try:
            with contextlib.closing(file):
                file.write_at(0, [data])
                file.sync()
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.remove(temporary)  # a full disk must not keep the part that was written
            raise
        self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        os.link(source, target)

    def remove(self, path: str) -> None:
        os.remove(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str) -> RealDirectoryLock:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            # lockf excludes Apache Kafka, but not a second broker in this process; flock does that.
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            raise
        return RealDirectoryLock(descriptor)

    def space(self, path: str) -> tuple[int, int]:
        volume = os.statvfs(path)
        return volume.f_frsize * volume.f_blocks, volume.f_frsize * volume.f_bavail
