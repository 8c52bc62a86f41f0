"""The columns of archived records: a record as it was in its topic, every byte of it."""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

SCHEMA = (
    "topic string, partition int, offset long, timestamp timestamp, timestampType int, leaderEpoch int, "
    "key binary, value binary, headers array<struct<key:string,value:binary>>"
)
# What a reader of the table sees besides: the folders.
TABLE_SCHEMA = f"{SCHEMA}, date date, hour int"
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
# The first and the last moment of years with four digits: a timestamp beyond is a producer's mistake, such as one in
# microseconds, and lies in the first or last of all folders.
FIRST_MS, LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def archived_rows(rows: "DataFrame") -> "DataFrame":
    """The rows of a topic as they are archived, with the folder of each: `_topic`, `date` and `hour` in UTC."""
    time_ms = F.greatest(F.least(F.unix_millis("timestamp"), F.lit(LAST_MS)), F.lit(FIRST_MS))
    return rows.select(
        *(F.col(name) for name in ("topic", "partition", "offset", "timestamp", "timestampType")),
        *(F.col(name) for name in ("leaderEpoch", "key", "value", "headers")),
        F.col("topic").alias("_topic"),
        day(time_ms).alias("date"),
        F.lpad(F.pmod(F.floor(time_ms / HOUR_MS), F.lit(24)).cast("string"), 2, "0").alias("hour"),
    )


def day(time_ms: "Column") -> "Column":
    """By arithmetic, so that it is UTC whatever the time zone of the session is."""
    return F.date_add(F.lit("1970-01-01").cast("date"), F.floor(time_ms / DAY_MS).cast("int"))
