"""`queued.max.request.bytes`: the memory that requests of all connections may hold together (KIP-72).

What counts is what has arrived: bytes of requests that are not whole yet, wait for their turn, or are being served.
When the limit is met, connections that hold more than their share are not read until requests are answered; the others
go on, so that few large requests do not stop many small ones. Were all of the memory held by requests that are not
whole, nobody could go on: one connection at a time may read its request to the end beyond the limit.
"""

from typing import Protocol


class MemoryHolder(Protocol):
    @property
    def unfinished_bytes(self) -> int:
        """What has arrived of a request that is not whole yet."""
        ...

    def memory_is_free(self) -> None:
        """It may read again, or should at least ask again whether it may."""
        ...


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[MemoryHolder, int] = {}
        self._waiting: dict[MemoryHolder, None] = {}  # in the order in which they came
        self._exempt: MemoryHolder | None = None  # may finish its request beyond the limit

    @property
    def is_used_up(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def hold(self, holder: MemoryHolder, size: int) -> None:
        """All that `holder` has in memory now is `size` bytes."""
        self.used_bytes += size - self._held.get(holder, 0)
        if size:
            self._held[holder] = size
        else:
            self._held.pop(holder, None)
        if holder is self._exempt and not holder.unfinished_bytes:
            self._exempt = None
        self._wake()

    def forget(self, holder: MemoryHolder) -> None:
        """The connection is closed."""
        self._waiting.pop(holder, None)
        if holder is self._exempt:
            self._exempt = None
        self.used_bytes -= self._held.pop(holder, 0)
        self._wake()

    def may_read(self, holder: MemoryHolder) -> bool:
        """Whether `holder` may read more. If not, it is told by `memory_is_free` when to ask again."""
        if (
            self.used_bytes < self.limit_bytes
            or holder is self._exempt
            or self._held.get(holder, 0) < self._share_bytes()
        ):
            self._waiting.pop(holder, None)
            return True
        if self._exempt is None and holder.unfinished_bytes and not self._will_be_freed():
            self._exempt = holder
            self._waiting.pop(holder, None)
            return True
        self._waiting[holder] = None
        return False

    def _will_be_freed(self) -> bool:
        """Whether a whole request holds memory: its answer frees it, and nobody need go beyond the limit."""
        return any(size > holder.unfinished_bytes for holder, size in self._held.items())

    def _share_bytes(self) -> int:
        """What each may hold when the limit is met: all shares together are half of it."""
        return self.limit_bytes // (2 * (len(self._held) + 1))

    def _wake(self) -> None:
        """Every holder that waits asks again; one read each is the most that they can go beyond the limit together."""
        if not self._waiting:
            return
        if self.used_bytes < self.limit_bytes:
            woken, self._waiting = list(self._waiting), {}
        elif self._exempt is None and not self._will_be_freed():
            first = next((holder for holder in self._waiting if holder.unfinished_bytes), None)
            if first is None:
                return
            woken = [first]
        else:
            return
        for holder in woken:
            holder.memory_is_free()
