"""A disk in memory that loses unsynced bytes in a power loss, and injects the faults that a test asks for.

A `SimDisk` is one process's view of a `Volume`. `kill()` ends the process; the page cache survives. `crash()` is a
power loss. After either, every handle raises OSError and the locks are released; `reopen()` returns the view of the
next process.
"""

import errno
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from ottla.env.disk import Bytes
from ottla.sim.loop_watch import SYNCS, LoopWatch
from ottla.sim.volume import Inode, Volume

_CAPACITY_BYTES = 1 << 40
WRITES = frozenset({"open", "write", "truncate", "map", "reserve", "rename", "link", "remove", "make_dirs"})


@dataclass(slots=True)
class DiskStats:
    """The number of calls of each operation, and the bytes read and written."""

    operations: dict[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0


@dataclass(frozen=True, slots=True)
class DiskSpeed:
    """How long an operation takes if a thread makes it. On the event loop operations take no virtual time."""

    operation_ms: float = 0.0
    sync_ms: float = 0.0

    def duration_s(self, operation: str) -> float:
        return (self.sync_ms if operation in SYNCS else self.operation_ms) / 1000


@dataclass(slots=True)
class Fault:
    path: str
    error: int
    operations: frozenset[str] | None
    times: int | None
    is_torn: bool

    def matches(self, operation: str, path: str) -> bool:
        if self.times == 0 or (self.operations is not None and operation not in self.operations):
            return False
        return path == self.path or path.startswith(self.path.rstrip("/") + "/")


class SimDisk:
    def __init__(
        self,
        random: Random,
        now_ms: Callable[[], int] = lambda: 0,
        *,
        mounts: tuple[str, ...] = ("/data",),
        volume: Volume | None = None,
        note: Callable[[str], None] = lambda text: None,
        cold_reads: float = 0.1,
    ) -> None:
        self.stats = DiskStats()
        self.on_power_loss: Callable[[], None] = lambda: None
        self.loop_watch: LoopWatch | None = None
        self.speed = DiskSpeed()
        self.busy_s = 0.0  # the time of all operations so far
        self.loses_all_unsynced = False  # in a power loss; otherwise the seed decides
        self._random = random
        self._now_ms = now_ms
        self._volume = Volume(now_ms(), mounts) if volume is None else volume
        self._note = note
        self._cold_reads = cold_reads
        self._alive = True
        self._operations_left: int | None = None
        self._faults: list[Fault] = []

    # For tests

    def fail(
        self,
        path: str,
        error: int = errno.EIO,
        *,
        operations: frozenset[str] | None = None,
        times: int | None = None,
        is_torn: bool = False,
    ) -> None:
        """Makes operations on `path` and below raise OSError: all, or only `operations`, or only the next `times`.

        A torn write writes a random part of its bytes before it fails.
        """
        self._faults.append(Fault(path, error, operations, times, is_torn))

    def heal(self) -> None:
        self._faults.clear()

    @contextmanager
    def watched_loop(self) -> Iterator[None]:
        """While the broker serves: the simulation fails if the event loop waits for this disk."""
        assert self.loop_watch is not None
        self.loop_watch.is_serving = True
        try:
            yield
        finally:
            self.loop_watch.is_serving = False

    def crash_after(self, operations: int) -> None:
        """Loses power after the next `operations` operations."""
        self._operations_left = operations

    def crash(self) -> None:
        """A power loss: unsynced bytes are lost, kept or torn, as the seed decides; or all are lost."""
        if self._alive:
            self.kill()
            self.on_power_loss()
            for fate in self._volume.lose_power(None if self.loses_all_unsynced else self._random):
                self._note(f"disk after power loss: {fate}")

    def kill(self) -> None:
        """Ends the process: its handles and locks are invalid, the page cache survives."""
        self._alive = False
        self._volume.detach()
        self._volume.locks = {path: owner for path, owner in self._volume.locks.items() if owner is not self}

    def reopen(self) -> "SimDisk":
        return SimDisk(
            self._random,
            self._now_ms,
            volume=self._volume,
            note=self._note,
            cold_reads=self._cold_reads,
        )

    def set_clock(self, now_ms: Callable[[], int]) -> None:
        """The clock of the host, for the times of files."""
        self._now_ms = now_ms

    def peek(self, path: str) -> bytes:
        """The bytes that a process would read, for checkers: not an operation. Empty if there is no such file."""
        node = self._volume.find(path)
        return bytes(node.data) if isinstance(node, Inode) else b""

    def peek_names(self, path: str) -> list[str]:
        """As `list_dir`, for checkers: not an operation."""
        return sorted(self._volume.directory(path).entries) if self._volume.find(path) is not None else []

    @property
    def is_alive(self) -> bool:
        return self._alive

    # The interface ottla.env.disk.Disk

    def open(self, path: str, *, create: bool = False) -> "SimFile":
        self.begin("open", path)
        if create and self._volume.find(path) is None:
            self._note(f"disk create {path}")
            return SimFile(self, path, self._volume.create(path, self._now_ms()))
        return SimFile(self, path, self._volume.inode(path))

    def map(self, path: str, size: int | None = None) -> "SimMappedFile":
        self.begin("map", path)
        if size is not None and self._volume.find(path) is None:
            self._volume.create(path, self._now_ms())
        inode = self._volume.inode(path)
        if size is not None and size > len(inode.data):
            inode.resize(size)
        return SimMappedFile(self, path, inode)

    def read_bytes(self, path: str) -> bytes:
        self.begin("read", path)
        data = bytes(self._volume.inode(path).data)
        self.count_read(path, len(data))
        return data

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = path + ".tmp"
        file = self.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write_at(0, [data])
            file.sync()
            file.close()
            self.rename(temporary, path)
        except OSError:
            with suppress(OSError):
                self.remove(temporary)
            raise
        self.sync_dir(path.rpartition("/")[0] or "/")

    def exists(self, path: str) -> bool:
        self.begin("stat", path)
        return self._volume.find(path) is not None

    def file_size(self, path: str) -> int:
        self.begin("stat", path)
        return len(self._volume.inode(path).data)

    def modified_ms(self, path: str) -> int:
        self.begin("stat", path)
        return self._volume.node(path).modified_ms

    def list_dir(self, path: str) -> list[str]:
        self.begin("list_dir", path)
        return sorted(self._volume.directory(path).entries)

    def make_dirs(self, path: str) -> None:
        self.begin("make_dirs", path)
        self._note(f"disk make_dirs {path}")
        self._volume.make_dirs(path, self._now_ms())

    def rename(self, source: str, target: str) -> None:
        self.begin("rename", source)
        self._note(f"disk rename {source} {target}")
        self._volume.rename(source, target)

    def link(self, source: str, target: str) -> None:
        self.begin("link", target)
        self._note(f"disk link {source} {target}")
        self._volume.link(source, target)

    def remove(self, path: str) -> None:
        self.begin("remove", path)
        self._note(f"disk remove {path}")
        self._volume.remove(path)

    def remove_tree(self, path: str) -> None:
        self.begin("remove", path)
        self._note(f"disk remove_tree {path}")
        self._volume.remove_tree(path)

    def sync_dir(self, path: str) -> None:
        self.begin("sync_dir", path)
        self._note(f"disk sync_dir {path}")
        self._volume.sync_dir(path)

    def lock(self, path: str) -> "SimLock":
        self.begin("lock", path)
        if path in self._volume.locks:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN), path)
        if self._volume.find(path) is None:
            self._volume.create(path, self._now_ms())
        self._volume.locks[path] = self
        return SimLock(self._volume, path, self)

    def space(self, path: str) -> tuple[int, int]:
        self.begin("stat", path)
        return _CAPACITY_BYTES, _CAPACITY_BYTES - self._volume.used_bytes()

    # For the file classes below

    def begin(self, operation: str, path: str, torn: Callable[[], None] = lambda: None) -> None:
        """Counts an operation. Raises OSError if the process is dead or a fault matches, after `torn` if it tears."""
        if self._operations_left is not None and self._alive:
            self._operations_left -= 1
            if self._operations_left < 0:
                self._note(f"disk power loss at {operation} {path}")
                self.crash()
        if not self._alive:
            raise OSError(errno.EIO, "the simulated process that opened this file is dead", path)
        counts = self.stats.operations
        counts[operation] = counts.get(operation, 0) + 1
        self.busy_s += self.speed.duration_s(operation)
        if self.loop_watch is not None:
            self.loop_watch.began(operation, path)
        for fault in self._faults:
            if fault.matches(operation, path):
                if fault.times is not None:
                    fault.times -= 1
                self._note(f"disk fault at {operation} {path}")
                if fault.is_torn:
                    torn()
                raise OSError(fault.error, os.strerror(fault.error), path)

    def count_read(self, path: str, size: int) -> None:
        self.stats.bytes_read += size
        if self.loop_watch is not None:
            self.loop_watch.read(path, size)

    def note(self, text: str) -> None:
        self._note(text)

    def now_ms(self) -> int:
        return self._now_ms()

    def torn_length(self, length: int) -> int:
        return self._random.randrange(length) if length else 0

    def is_cold(self) -> bool:
        return self._random.random() < self._cold_reads


