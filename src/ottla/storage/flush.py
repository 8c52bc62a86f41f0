"""A flush has three steps, so that the slow one can run in a thread: prepare, sync, complete."""

import contextlib
import threading
from dataclasses import dataclass

from ottla.env.disk import Disk, File
from ottla.storage.checkpoints import encode_epoch_checkpoint


class DeletionGuard:
    """Keeps a flush from writing into the folder of a deleted log, because a new log may have the same name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_deleted = False


@dataclass(frozen=True, slots=True)
class FlushWork:
    """What to sync before the recovery point may move to `offset`."""

    disk: Disk
    offset: int
    generation: int  # of the log; a truncation invalidates the flush
    files: tuple[File, ...]  # of the active segment
    paths: tuple[str, ...]  # of sealed segments, snapshots and partition.metadata
    epoch_checkpoint: str
    epochs: list[tuple[int, int]] | None  # to write to the checkpoint; None if they have not changed
    directories: tuple[str, ...]
    guard: DeletionGuard

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
                with self.guard.lock:
                    if not self.guard.is_deleted:
                        self.disk.write_atomically(
                            self.epoch_checkpoint, encode_epoch_checkpoint(self.epochs)
                        )
            for directory in self.directories:
                # Writing the checkpoint has already synced its directory.
                if self.epochs is None or directory != self.epoch_checkpoint.rpartition("/")[0]:
                    self.disk.sync_dir(directory)
