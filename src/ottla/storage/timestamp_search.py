"""A lookup by time in one segment. It reads and unpacks batches, so it is made to run beside the event loop."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from ottla.env.disk import File
from ottla.records.header import BatchHeader
from ottla.records.timestamps import OffsetAndTimestamp, find_by_timestamp, offset_of_max_timestamp
from ottla.storage.batch_scan import iter_headers


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int
    leader_epoch: int


class TimestampSearch(NamedTuple):
    """Needs only the file, which stays open as long as this refers to it, and a part of it that no append changes."""

    file: File
    position: int
    end: int
    may_hold: Callable[[BatchHeader], bool]
    find: Callable[[bytes], OffsetAndTimestamp | None]

    def run(self) -> TimestampOffset | None:
        """Raises OSError, and KafkaError for a batch that cannot be read."""
        for position, header in iter_headers(self.file, self.position, self.end):
            if self.may_hold(header):
                found = self.find(self.file.read_at(position, header.size))
                if found is not None:
                    return TimestampOffset(found.timestamp, found.offset, header.partition_leader_epoch)
        return None


def search_from(file: File, position: int, end: int, timestamp: int, start_offset: int) -> TimestampSearch:
    """For the first record at or after both `timestamp` and `start_offset`."""
    return TimestampSearch(
        file,
        position,
        end,
        lambda header: header.max_timestamp >= timestamp and header.last_offset >= start_offset,
        partial(find_by_timestamp, target=timestamp, start_offset=start_offset),
    )


def search_latest(file: File, position: int, end: int, timestamp: int) -> TimestampSearch:
    """For the first record with the segment's greatest timestamp, which is `timestamp` (KIP-734)."""
    return TimestampSearch(
        file, position, end, lambda header: header.max_timestamp == timestamp, offset_of_max_timestamp
    )
