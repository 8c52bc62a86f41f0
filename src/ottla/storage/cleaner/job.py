"""The job of a cleaner process and its results: plain data, because they are pickled."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.log_config import LogConfig
from ottla.storage.txn_index import AbortedTxn


class LastRecord(NamedTuple):
    """The last data batch of a known producer. If it has none (-1), the epoch identifies its last marker."""

    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """Cleans the closed segments below `first_uncleanable_offset`; those from `first_dirty_offset` on are dirty."""

    topic_partition: TopicPartition
    directory: str
    segments: tuple[SegmentToClean, ...]
    first_dirty_offset: int
    first_uncleanable_offset: int
    aborted: tuple[AbortedTxn, ...]
    last_records: Mapping[int, LastRecord]  # by producer id
    config: LogConfig
    now_ms: int
    dedupe_bytes: int
    load_factor: float
    io_bytes: int
    hash_seed: int


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """A cleaned segment in `.cleaned` files, not synced yet, and the segments that it replaces."""

    base_offset: int
    replaced: tuple[int, ...]  # base offsets
    size: int
    bytes_before: int
    is_changed: bool  # if not, it equals what it would replace, and its files are removed


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The last result of a job. Once all groups are swapped in, no key has two records below `clean_up_to`."""

    clean_up_to: int
    keys: int
    map_is_full: bool
    records_read: int
    records_kept: int
    bytes_read: int
    bytes_written: int


def run_job(
    job: CleaningJob, disk: Disk, throttle: Callable[[int], None]
) -> Iterator[CleanedGroup | CleaningResult]:
    """Calls `ottla.storage.cleaner.rewrite:clean_log`. Imports it here, because only a cleaner process needs numpy."""
    from ottla.storage.cleaner.rewrite import clean_log

    yield from clean_log(job, disk, throttle)
