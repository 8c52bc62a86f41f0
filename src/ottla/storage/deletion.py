"""Deleted files wait for file.delete.delay.ms before their removal, because consumers may still read them."""

import contextlib
from typing import NamedTuple

from ottla.env.disk import Disk


class Deletion(NamedTuple):
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
