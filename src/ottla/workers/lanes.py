"""Queues side by side: items of one lane are taken strictly one after the other, those of others freely. Pure."""

import heapq
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T")


class Lanes(Generic[T]):
    """An item that is taken keeps its lane closed until `done`, or until it was put off and taken again and is done."""

    def __init__(self) -> None:
        # A lane exists while it has an item; its first may be the one that is taken or put off.
        self._lanes: dict[Hashable, deque[T]] = {}
        # Lanes whose first item may be taken, in the order in which that became so: only the keys count.
        self._ready: OrderedDict[Hashable, None] = OrderedDict()
        self._taken: set[Hashable] = set()
        self._put_off: dict[Hashable, float] = {}
        self._due: list[tuple[float, int, Hashable]] = []
        self._sequence = count()

    def __len__(self) -> int:
        return sum(map(len, self._lanes.values()))

    def put(self, lane: Hashable, item: T) -> None:
        queue = self._lanes.get(lane)
        if queue is not None:
            queue.append(item)
            return
        self._lanes[lane] = deque((item,))
        self._ready[lane] = None

    def take(self, now: float) -> T | None:
        """The next item that may begin, None where every lane is empty, taken or put off."""
        self._admit_due(now)
        if not self._ready:
            return None
        lane, _ = self._ready.popitem(last=False)
        self._taken.add(lane)
        return self._lanes[lane][0]

    def done(self, lane: Hashable) -> None:
        """The item taken from the lane is finished with; the next of the lane may be taken."""
        self._taken.remove(lane)
        queue = self._lanes[lane]
        queue.popleft()
        if queue:
            self._ready[lane] = None
        else:
            del self._lanes[lane]

    def put_off(self, lane: Hashable, due: float) -> None:
        """The item taken from the lane is to be taken again, not before `due`; those behind it wait."""
        self._taken.remove(lane)
        self._put_off[lane] = due
        heapq.heappush(self._due, (due, next(self._sequence), lane))

    def next_due(self) -> float | None:
        """When the first of the items that were put off may be taken."""
        while self._due and self._put_off.get(self._due[0][2]) != self._due[0][0]:
            heapq.heappop(self._due)
        return self._due[0][0] if self._due else None

    def drop(self, unwanted: Callable[[T], bool]) -> list[T]:
        """Takes out the items that are unwanted and not taken, and returns them. A taken item keeps its lane."""
        dropped: list[T] = []
        for lane in list(self._lanes):
            queue = self._lanes[lane]
            first_kept = 1 if lane in self._taken else 0
            kept = deque(item for n, item in enumerate(queue) if n < first_kept or not unwanted(item))
            if len(kept) == len(queue):
                continue
            dropped += [item for n, item in enumerate(queue) if n >= first_kept and unwanted(item)]
            self._replace(lane, kept, first_is_same=bool(kept) and kept[0] is queue[0])
        return dropped

    def _replace(self, lane: Hashable, queue: "deque[T]", *, first_is_same: bool) -> None:
        if not queue:
            del self._lanes[lane]
            self._ready.pop(lane, None)
            self._put_off.pop(lane, None)
            return
        self._lanes[lane] = queue
        if not first_is_same and self._put_off.pop(lane, None) is not None:
            self._ready[lane] = None

    def _admit_due(self, now: float) -> None:
        while (due := self.next_due()) is not None and due <= now:
            _, _, lane = heapq.heappop(self._due)
            del self._put_off[lane]
            self._ready[lane] = None
