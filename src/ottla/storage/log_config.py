"""The topic configs that storage uses, with Kafka's names and defaults."""

from dataclasses import dataclass

_DAY_MS = 24 * 60 * 60 * 1000
INT64_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * _DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    max_index_bytes: int = 10 * 1024 * 1024  # segment.index.bytes
    retention_ms: int = 7 * _DAY_MS  # -1: for ever
    retention_bytes: int = -1  # -1: any size
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    file_delete_delay_ms: int = 60_000
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    preallocate: bool = False
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    delete_retention_ms: int = _DAY_MS
