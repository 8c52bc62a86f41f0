"""A response that is not there yet: what a handler returns when the answer has to wait."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


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

    def subscribe(self, callback: Callable[[T], None]) -> None:
        if self.done:
            callback(self._value)  # type: ignore[arg-type]
        else:
            self._callback = callback

    def abandon(self) -> None:
        self._callback = None
        if not self.done and self.on_abandon is not None:
            self.on_abandon()
