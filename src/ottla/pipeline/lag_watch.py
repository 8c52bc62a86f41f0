"""Measures how far each stage is behind its topics, in records and in seconds, for the metrics of a run.

It asks the cluster in a thread of its own: neither a stage nor a scrape waits for a broker.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka import KafkaException

from ottla.admin.cluster import Cluster, ClusterError
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.samples import first_records
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.progress import TopicOffsets, records_behind
from ottla.pipeline.runner import StageRun
from ottla.pipeline.stage import ClusterSettings
from ottla.pipeline.topics import connect, end_offsets

_MEASURE_EVERY_S = 15.0
# A request to a broker that does not respond must not hold up the end of the run.
_STOP_S = 1.0


class StageLag(NamedTuple):
    """What the stage has to do. `ends` are the end offsets of its topics.

    `oldest_ms` is the timestamp of the oldest record before them that was not processed. It is None if there was none
    to be read: a log may end with markers of transactions.
    """

    ends: TopicOffsets
    oldest_ms: int | None

    def records(self, position: TopicOffsets) -> int:
        """`position` is where the stage is now, which may be further than at the measurement."""
        return records_behind(position, self.ends)

    def seconds(self, position: TopicOffsets, now_s: float) -> float | None:
        """None if it is behind, but no record tells since when."""
        if not self.records(position):
            return 0.0
        return None if self.oldest_ms is None else max(0.0, now_s - self.oldest_ms / 1000)


class LagWatch:
    def __init__(self, cluster: ClusterSettings, runs: Sequence[StageRun]) -> None:
        self._settings = cluster
        self._runs = runs
        self._cluster: Cluster | None = None
        # by stage; replaced as a whole, since another thread reads it
        self.lags: Mapping[str, StageLag] = {}

    @contextmanager
    def measuring(self, every_s: float = _MEASURE_EVERY_S) -> Iterator[None]:
        """Measures again and again, until the block ends."""
        stop = Event()

        def measure() -> None:
            while not stop.is_set():
                self.measure()
                stop.wait(every_s)

        thread = Thread(target=measure, name="stage-lags", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_STOP_S)

    def measure(self) -> None:
        """No stage has a lag while the cluster does not respond: an old one would look like a healthy stage."""
        positions = {run.name: position for run in self._runs if (position := run.position)}
        try:
            if positions and self._cluster is None:
                self._cluster = connect(self._settings)
            self.lags = {name: self._lag_of(position) for name, position in positions.items()}
        except (PipelineError, ClusterError, KafkaException):
            self._cluster = None
            self.lags = {}

    def _lag_of(self, position: TopicOffsets) -> StageLag:
        assert self._cluster is not None
        ends = end_offsets(self._cluster, set(position))
        starts = {
            TopicPartition(topic, partition): position[topic].get(partition, 0)
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
            if position[topic].get(partition, 0) < end
        }
        unread = first_records(self._settings, starts) if starts else {}
        oldest_ms = min((samples[0].timestamp_ms for samples in unread.values()), default=None)
        return StageLag(ends, oldest_ms)
