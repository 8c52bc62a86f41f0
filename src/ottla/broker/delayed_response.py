"""A delayed operation that ends with the response to a request."""

from typing import Any

from ottla.broker.promise import Promise
from ottla.core.purgatory import Operation


class DelayedResponse(Operation):
    """An unexpected exception fails the response: the connection closes, and no client waits forever."""

    def __init__(self, response: Promise[Any]) -> None:
        super().__init__()
        self._response = response

    def on_error(self, error: Exception) -> None:
        if not self._response.done and self._response.failure is None:
            self._response.fail(error)
