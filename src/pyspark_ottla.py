"""Makes `format("ottla")` known to any Spark session: Spark looks for modules of this name by itself."""

from ottla.pipeline.spark.source import OttlaDataSource as DefaultSource

__all__ = ["DefaultSource"]
