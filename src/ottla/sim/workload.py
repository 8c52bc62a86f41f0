"""What the workloads of the simulation share."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from ottla.sim.history import Violation

T = TypeVar("T")

_TIME_LIMIT_S = 3600.0
# Small enough that segments roll and indexes fill in a run of a minute.
TOPIC_CONFIG = {"segment.ms": "4000", "segment.index.bytes": "240", "index.interval.bytes": "600"}


async def run_within_time_limit(run: Awaitable[T], limit_s: float = _TIME_LIMIT_S) -> T:
    """Raises Violation if the run makes no progress, and the first error if it fails."""
    try:
        async with asyncio.timeout(limit_s):
            return await run
    except TimeoutError:
        raise Violation(f"not done after {limit_s:.0f} s of virtual time: no progress") from None
    except BaseExceptionGroup as error:
        raise _first_error(error) from None


def _first_error(error: BaseException) -> BaseException:
    """The first error of a task group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
