"""The timestamps of the records that groups read next, for their lag in seconds.

A timestamp is read from the record at the committed offset, never estimated from others. A record does not change, so
it is read once for each committed offset: a scrape of groups that stand still reads nothing. The reads of one scrape
are limited. If more offsets have changed, the others have their turn in the next scrapes, and no value until then.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple
from uuid import UUID

from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.services import BrokerServices
from ottla.model.errors import KafkaError
from ottla.model.region import FileRegion
from ottla.records.header import read_header
from ottla.records.timestamps import find_by_timestamp
from ottla.storage.segments import ColdLookup

LOOKUPS_MAX = 1000
_BUDGET_MS = 1000
_LOOKUPS_AT_ONCE = 20  # finding their batches takes about a millisecond
# Batches without a record for the consumer: markers of transactions, and those that compaction has emptied.
_SKIPPED_BATCHES_MAX = 16
_ANY_TIMESTAMP = -(1 << 62)

Key = tuple[str, str, int]  # group, topic, partition


class _Found(NamedTuple):
    """`timestamp` is None if there was no record between `offset` and `end`."""

    topic_id: UUID
    offset: int
    timestamp: int | None
    end: int

    def is_for(self, hosted: HostedPartition, offset: int) -> bool:
        if (self.topic_id, self.offset) != (hosted.topic_id, offset):
            return False
        return self.timestamp is not None or self.end == hosted.role.high_watermark


class Lookup(NamedTuple):
    key: Key
    hosted: HostedPartition
    offset: int  # the committed one
    position: int  # where to search


class LagTimes:
    def __init__(self, services: BrokerServices) -> None:
        self._services = services
        self._found: dict[Key, _Found] = {}
        self._cursor = 0

    def keep(self, kept: dict[Key, _Found], key: Key, hosted: HostedPartition, offset: int) -> Lookup | None:
        """Adds what is known to `kept`. Returns the lookup if nothing is, and there may be a record."""
        found = self._found.get(key)
        if found is not None and found.is_for(hosted, offset):
            kept[key] = found
            return None
        if offset >= hosted.role.high_watermark:
            return None
        return Lookup(key, hosted, offset, max(offset, hosted.log.log_start_offset))

    async def look_up(self, kept: dict[Key, _Found], lookups: Sequence[Lookup]) -> None:
        """Reads as many records as one scrape may, and forgets the groups that are not in `kept`."""
        clock = self._services.env.clock
        deadline_ms = clock.monotonic_ms() + _BUDGET_MS
        first = self._cursor % len(lookups) if lookups else 0
        chosen = [
            *lookups[first : first + LOOKUPS_MAX],
            *lookups[: max(0, first + LOOKUPS_MAX - len(lookups))],
        ]
        chosen = chosen[: len(lookups)]
        for start in range(0, len(chosen), _LOOKUPS_AT_ONCE):
            if clock.monotonic_ms() > deadline_ms:
                break
            some = chosen[start : start + _LOOKUPS_AT_ONCE]
            self._cursor = first + start + len(some)
            await self._look_up(kept, some)
        self._found = kept

    def seconds(self, key: Key, hosted: HostedPartition, offset: int) -> float | None:
        """How old the next record is; 0 if there is none. None if it is not known."""
        if offset >= hosted.role.high_watermark:
            return 0
        found = self._found.get(key)
        if found is None or not found.is_for(hosted, offset):
            return None
        if found.timestamp is None:
            return 0
        if found.timestamp < 0:  # the producer gave it none
            return None
        return max(0, self._services.env.clock.now_ms() - found.timestamp) / 1000

    async def _look_up(self, kept: dict[Key, _Found], lookups: Sequence[Lookup]) -> None:
        for _ in range(_SKIPPED_BATCHES_MAX):
            works = []
            for lookup in lookups:
                hosted = lookup.hosted
                end = hosted.role.high_watermark
                if hosted.is_closed or hosted.failure is not None:
                    continue
                if lookup.position >= end:
                    kept[lookup.key] = _Found(hosted.topic_id, lookup.offset, None, end)
                elif (region := await self._region(lookup, end)) is not None:
                    works.append((lookup, end, partial(_read, region, lookup.position)))
            results = await self._services.env.threads.run(partial(_run, [work for _, _, work in works]))
            lookups = []
            for (lookup, end, _), result in zip(works, results, strict=True):
                if result is None:
                    continue
                timestamp, next_offset = result
                if timestamp is None:
                    lookups.append(lookup._replace(position=next_offset))
                else:
                    kept[lookup.key] = _Found(lookup.hosted.topic_id, lookup.offset, timestamp, end)
            if not lookups:
                return

    async def _region(self, lookup: Lookup, end: int) -> FileRegion | None:
        """The batch with the next record; None if it cannot be found. Whoever reads it meets a failure of the disk."""
        read = partial(lookup.hosted.log.read, lookup.position, 1, end_offset=end, at_least_one=True)
        try:
            try:
                found = read(may_block=False)
            except ColdLookup as cold:
                await self._services.env.threads.run(cold.warm)
                if lookup.hosted.is_closed:
                    return None
                found = read()
        except (KafkaError, OSError):
            return None
        return found.region if found.region.length else None


def _run(works: "Sequence[partial[tuple[int | None, int]]]") -> list[tuple[int | None, int] | None]:
    """Runs in a thread."""
    results: list[tuple[int | None, int] | None] = []
    for work in works:
        try:
            results.append(work())
        except (KafkaError, OSError):
            results.append(None)
    return results


def _read(region: FileRegion, offset: int) -> tuple[int | None, int]:
    """The timestamp of the first record from `offset` on, if the batch has one, and the offset after the batch."""
    data = region.read()
    header = read_header(data)
    found = None if header.is_control else find_by_timestamp(data, _ANY_TIMESTAMP, offset)
    return None if found is None else found.timestamp, header.next_offset
