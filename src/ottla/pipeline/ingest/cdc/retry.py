"""Asking a database that may be away for a while."""

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

from ottla.pipeline.errors import PassingError

RETRY_PAUSE_S = 0.5


class Patient(Protocol):
    @property
    def retry_s(self) -> float: ...


Asked = TypeVar("Asked", bound=Patient)
Answer = TypeVar("Answer")


def waiting(capture: Asked, ask: Callable[[Asked], Answer]) -> Answer:
    """Asks again while the database is away, for as long as the settings allow."""
    until = time.monotonic() + capture.retry_s
    while True:
        try:
            return ask(capture)
        except PassingError:
            if time.monotonic() > until:
                raise
            time.sleep(RETRY_PAUSE_S)