class SimFile:
    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._open = True

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        self._begin("stat")
        return len(self._inode.data)

    def read_at(self, position: int, length: int) -> bytes:
        self._begin("read")
        data = bytes(memoryview(self._inode.data)[position : position + length])
        self._disk.count_read(self.path, len(data))
        return data

    def send_at(self, position: int, length: int) -> bytes:
        """Reads for a simulated sendfile, which on a real broker sends bytes that a thread has warmed if needed."""
        self._begin("read")
        data = bytes(memoryview(self._inode.data)[position : position + length])
        self._disk.stats.bytes_read += len(data)
        return data

    def read_into(self, position: int, buffer: memoryview) -> int:
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        data = b"".join(buffers)
        self._begin("write", lambda: self._inode.write(position, data[: self._disk.torn_length(len(data))]))
        self._disk.note(f"disk write {self.path} {position}+{len(data)} crc {zlib.crc32(data):08x}")
        self._inode.write(position, data)
        self._inode.modified_ms = self._disk.now_ms()
        self._disk.stats.bytes_written += len(data)

    def is_cached(self, position: int, length: int) -> bool:
        self._begin("stat")
        return not self._disk.is_cold()

    def truncate(self, size: int) -> None:
        self._begin("truncate")
        self._disk.note(f"disk truncate {self.path} {size}")
        self._inode.resize(size)
        self._inode.modified_ms = self._disk.now_ms()

    def sync(self) -> None:
        self._begin("sync")
        self._disk.note(f"disk sync {self.path}")
        self._inode.sync()

    def close(self) -> None:
        self._open = False

    def _begin(self, operation: str, torn: Callable[[], None] = lambda: None) -> None:
        if not self._open:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk.begin(operation, self.path, torn)


class SimMappedFile:
    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self.buffer = inode.map()
        self._open = True
        self._disk = disk
        self._inode = inode

    def reserve(self, end: int) -> None:
        self._disk.begin("reserve", self.path)

    def sync(self) -> None:
        self._disk.begin("sync", self.path)
        self._disk.note(f"disk sync {self.path}")
        self._inode.sync()

    def close(self, size: int | None = None) -> None:
        self.buffer.release()
        if not self._open:
            return
        self._open = False
        if self._disk.is_alive:
            self._inode.mappings -= 1
            if size is not None:
                self._disk.open(self.path).truncate(size)


class SimLock:
    def __init__(self, volume: Volume, path: str, owner: SimDisk) -> None:
        self._volume = volume
        self._path = path
        self._owner = owner

    def release(self) -> None:
        if self._volume.locks.get(self._path) is self._owner:
            del self._volume.locks[self._path]
