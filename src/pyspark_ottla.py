"""Registers `format("ottla")` in every Spark session: Spark imports all modules named `pyspark_*` by itself."""

from ottla.pipeline.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
