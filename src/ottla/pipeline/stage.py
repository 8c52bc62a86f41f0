"""The interface of a stage, and what all stages of a pipeline share. A stage is one streaming query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from ottla.model.ids import TopicPartition
from ottla.pipeline.settings import setting
from ottla.pipeline.written_bytes import WrittenBytes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from pyspark.sql.streaming.readwriter import DataStreamWriter


class Finding(NamedTuple):
    """An error or a warning that `ottla pipeline validate` reports before anything starts."""

    where: str
    what: str
    remedy: str
    is_warning: bool = False


@dataclass(frozen=True)
class ClusterSettings:
    """The table `[cluster]`: the cluster that holds the topics, Ottla or any Kafka."""

    bootstrap: str = setting("addresses of brokers, HOST:PORT, separated by commas")
    properties: dict[str, Any] = setting(
        "further settings of the clients, in librdkafka's names, such as security.protocol", {}
    )

    def client_config(self, **more: Any) -> dict[str, Any]:
        """The configuration of a confluent-kafka client."""
        return {"bootstrap.servers": self.bootstrap, **self.properties, **more}

    def options(self) -> dict[str, str]:
        """The same as options of `format("ottla")`."""
        return {f"kafka.{name}": str(value) for name, value in self.client_config().items()}


@dataclass(frozen=True)
class Context:
    """What all stages of one pipeline share. Relative paths are relative to `folder`, the folder of pipeline.toml.

    `topics` are those that the pipeline creates before its stages start, so they may still be missing.
    `sink_options` are further options of the exactly-once sink, by stage. In the folder `counts` the stages of a run
    count what they write, if someone wants to know.
    """

    pipeline: str
    cluster: ClusterSettings
    folder: Path
    checkpoints: str
    topics: frozenset[str] = frozenset()
    sink_options: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    counts: Path | None = None

    def checkpoint(self, stage: str) -> str:
        return self.path(f"{self.checkpoints.rstrip('/')}/{stage}")

    def path(self, path: str) -> str:
        """Makes a path of the configuration absolute; a URL such as s3a://bucket/folder stays as it is."""
        return path if "://" in path else str((self.folder / path).resolve())

    def sink_id(self, stage: str) -> str:
        """The id under which a stage writes exactly once. It is made of the user's names, so that it stays the same."""
        return f"{self.pipeline}.{stage}"

    def written(self, stage: str) -> WrittenBytes | None:
        return None if self.counts is None else WrittenBytes(self.counts / stage)

    def stream(self, spark: "SparkSession", topic: str, source: str = "ottla", **options: str) -> "DataFrame":
        """Reads a topic from its beginning as a stream: committed records only, with headers.

        `source` is the format: another one reads topics too, and has the same options and more.
        """
        defaults = {
            "startingOffsets": "earliest",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
        }
        reader = spark.readStream.format(source).options(**self.cluster.options()).option("subscribe", topic)
        return reader.options(**{**defaults, **options}).load()

    def to_topics(self, rows: "DataFrame", stage: str, **options: str) -> "DataStreamWriter":
        """A writer of `rows` (key, value, headers, topic, partition, timestamp), exactly once, as the stage's query."""
        from ottla.pipeline.spark import exactly_once

        written = self.written(stage)
        counting = {} if written is None else {"writtenBytes": str(written.path)}
        writer = exactly_once(rows, sink_id=self.sink_id(stage)).options(
            **{**self.cluster.options(), **self.sink_options.get(stage, {}), **counting, **options}
        )
        return writer.option("checkpointLocation", self.checkpoint(stage)).queryName(stage)


class Stage(Protocol):
    """Created as `Kind(name, settings, context)`, where `Kind.Settings` is the dataclass of its table."""

    name: str

    def check(self) -> Iterator[Finding]:
        """Checks the cluster, paths and database for what would stop the stage, without Spark."""
        ...

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        """Starts its query; `trigger` is Spark's: {"availableNow": True} or {"processingTime": "1 second"}."""
        ...


@runtime_checkable
class Guard(Protocol):
    """A stage that keeps records which would be lost without it."""

    def risks(self, spark: "SparkSession | None" = None) -> list[str]:
        """Sentences about records that will be lost soon, or are lost already; without a Spark that runs.

        `spark` is for a checkpoint that is not local, and may be a Hadoop client.
        """
        ...


class PartitionLag(Protocol):
    """How far an archive is behind one partition."""

    @property
    def at(self) -> TopicPartition: ...
    @property
    def behind(self) -> int: ...
    @property
    def deleted(self) -> int:
        """Offsets that were deleted before they were archived."""
        ...

    @property
    def used(self) -> float:
        """The share of the retention that is used up."""
        ...

    @property
    def expires_in_s(self) -> float | None:
        """When the oldest record that is not archived is deleted; None if there is none, or no limit."""
        ...


class PartitionCoverage(Protocol):
    """How much of a partition an archive covers."""

    @property
    def at(self) -> TopicPartition: ...
    @property
    def offsets(self) -> int:
        """Those that the partition has."""
        ...

    @property
    def covered(self) -> int: ...
    @property
    def holes(self) -> int:
        """Ranges of offsets before the end of the archive that it does not cover."""
        ...

    @property
    def hole_offsets(self) -> int: ...


@runtime_checkable
class Archiving(Protocol):
    """A stage that archives topics, and watches their retention and its own coverage while it runs."""

    def lags(self) -> Sequence[PartitionLag]:
        """Of each partition, by the last check; empty before the first, and after one that failed."""
        ...

    def coverage(self) -> Sequence[PartitionCoverage]:
        """The same."""
        ...
