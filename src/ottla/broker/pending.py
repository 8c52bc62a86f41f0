"""A response that is not there yet: what a handler returns when the answer has to wait."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Pending(Generic[T]):
    """Completed once, with a value; whoever subscribed is called then, or at once where it is complete already.

    A future without the event loop: a fetch that waits costs no task, and completing it runs no later callback.
    """

    __slots__ = ("_callback", "_value", "done")

    def __init__(self) -> None:
        self.done = False
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
