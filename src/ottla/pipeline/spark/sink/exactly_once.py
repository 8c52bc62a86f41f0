"""`exactly_once(df, sink_id)`: writes a stream into topics, every row once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.readwriter import DataStreamWriter

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.spark.sink.columns import COLUMNS, is_headers
from ottla.pipeline.spark.sink.options import check_sink_id
from ottla.pipeline.spark.sink.plan import find_nondeterminism, fingerprint, operators_of

# Adaptive execution of stateless streams came with Spark 4.3, where it is on by default.
_ADAPTIVE = "spark.sql.adaptive.streaming.stateless.enabled"
_ADAPTIVE_SINCE = (4, 3)


def exactly_once(df: DataFrame, sink_id: str) -> DataStreamWriter:
    """A writer of `format("ottla")` for a stream with the columns key, value, headers, topic, partition, timestamp.

    Set the options of the cluster, `topic`, a checkpoint and a trigger on it, and start it. `sink_id` must stay the
    same for as long as the sink is used. Raises PipelineError for a stream whose rows may differ when a batch runs
    again.
    """
    sink_id = check_sink_id(sink_id)
    if not df.isStreaming:
        raise PipelineError(
            f"The rows for sink `{sink_id}` are not a stream.",
            'Write them with df.write.format("ottla") and the options `sinkId` and `batchId`.',
        )
    if getattr(df, "_jdf", None) is None:
        raise PipelineError(
            f"The plan for sink `{sink_id}` cannot be seen through Spark Connect.",
            "Run the query with a session of its own (spark-submit or a local session).",
        )
    operators = operators_of(df)
    found = find_nondeterminism(operators)
    if found is not None:
        what, remedy = found
        raise PipelineError(f"Sink `{sink_id}` cannot be written exactly once: {what}", remedy)
    _reject_adaptive_execution(df, sink_id)
    writer = _with_plain_headers(df).writeStream.format("ottla")
    return writer.options(sinkId=sink_id, planFingerprint=fingerprint(operators))


def _reject_adaptive_execution(df: DataFrame, sink_id: str) -> None:
    version = tuple(int(part) for part in df.sparkSession.version.split(".")[:2])
    default = "true" if version >= _ADAPTIVE_SINCE else "false"
    if df.sparkSession.conf.get(_ADAPTIVE, default) == "true":
        raise PipelineError(
            f"Sink `{sink_id}` cannot be written exactly once: adaptive execution moves rows between partitions.",
            f"Set {_ADAPTIVE}=false for the session.",
        )


def _with_plain_headers(df: DataFrame) -> DataFrame:
    """Only the columns that are written. Null headers become empty: nulls take several times longer to Python."""
    df = df.select(*(name for name in df.columns if name in COLUMNS))
    if "headers" not in df.columns or not is_headers(df.schema["headers"].dataType):
        return df
    none = F.array().cast(df.schema["headers"].dataType)
    return df.withColumn("headers", F.coalesce("headers", none))
