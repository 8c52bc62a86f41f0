"""The stage `kind = "mysql"`: the changes of a MariaDB or MySQL server into topics."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from ottla.pipeline.ingest.cdc.capture import state_folder
from ottla.pipeline.ingest.cdc.mysql.checks import check_capture
from ottla.pipeline.ingest.cdc.mysql.settings import MySqlSettings, mysql_capture
from ottla.pipeline.stage import Context, Finding

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class MySqlSource:
    Settings = MySqlSettings

    def __init__(self, name: str, settings: MySqlSettings, context: Context) -> None:
        self.name = name
        self.settings = settings
        self.context = context
        state = state_folder(context.checkpoint(name))
        self.capture = mysql_capture(settings, name, context.sink_id(name), state)

    def check(self) -> Iterator[Finding]:
        yield from check_capture(self.capture, f"[sources.{self.name}]", self.context)

    def start(self, spark: "SparkSession", trigger: Mapping[str, Any]) -> "StreamingQuery":
        from ottla.pipeline.ingest.cdc.mysql.source import MySqlDataSource

        spark.dataSource.register(MySqlDataSource)
        rows = spark.readStream.format("ottla-mysql").option("capture", self.capture.to_option()).load()
        return self.context.to_topics(rows, self.name).trigger(**trigger).start()
