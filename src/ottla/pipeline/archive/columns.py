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
# the history and the hour of a record, which decide its folder
HOUR_COLUMNS = ("_topic", "_hour")
_HOUR_MS = 3_600_000
# The first and the last millisecond of years with four digits. A timestamp outside is a producer's error, such as
# microseconds, and its record goes to the first or the last folder.
_FIRST_MS, _LAST_MS = -62_135_596_800_000, 253_402_300_799_999


def archived_rows(rows: "DataFrame", histories: Mapping[str, str]) -> "DataFrame":
    """The rows of topics as they are archived, and for each its history, `_topic`, and its hour since 1970, `_hour`.

    `histories` has the history of each topic.
    """
    time_ms = F.greatest(F.least(F.unix_millis("timestamp"), F.lit(_LAST_MS)), F.lit(_FIRST_MS))
    return rows.select(
        *(F.col(name) for name in ("topic", "partition", "offset", "timestamp", "timestampType")),
        *(F.col(name) for name in ("leaderEpoch", "key", "value", "headers")),
        _history(histories).alias("_topic"),
        # A number: to make a date and two digits of it takes longer for each row than to find the file of its hour.
        F.floor(time_ms / _HOUR_MS).alias("_hour"),
    )


def _history(histories: Mapping[str, str]) -> "Column":
    column = F.col("topic")
    for topic, history in histories.items():
        if history != topic:
            column = F.when(F.col("topic") == topic, F.lit(history)).otherwise(column)
    return column
