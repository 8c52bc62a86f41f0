"""The stage `kind = "postgres"`: the changes of a PostgreSQL database into topics."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.ingest.cdc.capture import state_folder
from ottla.pipeline.ingest.cdc.postgres.checks import check_capture
from ottla.pipeline.ingest.cdc.postgres.settings import PostgresSettings, postgres_capture
from ottla.pipeline.stage import Context, Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class PostgresSource:
    Settings = PostgresSettings

    def __init__(self, name: str, settings: PostgresSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        state = state_folder(context.checkpoint(name))
        self.capture = postgres_capture(settings, name, context.sink_id(name), state)

    def check(self) -> Iterator[Finding]:
        yield from check_capture(self.capture, f"[sources.{self.name}]", self.context)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.ingest.cdc.postgres.source import PostgresDataSource

        spark.dataSource.register(PostgresDataSource)
        rows = spark.readStream.format("ottla-postgres").option("capture", self.capture.to_option()).load()
        return self.context.to_topics(rows, self.name).trigger(**trigger).start()
