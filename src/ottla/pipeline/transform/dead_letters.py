"""The end of a transform: rows as a function returned them become records, the marked ones dead letters.

Both kinds go through one sink, told apart by their topic alone: one pass, and one transaction for each partition, so a
record is either transformed or a dead letter, and never both or neither.
"""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, DataType, StringType

from ottla.pipeline.errors import PipelineError
from ottla.pipeline.transform.columns import ERROR, ORIGIN, error_of

HEADERS = "array<struct<key:string,value:binary>>"
ORIGIN_PREFIX = "origin."
# An exception may quote the whole record: with it twice, a dead letter could be too large for its topic.
REASON_LENGTH_MAX = 1000

Rename = Callable[[Column], Column]


class Output(NamedTuple):
    """Where the rows of a transform go. `rename` is how a replay keeps away from the topics in use."""

    stage: str
    topics: tuple[str, ...]
    to: str
    dead_letters: str = ""
    origin_headers: bool = True
    rename: Rename = lambda topic: topic


def as_records(rows: DataFrame, ending: Output) -> DataFrame:
    """key, value, headers and topic of every row that a transform returned. Raises PipelineError for wrong columns."""
    check_columns(rows, ending.stage)
    error = F.substring(error_of(rows), 1, REASON_LENGTH_MAX)
    good = {
        "key": F.col("key").cast("binary") if "key" in rows.columns else F.lit(None).cast("binary"),
        "value": F.col("value").cast("binary"),
        "headers": good_headers(rows, ending),
        "topic": ending.rename(good_topic(rows, ending)),
    }
    if ERROR not in rows.columns:
        return rows.select(*(column.alias(name) for name, column in good.items()))
    if not ending.dead_letters:
        good["value"] = F.when(error.isNull(), good["value"]).otherwise(
            F.raise_error(rejection(error, ending.stage))
        )
        return rows.select(*(column.alias(name) for name, column in good.items()))
    dead = {
        "key": F.col(f"{ORIGIN}.key"),
        "value": F.col(f"{ORIGIN}.value"),
        "headers": F.concat(
            or_none(F.col(f"{ORIGIN}.headers")), error_headers(error, ending.stage), origin_headers()
        ),
        "topic": ending.rename(F.lit(ending.dead_letters)),
    }
    # The display of a run shows this count.
    counted = rows.observe(f"{ending.stage}.dead_letters", F.count(error).alias("dead_letters"))
    return counted.select(
        *(F.when(error.isNull(), good[name]).otherwise(dead[name]).alias(name) for name in good)
    )


def good_topic(rows: DataFrame, ending: Output) -> Column:
    """A row that still has the topic it was read from was not routed: back there it would go round for ever."""
    if "topic" not in rows.columns:
        return F.lit(ending.to)
    topic = F.col("topic")
    return F.when(topic.isNull() | topic.isin(*ending.topics), F.lit(ending.to)).otherwise(topic)


def good_headers(rows: DataFrame, ending: Output) -> Column:
    """The headers that the function left, with the origin of this record instead of that of the one before it."""
    given = or_none(F.col("headers")) if "headers" in rows.columns else F.array().cast(HEADERS)
    if not ending.origin_headers or ORIGIN not in rows.columns:
        return given
    others = F.filter(given, lambda header: ~header["key"].startswith(ORIGIN_PREFIX))
    return F.concat(others, origin_headers())


def origin_headers() -> Column:
    fields = {name: F.col(f"{ORIGIN}.{name}").cast("string") for name in ("topic", "partition", "offset")}
    fields["timestamp"] = F.unix_millis(F.col(f"{ORIGIN}.timestamp")).cast("string")
    return F.array(*(header(f"{ORIGIN_PREFIX}{name}", value) for name, value in fields.items()))


def error_headers(error: Column, stage: str) -> Column:
    return F.array(header("error.reason", error), header("error.stage", F.lit(stage)))


def header(key: str, value: Column) -> Column:
    return F.struct(F.lit(key).alias("key"), value.cast("binary").alias("value"))


def or_none(headers: Column) -> Column:
    return F.coalesce(headers, F.array().cast(HEADERS))


def rejection(error: Column, stage: str) -> Column:
    """The sentence with which a transform without dead letters ends."""
    place = [F.col(f"{ORIGIN}.{name}").cast("string") for name in ("topic", "partition", "offset")]
    return F.concat(
        F.lit(f"The transform {stage} cannot take the record of topic "),
        place[0],
        F.lit(", partition "),
        place[1],
        F.lit(", offset "),
        place[2],
        F.lit(": "),
        error,
        F.lit(f". Set `dead_letters` in [transforms.{stage}] and start it again, or mend its function."),
    )


def check_columns(rows: DataFrame, stage: str) -> None:
    kinds = {field.name: field.dataType for field in rows.schema}
    if "value" not in kinds:
        raise PipelineError(
            f"The transform {stage} returned rows without a column `value`; they have: {', '.join(kinds) or 'none'}.",
            "Return at least `value`, and `key`, `headers` and `topic` as you need them.",
        )
    for name in ("key", "value", "topic", ERROR):
        if name in kinds and not isinstance(kinds[name], allowed(name)):
            raise PipelineError(
                f"The transform {stage} returned the column `{name}` as {kinds[name].simpleString()}.",
                "It takes text or bytes: use write_json(rows, ...), or cast it.",
            )
    if "headers" in kinds and kinds["headers"].simpleString() != HEADERS:
        raise PipelineError(
            f"The transform {stage} returned the column `headers` as {kinds['headers'].simpleString()}.",
            f"It takes {HEADERS}.",
        )
    if ERROR in kinds and ORIGIN not in kinds:
        raise PipelineError(
            f"The transform {stage} returned `{ERROR}` without `{ORIGIN}`, so its dead letters would be empty.",
            f"Keep `{ORIGIN}` where it selects columns.",
        )


def allowed(name: str) -> tuple[type[DataType], ...]:
    return (StringType, BinaryType) if name in ("key", "value") else (StringType,)
