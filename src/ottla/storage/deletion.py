"""Files that wait for their removal: readers may still be at them, so Kafka gives them file.delete.delay.ms."""

import contextlib
from typing import NamedTuple

from ottla.env.disk import Disk


class Deletion(NamedTuple):
    due_ms: int
    path: str
    is_directory: bool = False

    def perform(self, disk: Disk) -> None:
        """Slow for large files: for a worker. What is gone already is as good as removed."""
        with contextlib.suppress(FileNotFoundError):
            if self.is_directory:
                disk.remove_tree(self.path)
            else:
                disk.remove(self.path)
