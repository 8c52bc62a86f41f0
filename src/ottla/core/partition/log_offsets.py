"""Where the log of a partition starts and ends.

The log owns the offsets and moves them. The partition leader reads the same object, so the two never differ. The object
stays the same if the log moves to another data directory.
"""

from typing import Protocol


class LogOffsets(Protocol):
    """The log start offset and the log end offset, read-only."""

    @property
    def start(self) -> int: ...

    @property
    def end(self) -> int: ...


class MutableLogOffsets:
    """Only the log may move them."""

    __slots__ = ("end", "start")

    def __init__(self, start: int, end: int) -> None:
        self.start = start
        self.end = end
