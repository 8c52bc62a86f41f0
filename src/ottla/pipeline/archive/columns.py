"""The columns of archived records: each record with every byte that it had in its topic."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SCHEMA = (
    "topic string, partition int, offset long, timestamp timestamp, timestampType int, leaderEpoch int, "
    "key binary, value binary, headers array<struct<key:string,value:binary>>"
)
# A reader also sees the folders as columns.
FILE_SCHEMA = f"{SCHEMA}, date date, hour int"
TABLE_SCHEMA = f"{FILE_SCHEMA}, topicId string"
# the folder of a record
HOUR_COLUMNS = ("_topic", "date", "hour")
_DAY_MS, _HOUR_MS = 86_400_000, 3_600_000
# The first and the last millisecond of years with four digits. A timestamp outside is a producer's error, such as
# microseconds, and its record goes to the first or the last folder.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def archived_rows(rows: "DataFrame", histories: Mapping[str, str]) -> "DataFrame":
    """The rows of topics as they are archived, and the folder of each: `_topic`, `date` and `hour` in UTC.

    `histories` has the history of each topic.
    """
    time_ms = F.greatest(F.least(F.unix_millis("timestamp"), F.lit(_LAST_MS)), F.lit(_FIRST_MS))
    return rows.select(
        *(F.col(name) for name in ("topic", "partition", "offset", "timestamp", "timestampType")),
        *(F.col(name) for name in ("leaderEpoch", "key", "value", "headers")),
        _history(histories).alias("_topic"),
        _day(time_ms).alias("date"),
        F.lpad(F.pmod(F.floor(time_ms / _HOUR_MS), F.lit(24)).cast("string"), 2, "0").alias("hour"),
    )


def _history(histories: Mapping[str, str]) -> "Column":
    column = F.col("topic")
    for topic, history in histories.items():
        if history != topic:
            column = F.when(F.col("topic") == topic, F.lit(history)).otherwise(column)
    return column


def _day(time_ms: "Column") -> "Column":
    """By arithmetic, so that it is UTC in every time zone of the session."""
    return F.date_add(F.lit("1970-01-01").cast("date"), F.floor(time_ms / _DAY_MS).cast("int"))
