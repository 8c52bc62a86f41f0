"""A SparkSession as the pipeline needs it, with our data sources registered."""

import importlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession

from ottla.pipeline.spark.java import ensure_java

# module:class of every data source of ours, imported when a session is made
DATA_SOURCES = (
    "ottla.pipeline.spark.source:OttlaDataSource",
    "ottla.pipeline.ingest.reload.source:ArchiveDataSource",
    "ottla.pipeline.ingest.spooldir.source:SpoolDirDataSource",
)

LOGGING = Path(__file__).with_name("log4j2.properties")

CONF = {
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
    # Spark looks through the text of a Python error with an expression that takes stack for every character: with
    # Java's own stack a long one ends the thread of the query without a word.
    "spark.driver.extraJavaOptions": f"-Xss16m -Dlog4j2.configurationFile={LOGGING}",
    # A batch that runs again must give the same rows in the same partitions; adaptive plans move them.
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
}


def spark_session(
    name: str, master: str | None = "local[*]", conf: Mapping[str, str] | None = None
) -> SparkSession:
    """The session, started if there is none. `master=None` leaves it to spark-submit."""
    ensure_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    for key, value in {**CONF, **(conf or {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    return spark


def register(spark: SparkSession) -> None:
    """Makes `format("ottla")` and the sources of the pipeline's stages known to a session."""
    for source in DATA_SOURCES:
        module, _, kind = source.partition(":")
        spark.dataSource.register(getattr(importlib.import_module(module), kind))
