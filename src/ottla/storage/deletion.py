"""Deletions: files that wait for their removal, and the sync that makes the deletion of logs durable."""

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from ottla.env.disk import Disk

if TYPE_CHECKING:
    from ottla.storage.log import Log
    from ottla.storage.log_dir import CheckpointWrite, LogDir


class Deletion(NamedTuple):
    """A renamed file or folder. It is removed after file.delete.delay.ms, because consumers may still read it."""

    due_ms: int
    path: str
    is_directory: bool = False

    def perform(self, disk: Disk) -> None:
        """Run it in a thread: it is slow for large files. A missing file is not an error."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_directory:
                disk.remove_tree(self.path)
            else:
                disk.remove(self.path)


@dataclass(frozen=True, slots=True)
class DeletionSync:
    """Makes the deletions in one data directory durable: syncs renamed folders and removes checkpoint entries.

    After that, a partition with the same name can be created there. The checkpoints are Kafka's files and have no topic
    id, so a stale entry would be taken for one of the new partition.
    """

    log_dir: "LogDir"
    checkpoints: list["CheckpointWrite"]
    logs: tuple["Log", ...]
    deletions: int  # the value of the counter when this was planned

    def sync(self) -> None:
        """Can run in any thread. Raises OSError."""
        for log in self.logs:
            log.wait_for_epoch_write()
        if not self.checkpoints:
            self.log_dir.sync_names()
        for checkpoint in self.checkpoints:
            checkpoint.write()  # also syncs the names in its directory

    def complete(self) -> None:
        """For the event loop, after `sync`."""
        for checkpoint in self.checkpoints:
            checkpoint.complete()
        self.log_dir.forget_renamed(self.logs)
        self.log_dir.deletions_synced = max(self.log_dir.deletions_synced, self.deletions)
