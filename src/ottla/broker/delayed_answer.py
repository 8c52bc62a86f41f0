"""An operation of the purgatory whose end is the answer to a request."""

from typing import Any

from ottla.broker.pending import Pending
from ottla.core.purgatory import Operation


class DelayedAnswer(Operation):
    """An unexpected error in it fails the answer, so that the connection closes and no client waits for ever."""

    def __init__(self, answer: Pending[Any]) -> None:
        super().__init__()
        self._answer = answer

    def on_error(self, error: Exception) -> None:
        if not self._answer.done and self._answer.failure is None:
            self._answer.fail(error)
