"""Writes with `format("ottla")`: exactly once with a sink id, at least once without one.

`make_writer` and `make_stream_writer` are for the data source, `exactly_once` and `plan` for stages. The other modules
are internal.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla.pipeline.spark.sink.columns import check_columns
from ottla.pipeline.spark.sink.options import sink_options

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter
    from pyspark.sql.types import StructType


def make_writer(options: Mapping[str, str], schema: "StructType", overwrite: bool) -> "DataSourceWriter":
    """The writer of `df.write`. Overwriting a topic is not possible: `overwrite` appends, as in Spark's own sink."""
    sink = sink_options(options, streaming=False)
    check_columns(schema, has_topic=sink.topic is not None)
    if sink.batch_id is None:
        from ottla.pipeline.spark.sink.at_least_once import AtLeastOnceBatchWriter

        return AtLeastOnceBatchWriter(sink)
    from ottla.pipeline.spark.sink.exactly_once_writers import ExactlyOnceBatchWriter

    return ExactlyOnceBatchWriter(sink, sink.batch_id)


def make_stream_writer(
    options: Mapping[str, str], schema: "StructType", overwrite: bool
) -> "DataSourceStreamWriter":
    """The writer of `df.writeStream`. Spark creates one for each micro-batch, and another for its commit."""
    sink = sink_options(options, streaming=True)
    check_columns(schema, has_topic=sink.topic is not None)
    if sink.sink_id is None:
        from ottla.pipeline.spark.sink.at_least_once import AtLeastOnceStreamWriter

        return AtLeastOnceStreamWriter(sink)
    from ottla.pipeline.spark.sink.exactly_once_writers import ExactlyOnceStreamWriter

    return ExactlyOnceStreamWriter(sink)
