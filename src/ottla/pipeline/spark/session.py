"""Starts a SparkSession with the settings that the pipeline needs and with our data sources."""

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.pipeline.spark.java import ensure_java

# module:class of our data sources, imported when a session starts
_DATA_SOURCES = (
    "ottla.pipeline.spark.source:OttlaDataSource",
    "ottla.pipeline.ingest.reload.source:ArchiveDataSource",
    "ottla.pipeline.ingest.spooldir.source:SpoolDirDataSource",
    "ottla.pipeline.replay.source:ReplayDataSource",
)

_LOGGING = Path(__file__).with_name("log4j2.properties")

_CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Spark searches the text of a Python error with a regular expression that uses stack for every character. With
    # Java's default stack a long text ends the query's thread silently.
    "spark.driver.extraJavaOptions": f"-Xss16m -Dlog4j2.configurationFile={_LOGGING}",
    # Over TCP, each task waits about 50 ms for the end of its data, which is a small packet.
    "spark.python.unix.domain.socket.enabled": "true",
    # A batch that runs again must have the same rows in the same partitions; adaptive execution moves them.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}


def spark_session(
    name: str, master: str | None = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The running session, or a new one. With `master=None` spark-submit decides the master."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**_CONF, **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    _register(spark)
    return spark


def _register(spark: SparkSession) -> None:
    """Registers `format("ottla")` and the sources of the pipeline's stages."""
    for source in _DATA_SOURCES:
        module, _, kind = source.partition(":")
        spark.dataSource.register(getattr(importlib.import_module(module), kind))
