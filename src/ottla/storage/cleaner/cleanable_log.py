"""Measures how much of a log is dirty, and decides whether to clean it now."""

from collections.abc import Sequence
from dataclasses import dataclass

from ottla.storage.batch_scan import iter_headers
from ottla.storage.log import Log
from ottla.storage.log_config import INT64_MAX
from ottla.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class CleanableLog:
    """The clean part of a log, and the dirty part that compaction may clean now."""

    first_dirty_offset: int
    first_uncleanable_offset: int  # a segment begins there
    clean_bytes: int
    cleanable_bytes: int
    is_overdue: bool  # max.compaction.lag.ms

    @property
    def dirty_ratio(self) -> float:
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    def is_due(self, min_cleanable_dirty_ratio: float) -> bool:
        return bool(self.cleanable_bytes) and (
            self.is_overdue or self.dirty_ratio > min_cleanable_dirty_ratio
        )


def measure_log(log: Log, last_stable_offset: int, now_ms: int) -> CleanableLog:
    """Nothing beyond `last_stable_offset` is cleanable, because open transactions may still abort."""
    first_dirty = log.clean_up_to
    if first_dirty is None or not log.log_start_offset <= first_dirty <= log.log_end_offset:
        first_dirty = log.log_start_offset  # never cleaned, truncated, or records were deleted
    active = log.segments.active
    limit = min(last_stable_offset, active.base_offset)
    dirty = log.segments.from_offset(first_dirty)[:-1]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        too_recent = (segment for segment in dirty if segment.largest_timestamp > now_ms - lag_ms)
        limit = min(limit, next((segment.base_offset for segment in too_recent), limit))
    first_uncleanable = max(_segment_start(log, limit), first_dirty)
    dirty_bytes = sum(segment.size for segment in dirty)
    cleanable = [segment for segment in dirty if segment.base_offset < first_uncleanable]
    return CleanableLog(
        first_dirty,
        first_uncleanable,
        log.size_bytes - active.size - dirty_bytes,
        sum(segment.size for segment in cleanable),
        _is_overdue(dirty, log.config.max_compaction_lag_ms, now_ms),
    )


def _segment_start(log: Log, offset: int) -> int:
    """The base offset of the segment with `offset`: segments are cleaned as a whole."""
    return log.segments.from_offset(offset)[0].base_offset


def _is_overdue(dirty: Sequence[Segment], max_lag_ms: int, now_ms: int) -> bool:
    """Whether the first record of a dirty segment is older than max.compaction.lag.ms (KIP-354)."""
    if max_lag_ms == INT64_MAX:
        return False
    for segment in dirty:
        for _, header in iter_headers(segment.file, 0, segment.size):
            # The time of the first record. In a cleaned batch the base timestamp may be the delete horizon instead.
            timestamp = header.max_timestamp if header.has_delete_horizon else header.base_timestamp
            if 0 <= timestamp < now_ms - max_lag_ms:
                return True
            break
    return False
