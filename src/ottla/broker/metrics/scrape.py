"""Builds the text of all metrics in slices, so that no client of the broker waits for it."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla.broker.fair_scheduler import LONG_JOB_ITEMS, FairScheduler
from ottla.metrics import Collector, TextFormat

T = TypeVar("T")
R = TypeVar("R")

# Below the size at which a job of the scheduler makes other long jobs wait. It also bounds the text that is joined in
# one turn of the event loop.
_ITEMS_AT_ONCE = 500
assert _ITEMS_AT_ONCE <= LONG_JOB_ITEMS


async def scrape(
    collectors: Sequence[Collector], scheduler: FairScheduler, text_format: TextFormat
) -> list[bytes]:
    """The parts of the text. A family without samples is left out."""
    parts: list[bytes] = []
    for collector in list(collectors):
        collected = await _collect(collector, scheduler)
        for family, samples in zip(collector.families, collected, strict=True):
            if samples:
                parts.append(text_format.header(family).encode())
                parts += samples
    if text_format.end:
        parts.append(text_format.end.encode())
    return parts


async def _collect(collector: Collector, scheduler: FairScheduler) -> list[list[bytes]]:
    """The samples of each family."""
    collection = await collector.start()
    samples: list[list[bytes]] = [[] for _ in collector.families]
    items = collection.items
    for start in range(0, len(items), _ITEMS_AT_ONCE):
        _add(
            samples, await run_in_slices(scheduler, items[start : start + _ITEMS_AT_ONCE], collection.collect)
        )
        await asyncio.sleep(0)
    _add(samples, [collection.finish()])
    await asyncio.sleep(0)
    return samples


def _add(samples: list[list[bytes]], rows: Sequence[Sequence[str]]) -> None:
    for found, written in zip(samples, zip(*rows, strict=True), strict=True):
        if text := "".join(written):
            found.append(text.encode(errors="replace"))


async def run_in_slices(scheduler: FairScheduler, items: Sequence[T], work: Callable[[T], R]) -> list[R]:
    """The results of `work` for all items, in their order."""
    finished: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    promise = scheduler.run(items, work)
    promise.subscribe(finished.set_result, finished.set_exception)
    try:
        result: list[R] = await finished
    except asyncio.CancelledError:
        promise.abandon()
        raise
    return result
