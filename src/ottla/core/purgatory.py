"""Delayed requests: a produce that waits for its replicas, a fetch that waits for data.

An operation watches keys (partitions, groups). Code that changes something under a key calls `check` for it. An
operation that has not completed by its deadline expires. Each operation completes or expires once, and is then
removed from all lists.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable

from ottla.core.timing_wheel import Timer, TimingWheel


class Operation(ABC):
    """A delayed request. Either `try_complete` returns True once, or `on_expire` is called once, or one of them raises.

    An operation that raised is removed and passed to the purgatory's `on_error`; the shell then calls the operation's
    own `on_error`.
    """

    def __init__(self) -> None:
        self._keys: tuple[Hashable, ...] = ()
        self._timer: Timer[Operation] | None = None
        self._is_trying = False
        self._is_tried_again = False

    @property
    def is_waiting(self) -> bool:
        return self._timer is not None

    @abstractmethod
    def try_complete(self, now_ms: int) -> bool:
        """Completes the operation if that is possible now; returns whether it did."""

    @abstractmethod
    def on_expire(self, now_ms: int) -> None:
        """The deadline has passed: completes the operation with what is available."""

    @abstractmethod
    def on_error(self, error: Exception) -> None:
        """Another method raised `error`: sends the waiting client an error, or closes its connection."""


class Purgatory:
    """`timers.next_deadline_ms()` is the time at which `expire` must be called next.

    An operation that raises does not affect others: it is passed to `on_error`.
    """

    def __init__(self, now_ms: int, on_error: Callable[[Operation, Exception], None]) -> None:
        self._on_error = on_error
        self.timers: TimingWheel[Operation] = TimingWheel(now_ms)
        # Dicts as ordered sets: operations are tried in the order in which they were added.
        self._watchers: dict[Hashable, dict[Operation, None]] = {}

    def __len__(self) -> int:
        """The number of operations that wait."""
        return len(self.timers)

    def operations(self) -> list[Operation]:
        """The operations that wait, in no order."""
        return self.timers.items()

    @property
    def watched_keys(self) -> int:
        return len(self._watchers)

    def is_watched(self, key: Hashable) -> bool:
        return key in self._watchers

    def watch(self, operation: Operation, keys: Iterable[Hashable], deadline_ms: int) -> None:
        """Adds the operation. The caller has tried it before; it is not tried here."""
        assert operation._timer is None, "an operation waits once at a time"
        operation._keys = tuple(keys)
        operation._timer = self.timers.add(operation, deadline_ms)
        for key in operation._keys:
            watching = self._watchers.get(key)
            if watching is None:
                self._watchers[key] = {operation: None}
            else:
                watching[operation] = None

    def check(self, keys: Iterable[Hashable], now_ms: int) -> int:
        """Something changed under `keys`: tries the operations that watch them, in order; returns how many completed.

        An operation that watches several of the keys is tried once.
        """
        watching = dict.fromkeys(operation for key in keys for operation in self._watchers.get(key, ()))
        completed = 0
        for operation in watching:
            # An operation that completed may have completed others.
            if operation._timer is not None and self._try(operation, now_ms):
                completed += 1
        return completed

    def cancel(self, operation: Operation) -> None:
        """Removes an operation whose client is gone: none of its methods is called again."""
        if operation._timer is not None:
            self._remove(operation)

    def expire(self, now_ms: int) -> int:
        """Expires all operations whose deadline has passed; returns how many."""
        expired = 0
        for timer in self.timers.advance(now_ms):
            operation = timer.item
            if operation._timer is timer:
                self._remove(operation)
                try:
                    operation.on_expire(now_ms)
                except Exception as error:
                    self._on_error(operation, error)
                expired += 1
        return expired

    def _try(self, operation: Operation, now_ms: int) -> bool:
        if operation._is_trying:
            # Its own attempt changed something under a key that it watches. Try again after it, not recursively.
            operation._is_tried_again = True
            return False
        operation._is_trying = True
        try:
            while not operation.try_complete(now_ms):
                if not operation._is_tried_again:
                    return False
                operation._is_tried_again = False
        except Exception as error:
            if operation._timer is not None:
                self._remove(operation)
            self._on_error(operation, error)
            return False
        finally:
            operation._is_trying = False
        if operation._timer is not None:
            self._remove(operation)
        return True

    def _remove(self, operation: Operation) -> None:
        assert operation._timer is not None
        self.timers.cancel(operation._timer)
        operation._timer = None
        for key in operation._keys:
            watching = self._watchers.get(key)
            if watching is not None:
                watching.pop(operation, None)
                if not watching:
                    del self._watchers[key]
        operation._keys = ()
