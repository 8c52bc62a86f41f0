"""Retries while a database cannot be reached."""

import time
from collections.abc import Callable
from typing import TypeVar

from ottla.pipeline.errors import RetriableError
from ottla.pipeline.ingest.cdc.capture import DatabaseCapture

RETRY_PAUSE_S = 0.5

_Capture = TypeVar("_Capture", bound=DatabaseCapture)
_Result = TypeVar("_Result")


def with_retries(capture: _Capture, ask: Callable[[_Capture], _Result]) -> _Result:
    """Calls `ask` again after a RetriableError, for `retry_s` of the settings."""
    give_up = time.monotonic() + capture.retry_s
    while True:
        try:
            return ask(capture)
        except RetriableError:
            if time.monotonic() > give_up:
                raise
            time.sleep(RETRY_PAUSE_S)
