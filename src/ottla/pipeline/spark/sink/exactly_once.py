"""`exactly_once(df, sink_id)`: a stream into topics, of which every row arrives once."""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.columns import COLUMNS, is_headers
from ottla.pipeline.spark.sink.options import check_sink_id
from ottla.pipeline.spark.sink.plan import find_nondeterminism, fingerprint, operators_of

# Adaptive execution of stateless streams, which came with Spark 4.3 and is on by default there.
ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
ADAPTIVE_SINCE = (4, 3)


def exactly_once(df: DataFrame, sink_id: str) -> DataStreamWriter:
    """A writer of `format("ottla")` for a stream of key, value, headers, topic, partition and timestamp.

    Give it the cluster's options, `topic`, a checkpoint and a trigger, and start it. `sink_id` is a name that stays the
    same for as long as the sink does. Refuses a stream that may give other rows when a batch runs again.
    """
    sink_id = check_sink_id(sink_id)
    if not df.isStreaming:
        raise PipelineError(
            f"The rows for sink `{sink_id}` are not a stream.",
            'Write them with df.write.format("ottla") and the options `sinkId` and `batchId`.',
        )
    operators = list(operators_of(analyzed_plan(df, sink_id)))
    found = find_nondeterminism(operators)
    if found is not None:
        what, remedy = found
        raise PipelineError(f"Sink `{sink_id}` cannot be written exactly once: {what}", remedy)
    reject_adaptive_execution(df, sink_id)
    writer = with_plain_headers(df).writeStream.format("ottla")
    return writer.options(sinkId=sink_id, planFingerprint=fingerprint(operators))


def analyzed_plan(df: DataFrame, sink_id: str) -> Any:
    jvm_frame = getattr(df, "_jdf", None)
    if jvm_frame is None:
        raise PipelineError(
            f"The plan for sink `{sink_id}` cannot be seen through Spark Connect.",
            "Run the query with a session of its own (spark-submit or a local session).",
        )
    return jvm_frame.queryExecution().analyzed()


def reject_adaptive_execution(df: DataFrame, sink_id: str) -> None:
    version = tuple(int(part) for part in df.sparkSession.version.split(".")[:2])
    default = "true" if version >= ADAPTIVE_SINCE else "false"
    if df.sparkSession.conf.get(ADAPTIVE, default) == "true":
        raise PipelineError(
            f"Sink `{sink_id}` cannot be written exactly once: adaptive execution moves rows between partitions.",
            f"Set {ADAPTIVE}=false for the session.",
        )


def with_plain_headers(df: DataFrame) -> DataFrame:
    """Only the columns that are written. Null headers are several times slower on their way to Python than none."""
    df = df.select(*(name for name in df.columns if name in COLUMNS))
    if "headers" not in df.columns or not is_headers(df.schema["headers"].dataType):
        return df
    none = F.array().cast(df.schema["headers"].dataType)
    return df.withColumn("headers", F.coalesce("headers", none))
