"""A spool directory as a stage of a pipeline: finished files of a folder into a topic, each record once."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.problems import folder_problems, topic_problems
from ottla.pipeline.ingest.spooldir.settings import RECORD_OVERHEAD_BYTES, SpoolDirSettings, check, to_options
from ottla.pipeline.stage import Context, Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# librdkafka's default of message.max.bytes, which limits its batches as well: a smaller one would make it slow.
CLIENT_BYTES_MAX = 1_000_000


class SpoolDirSource:
    Settings = SpoolDirSettings

    def __init__(self, name: str, settings: SpoolDirSettings, context: Context) -> None:
        self.name = name
        self.context = context
        self.settings = dataclasses.replace(
            settings,
            folder=context.path(settings.folder),
            done_folder=context.path(settings.done_folder) if settings.done_folder else "",
            log=context.path(settings.log) if settings.log else f"{context.checkpoint(name)}/taken",
        )

    def problems(self) -> Iterator[Problem]:
        where = f"[sources.{self.name}]"
        try:
            check(self.settings)
        except PipelineError as error:
            yield Problem(where, error.what, error.remedy)
        yield from folder_problems(self.settings, where)
        yield from topic_problems(self.settings, self.context, where)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        check(self.settings)
        rows = spark.readStream.format("ottla-spooldir").options(**to_options(self.settings)).load()
        # librdkafka has a limit of its own for what it sends, whatever the topic allows.
        message_bytes_max = max(CLIENT_BYTES_MAX, self.settings.max_record_bytes + RECORD_OVERHEAD_BYTES)
        options = {"topic": self.settings.topic, "kafka.message.max.bytes": str(message_bytes_max)}
        writer = self.context.to_topics(rows, self.name, **options)
        return writer.trigger(**trigger).start()
