"""Where requests wait that cannot be answered yet: a produce for its replicas, a fetch for its bytes.

An operation watches keys (partitions, groups). Whoever changes something under a key checks it; what has not
completed by its deadline expires. It completes once, and then no list knows it any more.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable

from ottla.core.timing_wheel import Timer, TimingWheel


class Operation(ABC):
    """What waits. Either `try_complete` returns True once, or `on_expire` is called once, or one of them raises.

    One that raised is removed and handed to the purgatory's `on_error`; the shell calls the operation's own then.
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
        """Completes the operation where that is possible now, and says whether it was."""

    @abstractmethod
    def on_expire(self, now_ms: int) -> None:
        """Completes the operation with what there is, its time being over."""

    @abstractmethod
    def on_error(self, error: Exception) -> None:
        """Another method raised `error`: releases the client that waits, by an error or by closing its connection."""


class Purgatory:
    """`timers.next_deadline_ms()` says when `expire` is to be called next.

    An operation that raises harms no other: `on_error` gets it, and the rest goes on.
    """

    def __init__(self, now_ms: int, on_error: Callable[[Operation, Exception], None]) -> None:
        self._on_error = on_error
        self.timers: TimingWheel[Operation] = TimingWheel(now_ms)
        # Dicts as ordered sets: operations are tried in the order in which they came, and leave at once.
        self._watchers: dict[Hashable, dict[Operation, None]] = {}

    def __len__(self) -> int:
        """Operations that wait."""
        return len(self.timers)

    @property
    def watched_keys(self) -> int:
        return len(self._watchers)

    def is_watched(self, key: Hashable) -> bool:
        return key in self._watchers

    def watch(self, operation: Operation, keys: Iterable[Hashable], deadline_ms: int) -> None:
        """Lets the operation wait, which the caller has tried before: nothing is tried here."""
        assert operation._timer is None, "an operation waits once at a time"
        operation._keys = tuple(keys)
        operation._timer = self.timers.add(operation, deadline_ms)
        for key in operation._keys:
            watching = self._watchers.get(key)
            if watching is None:
                self._watchers[key] = {operation: None}
            else:
                watching[operation] = None

    def check(self, key: Hashable, now_ms: int) -> int:
        """Something changed under `key`: tries what watches it, in order; answers how many completed."""
        watching = self._watchers.get(key)
        if watching is None:
            return 0
        completed = 0
        for operation in list(watching):
            # One that completed may have completed others on its way.
            if operation._timer is not None and self._try(operation, now_ms):
                completed += 1
        return completed

    def cancel(self, operation: Operation) -> None:
        """Nobody waits for it any more (its connection is gone): neither of its methods is called again."""
        if operation._timer is not None:
            self._remove(operation)

    def expire(self, now_ms: int) -> int:
        """Ends the wait of all whose deadline has come; answers how many expired."""
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
            # Its own attempt changed something that it watches. It must look again, but not from within.
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
