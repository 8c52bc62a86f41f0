"""A flush in three steps, so that the slow one can run beside the event loop: prepare, sync, completed."""

import contextlib
import threading
from dataclasses import dataclass

from ottla.env.disk import Disk, File
from ottla.storage.checkpoints import encode_epoch_checkpoint


class FolderGuard:
    """Keeps a worker from writing into the folder of a log that was deleted: another log may have its name by then."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.is_deleted = False


@dataclass(frozen=True, slots=True)
class FlushWork:
    """What must reach the disk before the recovery point may move to `offset`."""

    disk: Disk
    offset: int
    generation: int  # of the log; a truncation meanwhile makes the work void
    files: tuple[File, ...]  # open for appends
    paths: tuple[str, ...]  # sealed
    epoch_checkpoint: str
    epochs: list[tuple[int, int]] | None  # to write there, where they have changed
    directories: tuple[str, ...]
    guard: FolderGuard

    def sync(self) -> None:
        """Safe in any thread, beside appends and reads. Raises OSError."""
        # In the order of offsets, so that no segment is on disk before the ones that it follows.
        for path in self.paths:
            # Retention may have removed it meanwhile: then there is nothing to keep.
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
                # Writing the checkpoint has synced its own directory.
                if self.epochs is None or directory != self.epoch_checkpoint.rpartition("/")[0]:
                    self.disk.sync_dir(directory)
