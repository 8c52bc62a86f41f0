"""How long a reader waits for its broker: the time that Spark spends on rows does not count."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark import fetch_reader, wire
from ottla.pipeline.spark.discovery import Discovery
from ottla.pipeline.spark.offsets import OffsetRange
from ottla.pipeline.spark.options import ReadOptions, read_options
from ottla.records.columns import PADDING
from ottla.records.records import Record, build_batch

OPTIONS = read_options({"kafka.bootstrap.servers": "h:1", "subscribe": "t"}, streaming=False)
WANTED = OffsetRange("t", 0, 0, 3)


class FakeConnection:
    """A leader with one record at each offset below `end`, and nothing behind."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.offset = 0

    def send_fetch(self, fetch: wire.PartitionFetch) -> None:
        self.offset = fetch.offset

    def receive_fetch(self) -> wire.Fetched:
        data = build_batch([Record(self.offset, 0, None, b"v")]) if self.offset < self.end else b""
        return wire.Fetched(wire.NO_ERROR, bytearray(data + PADDING), 0, len(data), [])

    def close(self) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time in seconds, which the test moves."""
    now = [0.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def test_the_time_that_spark_spends_on_rows_does_not_count_as_waiting(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_reader.PartitionFetcher, "connect", lambda _: FakeConnection(end=3))
    offsets = []
    for batch in fetch_reader.fetch_range(OPTIONS, WANTED):
        offsets += batch["offset"].to_pylist()
        clock[0] += 3600
    assert offsets == [0, 1, 2]


@pytest.fixture
def latest(monkeypatch: pytest.MonkeyPatch) -> dict[TopicPartition, int]:
    """What the cluster says, to be set by the test."""
    offsets: dict[TopicPartition, int] = {}
    monkeypatch.setattr(Discovery, "partitions", lambda _: set(offsets))
    monkeypatch.setattr(Discovery, "latest", lambda _, asked: {at: offsets[at] for at in asked})
    return offsets


def slow_batches(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, options: ReadOptions
) -> Iterator[pa.RecordBatch]:
    """Of a leader with one record of the three, which takes 50 s for each response after it."""
    connection = FakeConnection(end=1)
    monkeypatch.setattr(fetch_reader.PartitionFetcher, "connect", lambda _: connection)
    batches = fetch_reader.fetch_range(options, WANTED)
    next(batches)
    answer = connection.receive_fetch

    def slow() -> wire.Fetched:
        clock[0] += 50
        return answer()

    monkeypatch.setattr(connection, "receive_fetch", slow)
    return batches


def test_a_broker_that_sends_nothing_is_given_up_after_the_timeout(
    clock: list[float], latest: dict[TopicPartition, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    latest[WANTED.at] = 3
    batches = slow_batches(clock, monkeypatch, OPTIONS)
    with pytest.raises(RetriableError, match="t-0 sent nothing for 120 s"):
        next(batches)


def test_a_log_that_is_shorter_than_the_range_after_the_timeout_has_lost_records(
    clock: list[float], latest: dict[TopicPartition, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    latest[WANTED.at] = 1
    batches = slow_batches(clock, monkeypatch, OPTIONS)
    with pytest.raises(PipelineError, match="t-0 ends at offset 1: 1 to 2 cannot be read"):
        next(batches)
    assert clock[0] > OPTIONS.poll_timeout_s
    batches = slow_batches(clock, monkeypatch, replace(OPTIONS, fail_on_data_loss=False))
    with pytest.warns(UserWarning, match="1 to 2 cannot be read"):
        assert list(batches) == []
