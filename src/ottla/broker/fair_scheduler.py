"""Runs long lists of work on the event loop in small slices, so that no client waits for another's long request.

The state that the work reads may change between two slices: `work` must look up each item when it is called for it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar, overload

from ottla.broker.promise import Promise
from ottla.env.clock import Clock

T = TypeVar("T")
R = TypeVar("R")

ITEMS_PER_SLICE = 100
SLICE_MS = 5
# The results of more items take much memory: of such jobs, one runs at a time.
LONG_JOB_ITEMS = 5_000


class FairScheduler:
    """One for all connections: each turn of the event loop runs one slice of one client's job."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ready: deque[_Job[Any, Any]] = deque()
        self._delayed: deque[_Job[Any, Any]] = deque()  # long jobs that wait until the present one ends
        self._long_job: _Job[Any, Any] | None = None
        self._is_scheduled = False

    @overload
    def run(self, items: Sequence[T], work: Callable[[T], Promise[R]]) -> Promise[list[R]]: ...

    @overload
    def run(self, items: Sequence[T], work: Callable[[T], R]) -> Promise[list[R]]: ...

    def run(self, items: Sequence[T], work: Callable[[T], Any]) -> Promise[list[Any]]:
        """The results of `work` for all items, in their order. Fails with the first error.

        A list that fits one slice is processed at once.
        """
        job: _Job[T, Any] = _Job(items, work, self._job_ended)
        if len(items) <= ITEMS_PER_SLICE:
            job.run_slice(self._clock)
        if not job.is_started:
            self._add(job)
        return job.results

    def _add(self, job: "_Job[Any, Any]") -> None:
        if len(job.items) > LONG_JOB_ITEMS:
            if self._long_job is not None:
                self._delayed.append(job)
                return
            self._long_job = job
        self._ready.append(job)
        self._schedule()

    def _schedule(self) -> None:
        if self._ready and not self._is_scheduled:
            self._is_scheduled = True
            asyncio.get_running_loop().call_soon(self._run_next_slice)

    def _run_next_slice(self) -> None:
        self._is_scheduled = False
        job = self._ready.popleft()
        job.run_slice(self._clock)
        if not job.is_started:
            self._ready.append(job)
        self._schedule()

    def _job_ended(self, job: "_Job[Any, Any]") -> None:
        if job is self._long_job:
            self._long_job = None
            if self._delayed:
                self._add(self._delayed.popleft())
        elif job in self._delayed:
            self._delayed.remove(job)


class _Job(Generic[T, R]):
    """The work of one request. It ends with its last result, with an error, or when the results are abandoned."""

    def __init__(
        self,
        items: Sequence[T],
        work: "Callable[[T], R | Promise[R]]",
        on_ended: "Callable[[_Job[Any, Any]], None]",
    ) -> None:
        self.items = items
        self.results: Promise[list[R]] = Promise(self._end)
        self._work = work
        self._on_ended = on_ended
        self._values: list[R | None] = []
        self._missing = len(items)
        self._awaited: dict[int, Promise[R]] = {}
        self._has_ended = False

    @property
    def is_started(self) -> bool:
        """Whether the work for every item has started; some results may still be awaited."""
        return self._has_ended or len(self._values) == len(self.items)

    def run_slice(self, clock: Clock) -> None:
        end_ms = clock.monotonic_ms() + SLICE_MS
        try:
            for _ in range(min(ITEMS_PER_SLICE, len(self.items) - len(self._values))):
                if self._has_ended:
                    return
                self._start_next()
                if clock.monotonic_ms() >= end_ms:
                    break
        except Exception as error:
            self._fail(error)
        if not self._missing and not self._has_ended:
            self._complete()

    def _start_next(self) -> None:
        index = len(self._values)
        result = self._work(self.items[index])
        if not isinstance(result, Promise):
            self._values.append(result)
            self._missing -= 1
            return
        self._values.append(None)
        self._awaited[index] = result
        result.subscribe(partial(self._set_result, index), self._fail)

    def _set_result(self, index: int, value: R) -> None:
        del self._awaited[index]
        self._values[index] = value
        self._missing -= 1
        if not self._missing and self.is_started and not self._has_ended:
            self._complete()

    def _complete(self) -> None:
        values: list[Any] = self._values
        self._end()
        self.results.complete(values)

    def _fail(self, error: Exception) -> None:
        if not self._has_ended:
            self._end()
            self.results.fail(error)

    def _end(self) -> None:
        self._has_ended = True
        self.items = self.items[:0]
        awaited, self._awaited = self._awaited, {}
        for promise in awaited.values():
            promise.abandon()
        self._values = []
        self._on_ended(self)
