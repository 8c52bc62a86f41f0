"""What a cleaning is told and what it tells: plain data, since it happens in another process."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ottla.env.disk import Disk
from ottla.model.ids import TopicPartition
from ottla.storage.log_config import LogConfig
from ottla.storage.txn_index import AbortedTxn


class LastRecord(NamedTuple):
    """Of a producer that is still known: its last data, or -1 and the epoch of its last marker."""

    last_data_offset: int
    producer_epoch: int


@dataclass(frozen=True, slots=True)
class SegmentToClean:
    base_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CleaningJob:
    """The closed segments below `first_uncleanable_offset`, of which those from `first_dirty_offset` on are dirty."""

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
    """A cleaned segment, not synced yet, under its name with `.cleaned`, and what it is to replace."""

    base_offset: int
    replaced: tuple[int, ...]  # base offsets
    size: int
    bytes_before: int
    is_changed: bool  # else it is what is there already, and was not kept


@dataclass(frozen=True, slots=True)
class CleaningResult:
    """The last word of a cleaning. `clean_up_to`: below it no key has two records, once all groups are in place."""

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
    """For a worker process, which alone needs numpy: as `ottla.storage.cleaner.rewrite:clean_log`."""
    from ottla.storage.cleaner.rewrite import clean_log

    yield from clean_log(job, disk, throttle)
