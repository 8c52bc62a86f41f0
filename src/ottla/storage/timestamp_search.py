"""A search by timestamp in one segment. It reads and decompresses batches, so it can run in a thread."""

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
    """Searches a part of the file that appends do not change. The file stays open as long as this refers to it."""

    file: File
    position: int
    end: int
    may_match: Callable[[BatchHeader], bool]
    find: Callable[[bytes], OffsetAndTimestamp | None]

    def run(self) -> TimestampOffset | None:
        """Raises OSError, and KafkaError for an unreadable batch."""
        for position, header in iter_headers(self.file, self.position, self.end):
            if self.may_match(header):
                found = self.find(self.file.read_at(position, header.size))
                if found is not None:
                    return TimestampOffset(found.timestamp, found.offset, header.partition_leader_epoch)
        return None


def search_from_timestamp(
    file: File, position: int, end: int, timestamp: int, start_offset: int
) -> TimestampSearch:
    """Finds the first record at or after `start_offset` with `timestamp` or a greater one."""
    return TimestampSearch(
        file,
        position,
        end,
        lambda header: header.max_timestamp >= timestamp and header.last_offset >= start_offset,
        partial(find_by_timestamp, target=timestamp, start_offset=start_offset),
    )


def search_max_timestamp(file: File, position: int, end: int, timestamp: int) -> TimestampSearch:
    """Finds the first record with the segment's greatest timestamp, which is `timestamp` (KIP-734)."""
    return TimestampSearch(
        file, position, end, lambda header: header.max_timestamp == timestamp, offset_of_max_timestamp
    )
