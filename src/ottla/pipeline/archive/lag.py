"""How far the archive is behind its topics, and whether retention deletes records before they are archived."""

import logging
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as KafkaPartition

from ottla.admin.cluster import ClusterError
from ottla.admin.configs import describe_configs
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.manifest import Archived
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.topics import connect

_log = logging.getLogger(__name__)

# A warning comes when half of the retention is used up.
_USED_MAX = 0.5
_CHECK_EVERY_S = 60.0
_SAMPLE_RECORDS = 100
_SAMPLE_TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Retention:
    """The retention of a topic; None is without limit. A compacted topic deletes nothing by age or size."""

    ms: int | None
    bytes: int | None


@dataclass(frozen=True)
class Lag:
    """How far the archive is behind one partition. `deleted` offsets were deleted before they were archived."""

    at: TopicPartition
    behind: int
    deleted: int
    # the share of the retention that is used up, and when the oldest record that is not archived expires
    used: float = 0.0
    expires_in_s: float | None = None


def archive_lag(cluster: ClusterSettings, topics: Sequence[str], archived: Archived) -> list[Lag]:
    """For each partition of the topics that exist. A partition that is not archived yet counts from its beginning."""
    discovery = Discovery.of_topics(cluster.options(), topics)
    partitions = sorted(discovery.partitions())
    earliest, latest = discovery.earliest(partitions), discovery.latest(partitions)
    retention = {topic: _retention_of(cluster, topic) for topic in {at.topic for at in partitions}}
    lags = []
    for at in partitions:
        end = archived.ends.get(at, earliest[at])
        behind = latest[at] - max(end, earliest[at])
        oldest = _sample(cluster, at, max(end, earliest[at])) if behind > 0 else []
        lags.append(
            lag_of(at, end, earliest[at], latest[at], retention[at.topic], oldest, time.time() * 1000)
        )
    return lags


def lag_of(
    at: TopicPartition,
    archived_end: int,
    earliest: int,
    latest: int,
    retention: Retention,
    oldest: Sequence[tuple[int, int]],
    now_ms: float,
) -> Lag:
    """`oldest` are the timestamps and sizes of the first records that are not archived."""
    behind = max(0, latest - max(archived_end, earliest))
    deleted = max(0, earliest - archived_end)
    if not behind or not oldest:
        return Lag(at, behind, deleted)
    used, expires_in_s = 0.0, None
    if retention.ms is not None:
        age_ms = now_ms - oldest[0][0]
        used = age_ms / max(1, retention.ms)
        expires_in_s = max(0.0, (retention.ms - age_ms) / 1000)
    if retention.bytes is not None:
        mean_bytes = sum(size for _, size in oldest) / len(oldest)
        used = max(used, behind * mean_bytes / max(1, retention.bytes))
    return Lag(at, behind, deleted, used, expires_in_s)


def warning_of(lag: Lag) -> str | None:
    """None if there is nothing to warn of."""
    parts = []
    if lag.behind and lag.used >= _USED_MAX:
        when = f"in about {duration(lag.expires_in_s)}" if lag.expires_in_s is not None else "soon, by size"
        parts.append(f"{lag.behind} records of {lag.at} are not archived, and start to expire {when}")
    if lag.deleted:
        parts.append(f"{lag.deleted} offsets of {lag.at} were deleted before they were archived")
    return "; ".join(parts) + "." if parts else None


def warnings(lags: Iterable[Lag]) -> list[str]:
    return [warning for lag in lags if (warning := warning_of(lag))]


class RetentionWatch:
    """Logs a warning, at most once a minute, while the archive is close to a topic's retention."""

    def __init__(self, cluster: ClusterSettings, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._next_check_s = 0.0

    def check(self, archive: Archive) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_check_s:
            self._next_check_s = now_s + _CHECK_EVERY_S
            for warning in warnings(archive_lag(self._cluster, self._topics, archive.load())):
                _log.warning("The archive at %s falls behind: %s", archive.url, warning)


def duration(seconds: float) -> str:
    for unit, name in ((86_400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * unit:
            return f"{math.floor(seconds / unit)} {name}"
    return f"{math.floor(seconds)} seconds"


def _retention_of(cluster: ClusterSettings, topic: str) -> Retention:
    try:
        configs = {line.name: line.value for line in describe_configs(connect(cluster), "topic", topic)}
    except ClusterError as error:
        raise PipelineError(
            f"The configs of the topic {topic} cannot be read: {error}.", "Check the cluster."
        ) from None
    if "delete" not in (configs.get("cleanup.policy") or "delete"):
        return Retention(None, None)
    return Retention(_limit(configs.get("retention.ms")), _limit(configs.get("retention.bytes")))


def _limit(value: str | None) -> int | None:
    return None if value is None or int(value) < 0 else int(value)


def _sample(cluster: ClusterSettings, at: TopicPartition, offset: int) -> list[tuple[int, int]]:
    """Timestamps and sizes of the first records from an offset."""
    config = cluster.client_config(
        **{"group.id": "ottla-archive-lag", "enable.auto.commit": False, "log_level": 0}
    )
    consumer = Consumer(config | {"auto.offset.reset": "earliest"})
    try:
        consumer.assign([KafkaPartition(*at, offset)])
        messages: list[Any] = consumer.consume(_SAMPLE_RECORDS, _SAMPLE_TIMEOUT_S)
        return [(message.timestamp()[1], len(message)) for message in messages if message.error() is None]
    finally:
        consumer.close()
