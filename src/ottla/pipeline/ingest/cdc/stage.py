"""The stages of change capture, `kind = "mysql"` and `kind = "postgres"`: a database's changes into topics."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.ingest.cdc.checks import problems_of
from ottla.pipeline.ingest.cdc.postgres_checks import postgres_problems_of
from ottla.pipeline.ingest.cdc.postgres_settings import PostgresSettings, postgres_capture_of
from ottla.pipeline.ingest.cdc.settings import MySqlSettings, capture_of
from ottla.pipeline.stage import Context, Problem

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class MySqlSource:
    Settings = MySqlSettings

    def __init__(self, name: str, settings: MySqlSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        self.capture = capture_of(settings, name, context.sink_id(name), state_of(context, name))

    def problems(self) -> Iterator[Problem]:
        yield from problems_of(self.capture, f"[sources.{self.name}]", self.context)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.ingest.cdc.source import MySqlDataSource

        spark.dataSource.register(MySqlDataSource)
        rows = spark.readStream.format("ottla-mysql").option("capture", self.capture.to_option()).load()
        return self.context.to_topics(rows, self.name).trigger(**trigger).start()


class PostgresSource:
    Settings = PostgresSettings

    def __init__(self, name: str, settings: PostgresSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        self.capture = postgres_capture_of(settings, name, context.sink_id(name), state_of(context, name))

    def problems(self) -> Iterator[Problem]:
        yield from postgres_problems_of(self.capture, f"[sources.{self.name}]", self.context)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.ingest.cdc.postgres_source import PostgresDataSource

        spark.dataSource.register(PostgresDataSource)
        rows = spark.readStream.format("ottla-postgres").option("capture", self.capture.to_option()).load()
        return self.context.to_topics(rows, self.name).trigger(**trigger).start()


def state_of(context: Context, name: str) -> str:
    """Inside the checkpoint: whoever removes that begins anew."""
    return f"{context.checkpoint(name)}/cdc".removeprefix("file://")
