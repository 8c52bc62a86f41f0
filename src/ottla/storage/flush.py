"""A flush has three steps, so that the slow one can run in a thread: prepare, sync, complete."""

import contextlib
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from ottla.env.disk import Disk, File
from ottla.storage.checkpoints import encode_epoch_checkpoint
from ottla.storage.file_names import UNFLUSHED_SUFFIX, segment_file


class EpochCheckpoint:
    """The `leader-epoch-checkpoint` of a log. Flushes write it, and several may run at once in threads.

    An older flush does not overwrite the file of a newer one. None writes into the folder of a deleted log, because a
    new log may have the same name.
    """

    def __init__(self, disk: Disk, path: str, entries: list[tuple[int, int]]) -> None:
        """`entries` are in the file."""
        self.path = path
        self.lock = threading.Lock()
        self.is_deleted = False
        self._disk = disk
        self._known: list[tuple[int, int]] | None = entries  # None while a flush may write others
        self._planned = 0  # the number of writes so far
        self._written = 0  # the newest of them in the file; guarded by `lock`

    def plan(self, entries: list[tuple[int, int]]) -> "EpochWrite | None":
        """None if the file has these entries. If the write is not completed, the next flush plans another."""
        if entries == self._known:
            return None
        self._known = None
        self._planned += 1
        return EpochWrite(entries, self._planned)

    def write(self, write: "EpochWrite") -> None:
        """For a thread. Also syncs the folder. Raises OSError."""
        with self.lock:
            if not self.is_deleted and write.number > self._written:
                self._disk.write_atomically(self.path, encode_epoch_checkpoint(write.entries))
                self._written = write.number

    def complete(self, write: "EpochWrite") -> None:
        """For the event loop, after `write`."""
        if write.number == self._planned:
            self._known = write.entries


class EpochWrite(NamedTuple):
    entries: list[tuple[int, int]]
    number: int  # grows with each plan


class UnflushedMarks:
    """The `.unflushed` files of a log: a power loss may lose the end of the segment before a marked one.

    File systems keep the order of new names in a folder, but not the order of writes to two files. The mark, which is
    created before the new segment, lets recovery distinguish a lost end, after which no record may be kept, from a gap
    that compaction has left.
    """

    def __init__(self, disk: Disk, directory: str, base_offsets: Iterable[int]) -> None:
        self._disk = disk
        self._directory = directory
        self._base_offsets = list(base_offsets)  # ascending

    def add(self, base_offset: int) -> None:
        self._disk.open(segment_file(self._directory, base_offset, UNFLUSHED_SUFFIX), create=True).close()
        if base_offset not in self._base_offsets:  # an earlier roll may have failed
            self._base_offsets.append(base_offset)

    def remove(self, is_outdated: Callable[[int], bool]) -> None:
        for base_offset in [base_offset for base_offset in self._base_offsets if is_outdated(base_offset)]:
            self._base_offsets.remove(base_offset)
            with contextlib.suppress(FileNotFoundError):
                self._disk.remove(segment_file(self._directory, base_offset, UNFLUSHED_SUFFIX))


@dataclass(frozen=True, slots=True)
class FlushWork:
    """What to sync before the recovery point may move to `offset`."""

    disk: Disk
    offset: int
    generation: int  # of the log; a truncation invalidates the flush
    files: tuple[File, ...]  # of the active segment
    paths: tuple[str, ...]  # of sealed segments, snapshots and partition.metadata
    epoch_checkpoint: EpochCheckpoint
    epochs: EpochWrite | None  # None if they have not changed
    directories: tuple[str, ...]

    def sync(self) -> None:
        """Can run in any thread, concurrently with appends and reads. Raises OSError."""
        # In the order of offsets, so that no segment is on disk before the previous ones.
        for path in self.paths:
            # Retention may have removed the file meanwhile.
            with contextlib.suppress(FileNotFoundError):
                self.disk.open(path).sync()
        for file in self.files:
            file.sync()
        with contextlib.suppress(FileNotFoundError):  # the whole log may have been deleted
            if self.epochs is not None:
                self.epoch_checkpoint.write(self.epochs)
            for directory in self.directories:
                # Writing the checkpoint has already synced its directory.
                if self.epochs is None or directory != self.epoch_checkpoint.path.rpartition("/")[0]:
                    self.disk.sync_dir(directory)
