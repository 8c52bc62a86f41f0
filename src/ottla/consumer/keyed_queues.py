"""One queue per key: items of the same key are taken one after the other, those of different keys freely. Pure."""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

_T = TypeVar("_T")


class KeyedQueues(Generic[_T]):
    """An item that was taken blocks its key until `done`. A postponed item blocks it too, until it is taken again."""

    def __init__(self) -> None:
        # A queue exists while it has an item; the first may be the one that is taken or postponed.
        self._queues: dict[Hashable, deque[_T]] = {}
        # Keys whose first item may be taken, in the order in which that became so. The values mean nothing.
        self._ready: OrderedDict[Hashable, None] = OrderedDict()
        self._taken: set[Hashable] = set()
        self._postponed: dict[Hashable, float] = {}
        # A heap of postponements; entries that `_postponed` no longer has are stale.
        self._due: list[tuple[float, int, Hashable]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, key: Hashable, item: _T) -> None:
        queue = self._queues.get(key)
        if queue is not None:
            queue.append(item)
            return
        self._queues[key] = deque((item,))
        self._ready[key] = None

    def take(self, now: float) -> _T | None:
        """The next item that is not blocked, or None."""
        self._ready_due(now)
        if not self._ready:
            return None
        key, _ = self._ready.popitem(last=False)
        self._taken.add(key)
        return self._queues[key][0]

    def done(self, key: Hashable) -> None:
        """Removes the taken item of this key; the next one may be taken."""
        self._taken.remove(key)
        queue = self._queues[key]
        queue.popleft()
        if queue:
            self._ready[key] = None
        else:
            del self._queues[key]

    def postpone(self, key: Hashable, due: float) -> None:
        """The taken item of this key may be taken again from `due` on; the items behind it wait."""
        self._taken.remove(key)
        self._postponed[key] = due
        heapq.heappush(self._due, (due, next(self._sequence), key))

    def next_due(self) -> float | None:
        """When the first postponed item may be taken."""
        while self._due and self._postponed.get(self._due[0][2]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def drop(self, is_unwanted: Callable[[_T], bool]) -> list[_T]:
        """Removes and returns unwanted items. An item that was taken stays, and blocks its key."""
        dropped: list[_T] = []
        for key in list(self._queues):
            queue = self._queues[key]
            first_kept = 1 if key in self._taken else 0
            kept = deque(item for n, item in enumerate(queue) if n < first_kept or not is_unwanted(item))
            if len(kept) == len(queue):
                continue
            dropped += [item for n, item in enumerate(queue) if n >= first_kept and is_unwanted(item)]
            self._replace(key, kept, first_is_same=bool(kept) and kept[0] is queue[0])
        return dropped

    def _replace(self, key: Hashable, queue: "deque[_T]", *, first_is_same: bool) -> None:
        if not queue:
            del self._queues[key]
            self._ready.pop(key, None)
            self._postponed.pop(key, None)
            return
        self._queues[key] = queue
        if not first_is_same and self._postponed.pop(key, None) is not None:
            self._ready[key] = None

    def _ready_due(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, key = heapq.heappop(self._due)
            del self._postponed[key]
            self._ready[key] = None
