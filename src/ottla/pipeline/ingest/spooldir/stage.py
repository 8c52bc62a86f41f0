"""The stage `kind = "spooldir"`: the files of a folder into a topic, each record once."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.ingest.spooldir.checks import check_folders, check_topic
from ottla.pipeline.ingest.spooldir.settings import (
    RECORD_OVERHEAD_BYTES,
    SpoolDirSettings,
    check_settings,
    to_options,
)
from ottla.pipeline.stage import Context, Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

# librdkafka's default of message.max.bytes. It limits batches too, so a smaller value would make it slow.
_CLIENT_BYTES_MAX = 1_000_000


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

    def check(self) -> Iterator[Finding]:
        where = f"[sources.{self.name}]"
        try:
            check_settings(self.settings)
        except PipelineError as error:
            yield Finding(where, error.what, error.remedy)
        yield from check_folders(self.settings, where)
        yield from check_topic(self.settings, self.context, where)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        check_settings(self.settings)
        rows = spark.readStream.format("ottla-spooldir").options(**to_options(self.settings)).load()
        # librdkafka has a limit of its own, whatever the topic allows.
        message_bytes_max = max(_CLIENT_BYTES_MAX, self.settings.max_record_bytes + RECORD_OVERHEAD_BYTES)
        options = {"topic": self.settings.topic, "kafka.message.max.bytes": str(message_bytes_max)}
        writer = self.context.to_topics(rows, self.name, **options)
        return writer.trigger(**trigger).start()
