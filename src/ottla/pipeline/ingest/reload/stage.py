"""The stage `kind = "archive"` of a source: archived records back into topics, each once."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.archive.store import Archive
from ottla.pipeline.errors import PipelineError
from ottla.pipeline.files import Files, files_at
from ottla.pipeline.ingest.reload.plan import (
    Plan,
    check_unchanged,
    make_plan,
    partitions_needed,
    stream_options,
)
from ottla.pipeline.ingest.reload.settings import ReloadSettings
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.stage import Context, Finding
from ottla.pipeline.topics import missing_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_PLAN = "ottla-reload.json"


class ArchiveSource:
    Settings = ReloadSettings

    def __init__(self, name: str, settings: ReloadSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        self.path = context.path(settings.path)
        self.where = f"[sources.{name}]"

    def check(self) -> Iterator[Finding]:
        if "://" in self.path:
            return
        try:
            archive = Archive.at(self.path)
            archive.check()
            plan = make_plan(self.settings, self.path, archive.summary(), self.where)
            yield from self._check_topics(partitions_needed(plan))
        except PipelineError as error:
            yield Finding(self.where, error.what, error.remedy)

    def _check_topics(self, needed: Mapping[str, int]) -> Iterator[Finding]:
        """Missing topics, and topics with too few partitions for records to keep theirs."""
        if self.settings.partitioning != "keep":
            return
        wanted: dict[str, int] = {}
        for topic, count in needed.items():
            target = self.settings.to or topic
            wanted[target] = max(count, wanted.get(target, 0))
        present = Discovery.of_topics(self.context.cluster.options(), list(wanted)).partitions()
        yield from missing_topics(wanted, {at.topic for at in present}, self.context, self.where)
        for topic, count in wanted.items():
            has = sum(at.topic == topic for at in present)
            if 0 < has < count:
                yield Finding(
                    self.where,
                    f"The topic {topic} has {has} partitions, the archived one {count}.",
                    'Add partitions, or set partitioning = "key".',
                )

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from pyspark.sql import functions as F

        from ottla.pipeline.archive.filesystem import credentials

        plan = self._load_or_make_plan(spark, files_at(self.context.checkpoint(self.name), spark))
        options = stream_options(plan, self.settings, credentials(spark, self.path))
        rows = spark.readStream.format("ottla-archive").options(**options).load()
        topic = F.col("topic") if self.settings.to is None else F.lit(self.settings.to)
        columns = [topic.alias("topic"), *map(F.col, ("key", "value", "headers", "timestamp"))]
        if self.settings.partitioning == "keep":
            columns.append(F.col("partition"))
        writer = self.context.to_topics(rows.select(*columns), self.name, keepTimestamps="true")
        return writer.trigger(**trigger).start()

    def _load_or_make_plan(self, spark: "SparkSession", checkpoint: Files) -> Plan:
        """The plan of the first start: records that were archived later, perhaps by this very load, are not loaded."""
        if not checkpoint.exists(_PLAN):
            archive = Archive.at(self.path, spark)
            archive.check()
            plan = make_plan(self.settings, self.path, archive.summary(), self.where)
            checkpoint.create(_PLAN, plan.to_json())
        plan = Plan.from_json(checkpoint.read(_PLAN))
        check_unchanged(plan, self.settings, self.where)
        return plan
