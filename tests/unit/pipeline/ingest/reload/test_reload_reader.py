"""Archived records as they come out of Parquet files, without Spark."""

import warnings
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ottla.pipeline.ingest.reload.plan import Task, Times
from ottla.pipeline.ingest.reload.reader import read_task
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.rows import ARROW_WITH_HEADERS
from ottla.pipeline.spark.sink.records import produce_arguments


def archived(folder: Path, times_ms: list[int]) -> Task:
    rows = [
        {"topic": "raw", "partition": 0, "offset": offset, "value": b"v", "timestamp": time_ms * 1000}
        for offset, time_ms in enumerate(times_ms)
    ]
    pq.write_table(pa.Table.from_pylist(rows, ARROW_WITH_HEADERS), folder / "a.parquet")
    return Task(OffsetRange("raw", 0, 0, len(rows)), Times(None, None), [["a.parquet"]])


def loaded_times_ms(folder: Path, task: Task) -> list[int]:
    """As they are given to the producer, which takes the current time for 0."""
    return [
        arguments[6]
        for rows in read_task(str(folder), {}, task)
        for arguments in produce_arguments(rows, "back", keep_timestamps=True)
    ]


def test_a_record_without_a_timestamp_gets_the_time_of_loading(tmp_path: Path) -> None:
    task = archived(tmp_path, [5, -1, 7, -1])
    with pytest.warns(UserWarning, match="2 archived records of raw-0, offsets 0 to 3, have no timestamp"):
        assert loaded_times_ms(tmp_path, task) == [5, 0, 7, 0]


def test_records_with_timestamps_keep_them_without_a_warning(tmp_path: Path) -> None:
    task = archived(tmp_path, [5, 7])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert loaded_times_ms(tmp_path, task) == [5, 7]
