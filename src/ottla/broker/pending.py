"""A response that is not there yet: what a handler returns when the answer has to wait."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Pending(Generic[T]):
    """Completed once, with a value; whoever subscribed is called then, or at once where it is complete already.

    Where an unexpected error keeps the value from ever coming it fails instead, and so does all that waits for it: a
    request whose answer fails closes its connection, so that no client waits for nothing. An error that the protocol
    has a code for is a value.

    Who no longer wants the value abandons it, and `on_abandon` frees what waits for it.

    A future without the event loop: a fetch that waits costs no task, and completing it runs no later callback.
    """

    __slots__ = ("_callback", "_on_failure", "_value", "done", "failure", "on_abandon")

    def __init__(self, on_abandon: Callable[[], None] | None = None) -> None:
        self.done = False
        self.failure: Exception | None = None
        self.on_abandon = on_abandon
        self._value: T | None = None
        self._callback: Callable[[T], None] | None = None
        self._on_failure: Callable[[Exception], None] | None = None

    def complete(self, value: T) -> None:
        assert not self.done, "a pending response is completed once"
        assert self.failure is None, "a pending response that failed cannot be completed"
        self.done = True
        self._value = value
        callback = self._callback
        self._let_go()
        if callback is not None:
            callback(value)

    def fail(self, error: Exception) -> None:
        assert not self.done, "a pending response that is complete cannot fail"
        self.failure = error
        on_failure = self._on_failure
        self._let_go()
        if on_failure is not None:
            on_failure(error)

    def _let_go(self) -> None:
        """What waits for this, and what this waits for, know each other: without this only a collector frees them."""
        self._callback = self._on_failure = self.on_abandon = None

    def resolve(self, result: "T | Pending[T]") -> None:
        """Completes with a value, or with that of another when it is there."""
        if isinstance(result, Pending):
            result.subscribe(self.complete, self.fail)
        else:
            self.complete(result)

    @property
    def value(self) -> T:
        assert self.done, "the value is not there yet"
        return self._value  # type: ignore[return-value]

    def subscribe(self, callback: Callable[[T], None], on_failure: Callable[[Exception], None]) -> None:
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        elif self.failure is not None:
            on_failure(self.failure)
        else:
            self._callback = callback
            self._on_failure = on_failure

    def abandon(self) -> None:
        on_abandon = self.on_abandon
        self._let_go()
        if on_abandon is not None:
            on_abandon()

    def then(self, function: "Callable[[T], R | Pending[R]]") -> "Pending[R]":
        """What `function` makes of the value, when it is there. An error that it raises fails the result."""
        after: Pending[R] = Pending(self.abandon)

        def run(value: T) -> None:
            try:
                result = function(value)
            except Exception as error:
                after.fail(error)
            else:
                after.resolve(result)

        self.subscribe(run, after.fail)
        return after


def gather(pendings: Sequence[Pending[T]]) -> Pending[list[T]]:
    """All values in the order of `pendings`, when the last one is there; fails with the first that fails."""
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

    def fail(error: Exception) -> None:
        if gathered.failure is None:
            gathered.fail(error)

    if not pendings:
        gathered.complete([])
    for index, pending in enumerate(pendings):
        pending.subscribe(partial(take, index), fail)
    return gathered


def completed(value: T) -> Pending[T]:
    pending: Pending[T] = Pending()
    pending.complete(value)
    return pending
