"""Which offset of a partition may be committed when its records are finished in any order. Pure."""

from collections import deque


class OffsetTracker:
    """The records of one partition that are under way, and the offset before which all are finished.

    Offsets start in the order of the log, perhaps with gaps: compaction and transaction markers leave some.
    """

    __slots__ = ("_committable", "_last_started", "_unfinished", "_window")

    def __init__(self) -> None:
        # In order: the unfinished offsets, and the finished ones behind the first unfinished.
        self._window: deque[int] = deque()
        self._unfinished: set[int] = set()
        self._last_started = -1
        self._committable: int | None = None

    @property
    def last_started(self) -> int:
        """-1 before the first."""
        return self._last_started

    def __len__(self) -> int:
        """How many records would be handled again if the partition were revoked now."""
        return len(self._window)

    def started(self, offset: int) -> None:
        if offset <= self._last_started:
            raise ValueError(
                f"offset {offset} starts after offset {self._last_started}: offsets start in order"
            )
        self._last_started = offset
        self._window.append(offset)
        self._unfinished.add(offset)

    def finished(self, offset: int) -> None:
        if offset not in self._unfinished:
            raise ValueError(
                f"offset {offset} is not under way: it was never started, or is finished already"
            )
        self._unfinished.remove(offset)
        while self._window and self._window[0] not in self._unfinished:
            self._committable = self._window.popleft() + 1

    def committable(self) -> int | None:
        """The offset to commit, or None: one past the last record that is finished with all before it."""
        return self._committable
