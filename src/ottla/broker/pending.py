"""A response that is not there yet: what a handler returns when the answer has to wait."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Pending(Generic[T]):
    """Completed once, with a value; whoever subscribed is called then, or at once where it is complete already.

    Who no longer wants the value abandons it, and `on_abandon` frees what waits for it.

    A future without the event loop: a fetch that waits costs no task, and completing it runs no later callback.
    """

    __slots__ = ("_callback", "_value", "done", "on_abandon")

    def __init__(self, on_abandon: Callable[[], None] | None = None) -> None:
        self.done = False
        self.on_abandon = on_abandon
        self._value: T | None = None
        self._callback: Callable[[T], None] | None = None

    def complete(self, value: T) -> None:
        assert not self.done, "a pending response is completed once"
        self.done = True
        self._value = value
        if self._callback is not None:
            self._callback(value)

    @property
    def value(self) -> T:
        assert self.done, "the value is not there yet"
        return self._value  # type: ignore[return-value]

    def subscribe(self, callback: Callable[[T], None]) -> None:
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        else:
            self._callback = callback

    def abandon(self) -> None:
        self._callback = None
        if not self.done and self.on_abandon is not None:
            self.on_abandon()

    def then(self, function: Callable[[T], R]) -> "Pending[R]":
        """What `function` makes of the value, when it is there."""
        after: Pending[R] = Pending(self.abandon)
        self.subscribe(lambda value: after.complete(function(value)))
        return after


def gather(pendings: Sequence[Pending[T]]) -> Pending[list[T]]:
    """All values in the order of `pendings`, when the last one is there."""
    missing = len(pendings)
    values: list[T | None] = [None] * missing

    def abandon() -> None:
        for pending in pendings:
            pending.abandon()

    gathered: Pending[list[T]] = Pending(abandon)

    def take(index: int, value: T) -> None:
        nonlocal missing
        values[index] = value
        missing -= 1
        if missing == 0:
            gathered.complete(values)  # type: ignore[arg-type]

    if not pendings:
        gathered.complete([])
    for index, pending in enumerate(pendings):
        pending.subscribe(partial(take, index))
    return gathered


def completed(value: T) -> Pending[T]:
    pending: Pending[T] = Pending()
    pending.complete(value)
    return pending
