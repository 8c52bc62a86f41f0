"""Builds the settings of a topic's logs, leaders and record checks from its effective configs."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.core.partition.leader import LeaderSettings
from ottla.model.config import BrokerConfig, topic_config
from ottla.records.compression import CODEC_OF_TYPE
from ottla.records.validate import RecordRules, RecordSettings
from ottla.storage.log_config import INT64_MAX, LogConfig

_LEVEL_OF_TYPE = {
    "gzip": "compression.gzip.level",
    "lz4": "compression.lz4.level",
    "zstd": "compression.zstd.level",
}


class TopicSettings(NamedTuple):
    log: LogConfig
    leader: LeaderSettings
    records: RecordSettings


def topic_settings(overrides: Mapping[str, str], broker: BrokerConfig) -> TopicSettings:
    configs: dict[str, Any] = topic_config(overrides, broker)
    policy = frozenset(configs["cleanup.policy"])
    log_append_time = configs["message.timestamp.type"] == "LogAppendTime"
    # The internal config is for Kafka's tests: it may be smaller than users may set.
    segment_bytes = configs["internal.segment.bytes"] or configs["segment.bytes"]
    return TopicSettings(
        log=LogConfig(
            segment_bytes=segment_bytes,
            segment_ms=_segment_ms(configs, policy),
            segment_jitter_ms=configs["segment.jitter.ms"],
            index_interval_bytes=configs["index.interval.bytes"],
            max_index_bytes=configs["segment.index.bytes"],
            retention_ms=configs["retention.ms"],
            retention_bytes=configs["retention.bytes"],
            cleanup_policy=policy,
            file_delete_delay_ms=configs["file.delete.delay.ms"],
            flush_messages=configs["flush.messages"],
            flush_ms=configs["flush.ms"],
            preallocate=configs["preallocate"],
            min_cleanable_dirty_ratio=configs["min.cleanable.dirty.ratio"],
            min_compaction_lag_ms=configs["min.compaction.lag.ms"],
            max_compaction_lag_ms=configs["max.compaction.lag.ms"],
            delete_retention_ms=configs["delete.retention.ms"],
        ),
        leader=LeaderSettings(
            max_message_bytes=configs["max.message.bytes"],
            segment_bytes=segment_bytes,
            log_append_time=log_append_time,
            timestamp_after_max_ms=configs["message.timestamp.after.max.ms"],
            min_insync_replicas=configs["min.insync.replicas"],
            replica_lag_time_max_ms=broker.get_int("replica.lag.time.max.ms"),
            deletes_records="delete" in policy,
        ),
        records=_record_settings(configs, policy, log_append_time),
    )


def _segment_ms(configs: dict[str, Any], policy: frozenset[str]) -> int:
    """Only closed segments are compacted, so max.compaction.lag.ms limits how long a segment is active (KIP-354)."""
    segment_ms: int = configs["segment.ms"]
    return min(segment_ms, configs["max.compaction.lag.ms"]) if "compact" in policy else segment_ms


def _record_settings(
    configs: dict[str, Any], policy: frozenset[str], log_append_time: bool
) -> RecordSettings:
    before = configs["message.timestamp.before.max.ms"]
    compression = configs["compression.type"]
    return RecordSettings(
        rules=RecordRules(
            require_keys="compact" in policy,
            # The leader checks the upper bound on the batch header, without reading records.
            timestamp_before_max_ms=None if log_append_time or before == INT64_MAX else before,
        ),
        codec=CODEC_OF_TYPE[compression],
        codec_level=configs[_LEVEL_OF_TYPE[compression]] if compression in _LEVEL_OF_TYPE else None,
        validates_fully=configs["ottla.record.validation"] == "full",
    )
