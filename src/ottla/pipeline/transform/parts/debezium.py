"""Parses Debezium's change events: the operation, the row before and after it, its time and its source."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ottla.pipeline.transform.columns import mark
from ottla.pipeline.transform.parts.json import parse_json
from ottla.pipeline.transform.parts.schemas import parsed_schema

_SOURCE = (
    "connector string, name string, db string, schema string, table string, ts_ms long, snapshot string, "
    "gtid string, file string, pos long, row int, lsn long"
)
# The end of the year 9999. Spark raises an error for later times, which would stop the batch.
_TS_MS_MAX = 253_402_300_799_999
_OPS = ("c", "u", "d", "r", "t", "m")


def parse_debezium(
    rows: DataFrame, schema: str | StructType, *, column: str = "value", into: str = "change"
) -> DataFrame:
    """Adds the struct `into` with op, before, after, row (`before` of a delete, otherwise `after`), ts and source.

    `schema` is that of the table's rows. The envelope may be the whole value or its `payload`, as with schemas enabled.
    A tombstone stays null. An event without a known op, or without the row that its op needs, is marked.
    """
    envelope = _envelope_of(parsed_schema(schema))
    both = StructType(list(envelope.fields)).add("payload", envelope)
    found = parse_json(rows, both, column=column, into=into)
    whole = F.coalesce(F.col(f"{into}.payload"), F.col(into).dropFields("payload"))
    change = F.col(into)
    return mark(found.withColumn(into, whole), _change_reason(change)).withColumn(into, _as_change(change))


def _envelope_of(row: StructType) -> StructType:
    return (
        StructType()
        .add("before", row)
        .add("after", row)
        .add("source", parsed_schema(_SOURCE))
        .add("op", "string")
        .add("ts_ms", "long")
    )


def _change_reason(change: Column) -> Column:
    op = change["op"]
    return (
        F.when(change.isNull(), None)
        .when(op.isNull(), "no Debezium event: it has no `op`")
        .when(~op.isin(*_OPS), F.concat(F.lit("no Debezium event: its `op` is "), op))
        .when(op.isin("c", "u", "r") & change["after"].isNull(), "a change without the row `after` it")
        .when((op == "d") & change["before"].isNull(), "a delete without the row `before` it")
    )


def _as_change(change: Column) -> Column:
    row = F.when(change["op"] == "d", change["before"]).otherwise(change["after"])
    is_time = change["ts_ms"].between(0, _TS_MS_MAX)
    fields = (
        change["op"].alias("op"),
        change["before"].alias("before"),
        change["after"].alias("after"),
        row.alias("row"),
        F.when(is_time, F.timestamp_millis(change["ts_ms"])).alias("ts"),
        change["source"].alias("source"),
    )
    return F.when(change.isNotNull(), F.struct(*fields))
