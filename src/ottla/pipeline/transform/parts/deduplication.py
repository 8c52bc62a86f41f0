"""Removes duplicates: each key once within a span of event time.

The rows go through a shuffle by key into Spark's state. A key is in the same Spark partition whenever a batch runs, so
the sink still writes each row once. Which of two rows with one key comes first is certain only if both come from the
same partition of a topic.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ottla.pipeline.transform.columns import ORIGIN, error_of

_KEY, _ALONE, _TIME = "_deduplicate_key", "_deduplicate_alone", "_deduplicate_time"


def deduplicate(
    rows: DataFrame, by: str | Sequence[str], *, within: str, event_time: str | Column = "timestamp"
) -> DataFrame:
    """Keeps the first row of each key, and drops those that follow within `within` ("1 hour") of event time.

    A row that is more than `within` older than the newest row so far is late: Spark drops it, and counts it in the
    progress of the query. Marked rows, and rows whose keys are all null, are not duplicates of each other.
    """
    names = [by] if isinstance(by, str) else list(by)
    is_alone = (
        error_of(rows).isNotNull() | F.coalesce(*(F.col(name).cast("string") for name in names)).isNull()
    )
    origin = F.struct(*(F.col(f"{ORIGIN}.{name}") for name in ("topic", "partition", "offset")))
    time = F.col(event_time) if isinstance(event_time, str) else event_time
    helped = rows.withColumns(
        {
            _KEY: F.struct(*(F.col(name).alias(f"by{index}") for index, name in enumerate(names))),
            _ALONE: F.when(is_alone, origin),
            _TIME: F.coalesce(time, F.col(f"{ORIGIN}.timestamp")),
        }
    )
    first = helped.withWatermark(_TIME, within).dropDuplicatesWithinWatermark([_KEY, _ALONE])
    return first.drop(_KEY, _ALONE, _TIME)
