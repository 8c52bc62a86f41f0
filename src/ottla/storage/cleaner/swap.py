"""Replaces segments of a log with the cleaned segment that was made of them. A crash leaves the old or the new ones.

The steps that wait for the disk run in a thread. The replacement itself only renames files. It runs on the event loop,
so that no append and no read comes in between.
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

# Errors of a file system without hard links.
_NO_HARD_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS})


class SegmentSwap:
    """Swaps in the cleaned segment at `base_offset`, which is in `.cleaned` files.

    Call `prepare`, `replace` and `finish`, or `prepare` and `abort`.
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
        self._paths: list[str] = []  # the final names

    def prepare(self) -> None:
        """For a thread. Renames `.cleaned` to `.swap`: after this, the next start of the broker completes the swap."""
        paths = [segment_file(self._directory, self._base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
        self._paths = [path for path in paths if self._disk.exists(path + CLEANED_SUFFIX)]
        for path in self._paths:
            file = self._disk.open(path + CLEANED_SUFFIX)
            file.sync()
            file.close()
        for path in self._paths:
            self._disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
        self._disk.sync_dir(self._directory)

    def abort(self) -> None:
        """For a thread. The log has changed meanwhile, so its segments stay."""
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):  # not renamed yet, or removed by an earlier try
                self._disk.remove(path + SWAP_SUFFIX)
        self._disk.sync_dir(self._directory)

    def replace(self, now_ms: int) -> None:
        """For the event loop. No name is synced here, so each file keeps its `.swap` name as well until `finish`."""
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
            if error.errno not in _NO_HARD_LINKS:
                raise
            # Without hard links, the event loop has to wait for the disk.
            self._disk.sync_dir(self._directory)
            for path in self._paths:
                self._disk.rename(path + SWAP_SUFFIX, path)

    def finish(self) -> None:
        """For a thread. Syncs the names and removes those with `.swap`. The next swap syncs the removal."""
        self._disk.sync_dir(self._directory)
        for path in self._paths:
            with contextlib.suppress(FileNotFoundError):  # renamed, on a file system without hard links
                self._disk.remove(path + SWAP_SUFFIX)
