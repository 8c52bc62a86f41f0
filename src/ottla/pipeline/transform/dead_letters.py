"""The last step of a transform: makes records of the rows that the logic returned, and dead letters of marked rows.

Both go through one sink and differ only in their topic. So each Spark partition is one transaction, and a record is
either transformed or a dead letter, never both or neither.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.transform.columns import ERROR, ORIGIN, error_of

_HEADERS = "array<struct<key:string,value:binary>>"
_ORIGIN_PREFIX = "origin."
# An exception may quote the whole record: with the record twice, a dead letter could be too large for its topic.
_REASON_LENGTH_MAX = 1000


class Output(NamedTuple):
    """The topics of a transform. A replay sets `rename`, to write to other topics than those in use."""

    stage: str
    topics: tuple[str, ...]
    to: str
    dead_letters: str = ""
    origin_headers: bool = True
    rename: Callable[[Column], Column] = lambda topic: topic


def as_records(rows: DataFrame, output: Output) -> DataFrame:
    """key, value, headers and topic of every row that a transform returned. Raises PipelineError for wrong columns."""
    _check_columns(rows, output.stage)
    error = F.substring(error_of(rows), 1, _REASON_LENGTH_MAX)
    good = {
        "key": F.col("key").cast("binary") if "key" in rows.columns else F.lit(None).cast("binary"),
        "value": F.col("value").cast("binary"),
        "headers": _record_headers(rows, output),
        "topic": output.rename(_record_topic(rows, output)),
    }
    if ERROR not in rows.columns:
        return rows.select(*(column.alias(name) for name, column in good.items()))
    if not output.dead_letters:
        good["value"] = F.when(error.isNull(), good["value"]).otherwise(
            F.raise_error(_rejection(error, output.stage))
        )
        return rows.select(*(column.alias(name) for name, column in good.items()))
    dead = {
        "key": F.col(f"{ORIGIN}.key"),
        "value": F.col(f"{ORIGIN}.value"),
        "headers": F.concat(
            _or_empty(F.col(f"{ORIGIN}.headers")), _error_headers(error, output.stage), _origin_headers()
        ),
        "topic": output.rename(F.lit(output.dead_letters)),
    }
    # The display of a run shows this count.
    counted = rows.observe(f"{output.stage}.dead_letters", F.count(error).alias("dead_letters"))
    return counted.select(
        *(F.when(error.isNull(), good[name]).otherwise(dead[name]).alias(name) for name in good)
    )


def _record_topic(rows: DataFrame, output: Output) -> Column:
    """A row that still has the topic it was read from goes to `to`: written back, it would be read forever."""
    if "topic" not in rows.columns:
        return F.lit(output.to)
    topic = F.col("topic")
    return F.when(topic.isNull() | topic.isin(*output.topics), F.lit(output.to)).otherwise(topic)


def _record_headers(rows: DataFrame, output: Output) -> Column:
    """The headers that the logic returned, with the origin of this record in place of an earlier origin."""
    given = _or_empty(F.col("headers")) if "headers" in rows.columns else F.array().cast(_HEADERS)
    if not output.origin_headers or ORIGIN not in rows.columns:
        return given
    others = F.filter(given, lambda header: ~header["key"].startswith(_ORIGIN_PREFIX))
    return F.concat(others, _origin_headers())


def _origin_headers() -> Column:
    fields = {name: F.col(f"{ORIGIN}.{name}").cast("string") for name in ("topic", "partition", "offset")}
    fields["timestamp"] = F.unix_millis(F.col(f"{ORIGIN}.timestamp")).cast("string")
    return F.array(*(_header(f"{_ORIGIN_PREFIX}{name}", value) for name, value in fields.items()))


def _error_headers(error: Column, stage: str) -> Column:
    return F.array(_header("error.reason", error), _header("error.stage", F.lit(stage)))


def _header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))


def _or_empty(headers: Column) -> Column:
    return F.coalesce(headers, F.array().cast(_HEADERS))


def _rejection(error: Column, stage: str) -> Column:
    """The error with which a transform without dead letters stops."""
    place = [F.col(f"{ORIGIN}.{name}").cast("string") for name in ("topic", "partition", "offset")]
    return F.concat(
        F.lit(f"The transform {stage} rejects the record of topic "),
        place[0],
        F.lit(", partition "),
        place[1],
        F.lit(", offset "),
        place[2],
        F.lit(": "),
        error,
        F.lit(f". Set `dead_letters` in [transforms.{stage}], or fix its function, and start it again."),
    )


def _check_columns(rows: DataFrame, stage: str) -> None:
    types = {field.name: field.dataType for field in rows.schema}
    if "value" not in types:
        raise PipelineError(
            f"The transform {stage} returned rows without a column `value`; they have: {', '.join(types) or 'none'}.",
            "Return at least `value`, and `key`, `headers` and `topic` as you need them.",
        )
    for name in ("key", "value", "topic", ERROR):
        if name in types and not isinstance(types[name], _allowed_types(name)):
            raise PipelineError(
                f"The transform {stage} returned the column `{name}` as {types[name].simpleString()}.",
                "It must be text or bytes: use write_json(rows, ...), or cast it.",
            )
    if "headers" in types and types["headers"].simpleString() != _HEADERS:
        raise PipelineError(
            f"The transform {stage} returned the column `headers` as {types['headers'].simpleString()}.",
            f"It must be {_HEADERS}.",
        )
    if ERROR in types and ORIGIN not in types:
        raise PipelineError(
            f"The transform {stage} returned `{ERROR}` without `{ORIGIN}`, so its dead letters would be empty.",
            f"Keep `{ORIGIN}` where it selects columns.",
        )


def _allowed_types(name: str) -> tuple[type[DataType], ...]:
    return (StringType, BinaryType) if name in ("key", "value") else (StringType,)
