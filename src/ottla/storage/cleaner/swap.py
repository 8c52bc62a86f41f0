"""Puts a cleaned segment in the place of those that it was made of, so that a crash leaves the old or the new.

What waits for the disk is for a worker; what the event loop does in between is a handful of names, and no append and
no reader comes in between.
"""

import contextlib
import errno
from collections.abc import Sequence

from ottla.env.disk import Disk
from ottla.storage.file_names import (
    CLEANED_SUFFIX,
    SEGMENT_SUFFIXES,
    SWAP_SUFFIX,
    segment_file,
)
from ottla.storage.log import Log
from ottla.storage.segment import Segment

# What a file system answers that has no hard links.
_WITHOUT_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class SegmentSwap:
    """Of the cleaned segment at `base_offset`, under its name with `.cleaned`. In this order:
    `announce`, `replace`, `settle`; or `announce`, `withdraw`.
    """

    def __init__(
        self, disk: Disk, log: Log, base_offset: int, replaced: Sequence[Segment], size: int
    ) -> None:
        self._disk = disk
        self._log = log
        self._base_offset = base_offset
        self._replaced = replaced
        self._size = size
        self._directory = log.directory
        self._paths: list[str] = []  # as they are to be called

    def announce(self) -> None:
        """In a worker. From here on a start completes the swap: `.swap` says that the segment is whole and wanted."""
        paths = [segment_file(self._directory, self._base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
        self._paths = [path for path in paths if self._disk.exists(path + CLEANED_SUFFIX)]
        for path in self._paths:
            file = self._disk.open(path + CLEANED_SUFFIX)
            file.sync()
            file.close()
        for path in self._paths:
            self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        self._disk.sync_dir(self._directory)

    def withdraw(self) -> None:
        """In a worker: the log has changed, and is to stay as it is."""
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):  # not announced yet, or removed by an earlier try
                self._disk.remove(path + SWAP_SUFFIX)
        self._disk.sync_dir(self._directory)

    def replace(self, now_ms: int) -> None:
        """On the event loop. Not a name is on disk after this, so each file keeps its `.swap` beside its own."""
        log = self._log
        segment = Segment(
            self._disk,
            self._directory,
            self._base_offset,
            log.config,
            size=self._size,
            now_ms=now_ms,
        )
        log.replace_segments(self._replaced, segment, now_ms)
        try:
            for path in self._paths:
                self._disk.link(path + SWAP_SUFFIX, path)
        except OSError as error:
            if error.errno not in _WITHOUT_LINKS:
                raise
            # No file system of the usual kind: the event loop has to wait for the disk.
            self._disk.sync_dir(self._directory)
            for path in self._paths:
                self._disk.rename(path + SWAP_SUFFIX, path)

    def settle(self) -> None:
        """In a worker: once all names are on disk, the swap is over. The next one syncs that, before it counts."""
        self._disk.sync_dir(self._directory)
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):  # renamed, where there are no links
                self._disk.remove(path + SWAP_SUFFIX)
