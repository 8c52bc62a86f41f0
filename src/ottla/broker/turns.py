"""Long work on the event loop, a little in each turn, so that no client waits for another's long request.

What the work looks at may change between two turns: each item is looked up when it is its turn.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, overload

from ottla.broker.pending import Pending
from ottla.env.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

ITEMS_PER_TURN = 100
TURN_MS = 5
# The results of so many items take much memory: work of more is done one after the other.
LONG_WORK_ITEMS = 5_000


class Turns:
    """Of all connections together: a turn of the event loop does one slice of one client's work."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[_Work[Any, Any]] = deque()
        self._behind: deque[_Work[Any, Any]] = deque()  # long work that waits for other long work
        self._long: _Work[Any, Any] | None = None
        self._is_scheduled = False

    @overload
    def run(self, items: Sequence[T], work: Callable[[T], Pending[R]]) -> Pending[list[R]]: ...

    @overload
    def run(self, items: Sequence[T], work: Callable[[T], R]) -> Pending[list[R]]: ...

    def run(self, items: Sequence[T], work: Callable[[T], Any]) -> Pending[list[Any]]:
        """The results of `work` in the order of `items`, when the last is there; fails with the first error.

        Few items are done at once.
        """
        new: _Work[T, Any] = _Work(items, work, self._ended)
        if len(items) <= ITEMS_PER_TURN:
            new.do_slice(self._clock)
        if not new.is_begun_whole:
            self._add(new)
        return new.results

    def _add(self, work: "_Work[Any, Any]") -> None:
        if len(work.items) > LONG_WORK_ITEMS:
            if self._long is not None:
                self._behind.append(work)
                return
            self._long = work
        self._ready.append(work)
        self._schedule()

    def _schedule(self) -> None:
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_scheduled = False
        work = self._ready.popleft()
        work.do_slice(self._clock)
        if not work.is_begun_whole:
            self._ready.append(work)
        self._schedule()

    def _ended(self, work: "_Work[Any, Any]") -> None:
        if work is self._long:
            self._long = None
            if self._behind:
                self._add(self._behind.popleft())
        elif work in self._behind:
            self._behind.remove(work)


class _Work(Generic[T, R]):
    """One request's work. It ends with its last result, with an error, or when nobody wants the results any more."""

    def __init__(
        self,
        items: Sequence[T],
        work: "Callable[[T], R | Pending[R]]",
        ended: "Callable[[_Work[Any, Any]], None]",
    ) -> None:
        self.items = items
        self.results: Pending[list[R]] = Pending(self._end)
        self._work = work
        self._ended = ended
        self._values: list[R | None] = []
        self._missing = len(items)
        self._awaited: dict[int, Pending[R]] = {}
        self._is_over = False

    @property
    def is_begun_whole(self) -> bool:
        return self._is_over or len(self._values) == len(self.items)

    def do_slice(self, clock: Clock) -> None:
        end_ms = clock.now_ms() + TURN_MS
        try:
            for _ in range(min(ITEMS_PER_TURN, len(self.items) - len(self._values))):
                if self._is_over:
                    return
                self._do_next()
                if clock.now_ms() >= end_ms:
                    break
        except Exception as error:
            self._fail(error)
        if not self._missing and not self._is_over:
            self._complete()

    def _do_next(self) -> None:
        index = len(self._values)
        result = self._work(self.items[index])
        if not isinstance(result, Pending):
            self._values.append(result)
            self._missing -= 1
            return
        self._values.append(None)
        self._awaited[index] = result
        result.subscribe(partial(self._take, index), self._fail)

    def _take(self, index: int, value: R) -> None:
        del self._awaited[index]
        self._values[index] = value
        self._missing -= 1
        if not self._missing and self.is_begun_whole and not self._is_over:
            self._complete()

    def _complete(self) -> None:
        values: list[Any] = self._values
        self._end()
        self.results.complete(values)

    def _fail(self, error: Exception) -> None:
        if not self._is_over:
            self._end()
            self.results.fail(error)

    def _end(self) -> None:
        self._is_over = True
        self.items = self.items[:0]
        awaited, self._awaited = self._awaited, {}
        for pending in awaited.values():
            pending.abandon()
        self._values = []
        self._ended(self)
