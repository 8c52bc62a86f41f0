"""A value that comes later: what a handler returns when its response has to wait."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Promise(Generic[T]):
    """Completed once, with a value. The subscriber is called at that moment, or at once if the value is there.

    An unexpected exception fails the promise, and with it all promises that wait for it. A request whose response
    fails closes its connection, so that no client waits forever. An error that the protocol has a code for is a value.

    A client that has disconnected abandons the promise; `on_abandon` then cancels a delayed operation. Without it the
    value still comes, and the steps of `then` still run: a request that was received takes effect.

    Unlike asyncio's Future it does not need the event loop: a delayed fetch costs no task, and the subscriber runs
    when the promise is completed, not in the next turn of the loop.
    """

    __slots__ = ("_callback", "_is_cancelled", "_on_failure", "_value", "done", "failure", "on_abandon")

    def __init__(self, on_abandon: Callable[[], object] | None = None) -> None:
        self.done = False
        self._is_cancelled = False
        self.failure: Exception | None = None
        self.on_abandon = on_abandon
        self._value: T | None = None
        self._callback: Callable[[T], None] | None = None
        self._on_failure: Callable[[Exception], None] | None = None

    def complete(self, value: T) -> None:
        assert not self.done, "a promise is completed once"
        assert self.failure is None, "a promise that failed cannot be completed"
        self.done = True
        self._value = value
        callback = self._callback
        self._drop_references()
        if callback is not None:
            callback(value)

    def fail(self, error: Exception) -> None:
        assert not self.done, "a promise that is complete cannot fail"
        self.failure = error
        on_failure = self._on_failure
        self._drop_references()
        if on_failure is not None:
            on_failure(error)

    def _drop_references(self) -> None:
        """Promises that wait for each other form cycles, which only the garbage collector would free."""
        self._callback = self._on_failure = self.on_abandon = None

    def resolve(self, result: "T | Promise[T]") -> None:
        """Completes with a value, or with that of another promise when it is there."""
        if isinstance(result, Promise):
            self.on_abandon = result.cancel
            result.subscribe(self.complete, self.fail)
            if self._is_cancelled:
                self.cancel()
        else:
            self.complete(result)

    @property
    def value(self) -> T:
        assert self.done, "the promise is not complete yet"
        return self._value  # type: ignore[return-value]

    def subscribe(self, callback: Callable[[T], None], on_failure: Callable[[Exception], None]) -> None:
        """A promise has one subscriber."""
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        elif self.failure is not None:
            on_failure(self.failure)
        else:
            self._callback = callback
            self._on_failure = on_failure

    def abandon(self) -> None:
        """The subscriber no longer waits for the value."""
        self._callback = self._on_failure = None
        self.cancel()

    def cancel(self) -> bool:
        """Cancels a delayed operation. Returns whether the value may still come."""
        self._is_cancelled = True
        on_abandon, self.on_abandon = self.on_abandon, None
        return True if on_abandon is None else bool(on_abandon())

    def then(self, function: "Callable[[T], R | Promise[R]]") -> "Promise[R]":
        """A promise of `function(value)`. It fails if `function` raises."""
        after: Promise[R] = Promise(self.cancel)

        def run(value: T) -> None:
            try:
                result = function(value)
            except Exception as error:
                after.fail(error)
            else:
                after.resolve(result)

        self.subscribe(run, after.fail)
        return after


def completed(value: T) -> Promise[T]:
    """A promise that is complete from the start."""
    promise: Promise[T] = Promise()
    promise.complete(value)
    return promise
