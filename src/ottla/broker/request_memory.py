"""`queued.max.request.bytes`: the memory that requests of all connections may hold together (KIP-72).

Only received bytes count: of requests that are incomplete, that wait, or that are being served. When the limit is
reached, connections that hold more than their share are not read until requests are complete; the others are, so that a
few large requests do not stop many small ones. If incomplete requests hold all of the memory, none could be completed:
one connection at a time may then read its request to the end beyond the limit.
"""

from typing import Protocol


class MemoryHolder(Protocol):
    @property
    def unfinished_bytes(self) -> int:
        """The received bytes of an incomplete request."""
        ...

    def memory_available(self) -> None:
        """The holder should call `may_read` again."""
        ...


class RequestMemory:
    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.used_bytes = 0
        self._held: dict[MemoryHolder, int] = {}
        self._waiting: dict[MemoryHolder, None] = {}  # in the order of their first call
        self._exempt: MemoryHolder | None = None  # may complete its request beyond the limit

    @property
    def is_used_up(self) -> bool:
        return self.used_bytes >= self.limit_bytes

    def hold(self, holder: MemoryHolder, size: int) -> None:
        """Sets the bytes that `holder` has in memory."""
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
        """Whether `holder` may read more. If not, `memory_available` is called when it should ask again."""
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
        """Whether a complete request holds memory: its response frees it, so that nobody needs to exceed the limit."""
        return any(size > holder.unfinished_bytes for holder, size in self._held.items())

    def _share_bytes(self) -> int:
        """The bytes that each holder may have when the limit is reached. All shares together are half of it."""
        return self.limit_bytes // (2 * (len(self._held) + 1))

    def _wake(self) -> None:
        """Lets the waiting holders ask again. Together they can exceed the limit by one read each."""
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
            holder.memory_available()
