"""How far the archive is behind its topics, and when retention deletes records that are not archived yet."""

import logging
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import TYPE_CHECKING

from ottla.admin.cluster import ClusterError
from ottla.admin.configs import describe_configs
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.coverage import Coverage, coverage_of
from ottla.pipeline.archive.samples import Sample, first_records, mean_bytes
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import Offsets
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.topics import connect

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

_log = logging.getLogger(__name__)

# A warning comes when half of the retention is used up.
_USED_MAX = 0.5
_CHECK_EVERY_S = 60


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
    # the share of the retention that is used up, and when the oldest record that is not archived is deleted
    used: float = 0.0
    expires_in_s: float | None = None


def archive_lag(
    cluster: ClusterSettings, topics: Sequence[str], ends: Mapping[TopicPartition, int]
) -> list[Lag]:
    """For each partition of the topics that exist. `ends` are the offsets up to which they are archived.

    A partition that is not archived yet counts from its beginning.
    """
    discovery = Discovery.of_topics(cluster.options(), topics)
    partitions = sorted(discovery.partitions())
    earliest, latest = discovery.earliest(partitions), discovery.latest(partitions)
    retention = {topic: _retention_of(cluster, topic) for topic in sorted({at.topic for at in partitions})}
    starts = {at: max(ends.get(at, 0), earliest[at]) for at in partitions}
    oldest = first_records(cluster, {at: start for at, start in starts.items() if start < latest[at]})
    now_ms = time.time() * 1000
    return [
        lag_of(
            at,
            ends.get(at, earliest[at]),
            earliest[at],
            latest[at],
            retention[at.topic],
            oldest.get(at, []),
            now_ms,
        )
        for at in partitions
    ]


def lag_of(
    at: TopicPartition,
    archived_end: int,
    earliest: int,
    latest: int,
    retention: Retention,
    oldest: Sequence[Sample],
    now_ms: float,
) -> Lag:
    """`oldest` are the first records that are not archived."""
    behind = max(0, latest - max(archived_end, earliest))
    deleted = max(0, earliest - archived_end)
    if not behind or not oldest:
        return Lag(at, behind, deleted)
    used, left_s = 0.0, []
    age_s = max(0.0, now_ms - oldest[0].timestamp_ms) / 1000
    if retention.ms is not None:
        used = age_s * 1000 / max(1, retention.ms)
        left_s.append(max(0.0, retention.ms / 1000 - age_s))
    if retention.bytes is not None:
        size = behind * (mean_bytes(oldest) or 0.0)
        used = max(used, size / max(1, retention.bytes))
        if size and age_s:
            # They were written in this time, and the next ones may come as fast.
            left_s.append(max(0.0, retention.bytes - size) * age_s / size)
    return Lag(at, behind, deleted, used, min(left_s, default=None))


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
    """Logs a warning, once a minute, while the archive is close to a topic's retention. Also measures its coverage.

    It has a thread of its own: a batch must not wait for it, and it must not wait for a batch.
    """

    def __init__(
        self, cluster: ClusterSettings, topics: Sequence[str], archive: Archive, ends: Callable[[], Offsets]
    ) -> None:
        """`archive` must not be that of the batches, because it is used at the same time."""
        self._cluster = cluster
        self._topics = topics
        self._archive = archive
        self._ends = ends
        # of the last check, for metrics; replaced as a whole, since another thread reads them
        self.lags: Sequence[Lag] = ()
        self.coverage: Sequence[Coverage] = ()

    def follow(self, query: "StreamingQuery") -> Thread:
        """Checks until the query ends, in a thread."""
        thread = Thread(target=self._watch, args=[query], name="archive-retention", daemon=True)
        thread.start()
        return thread

    def _watch(self, query: "StreamingQuery") -> None:
        is_over = False
        while not is_over:
            self.check()
            try:
                is_over = bool(query.awaitTermination(_CHECK_EVERY_S))
            except Exception:
                # The query failed or Spark has ended, which the runner reports.
                is_over = True
        self.lags = self.coverage = ()

    def check(self) -> None:
        try:
            self.lags = archive_lag(self._cluster, self._topics, self._ends())
            for warning in warnings(self.lags):
                _log.warning("The archive at %s falls behind: %s", self._archive.url, warning)
        except PipelineError as error:
            self.lags = ()
            _log.warning("The retention of the topics could not be checked: %s", error)
        try:
            self.coverage = coverage_of(self._cluster, self._archive.summary(), self._topics)
        except Exception as error:
            # Storage has many errors. None of them may end the watch over the retention.
            self.coverage = ()
            _log.warning("The coverage of the archive at %s is not known: %s", self._archive.url, error)


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
