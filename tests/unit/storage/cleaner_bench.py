"""Cleans a log in one call; a broker does the same steps in a cleaner process, a thread and on the event loop."""

from ottla.env.disk import Disk
from ottla.storage.cleaner.cleanable_log import CleanableLog, measure_log
from ottla.storage.cleaner.job import CleanedGroup, CleaningJob, CleaningResult, LastRecord, SegmentToClean
from ottla.storage.cleaner.rewrite import clean_log
from ottla.storage.cleaner.swap import SegmentSwap
from ottla.storage.log import Log
from ottla.storage.log_config import LogConfig
from ottla.storage.txn_index import AbortedTxn

COMPACTED = LogConfig(
    segment_bytes=2000,
    index_interval_bytes=100,
    max_index_bytes=480,
    file_delete_delay_ms=1000,
    cleanup_policy=frozenset({"compact"}),
    delete_retention_ms=1000,
)
HASH_SEED = 0x0123456789ABCDEF_FEDCBA9876543210


def job_for(log: Log, dirt: CleanableLog, now_ms: int, dedupe_bytes: int = 1 << 16) -> CleaningJob:
    aborted: list[AbortedTxn] = []
    for segment in log.segments:
        segment.txn_index.collect(log.segments.base_offsets[0], log.log_end_offset + 1, aborted)
    return CleaningJob(
        topic_partition=log.topic_partition,
        directory=log.directory,
        segments=tuple(
            SegmentToClean(segment.base_offset, segment.size)
            for segment in log.segments
            if segment.base_offset < dirt.first_uncleanable_offset
        ),
        first_dirty_offset=dirt.first_dirty_offset,
        first_uncleanable_offset=dirt.first_uncleanable_offset,
        aborted=tuple(aborted),
        last_records={
            entry.producer_id: LastRecord(entry.last_offset, entry.producer_epoch)
            for entry in log.producers.entries()
        },
        config=log.config,
        now_ms=now_ms,
        dedupe_bytes=dedupe_bytes,
        load_factor=0.9,
        io_bytes=0,
        hash_seed=HASH_SEED,
    )


def clean(
    log: Log, disk: Disk, now_ms: int, *, last_stable_offset: int | None = None, dedupe_bytes: int = 1 << 16
) -> CleaningResult | None:
    """Returns None if nothing is dirty."""
    limit = log.log_end_offset if last_stable_offset is None else last_stable_offset
    dirt = measure_log(log, limit, now_ms)
    if not dirt.cleanable_bytes:
        return None
    for item in clean_log(job_for(log, dirt, now_ms, dedupe_bytes), disk, lambda size: None):
        if isinstance(item, CleaningResult):
            log.clean_up_to = item.clean_up_to
            return item
        if item.is_changed:
            swap(log, disk, item, now_ms)
    raise AssertionError("a cleaning ends with its result")


def swap(log: Log, disk: Disk, group: CleanedGroup, now_ms: int) -> None:
    replaced = [segment for segment in log.segments if segment.base_offset in group.replaced]
    segment_swap = SegmentSwap(disk, log, group.base_offset, replaced, group.size)
    segment_swap.prepare()
    segment_swap.replace(now_ms)
    segment_swap.finish()
