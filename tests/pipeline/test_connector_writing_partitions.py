"""The exactly-once sink, one Spark partition at a time, on real brokers: what a task does, without Spark around it."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException, Producer
from tests.interop.brokers import RunningBroker
from tests.pipeline.written_topics import create_topic, numbers, records, rows, wait_for, wait_until_stable

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.sink.exactly_once_writers import (
    Committed,
    count_bytes,
    mark_first_batch,
    verify_markers,
)
from ottla.pipeline.spark.sink.marker_topic import FIRST_PARTITIONS, TIMEOUT_S, MarkerTopic, marker_topic_name
from ottla.pipeline.spark.sink.markers import Attempt, Marker, Snapshot, Written
from ottla.pipeline.spark.sink.options import SinkOptions
from ottla.pipeline.spark.sink.partition_write import PartitionWrite, Task
from ottla.pipeline.spark.sink.producer import RecordProducer
from ottla.pipeline.spark.sink.producer_pool import PooledProducer
from ottla.pipeline.written_bytes import WrittenBytes


class Sink:
    """A sink of its own id on a broker, and a topic of its own to write to."""

    def __init__(self, bootstrap: str, name: str, **client: str) -> None:
        self.bootstrap = bootstrap
        self.topic = name
        self.options = SinkOptions(
            {"bootstrap.servers": bootstrap, **client}, topic=name, sink_id=f"sink-{name}"
        )
        self.markers = MarkerTopic(self.options.client, f"sink-{name}")

    def task(
        self, batch: int, partition: int = 0, *, run: str = "run", is_retry: bool = False, plan: str = "plan"
    ) -> PartitionWrite:
        attempt = Attempt(f"sink-{self.topic}", "query", batch, plan)
        return PartitionWrite(self.options, self.markers.snapshot(), attempt, Task(partition, run, is_retry))

    def write_batch(self, batch: int, batches: Iterator[pa.RecordBatch]) -> None:
        """The task of partition 0, and the wait of the driver: a batch ends when its markers can be read."""
        self.task(batch).run(batches)
        wait_for(lambda: self.snapshot_with(0).markers[0].batch == batch, seconds=30)

    def snapshot_with(self, partition: int) -> Snapshot:
        """A commit is answered before the transaction ends in its partitions, so its marker may come a little later."""
        wait_for(lambda: partition in self.markers.snapshot().markers, seconds=30)
        return self.markers.snapshot()

    def delete_markers(self) -> None:
        topic = self.markers.topic
        self.markers.admin.delete_topics([topic])[topic].result(30)

        def are_deleted() -> bool:
            # The broker describes the topic, and then it is deleted: a reader waits for its records until a timeout.
            with contextlib.suppress(RetriableError):
                return self.markers.snapshot().markers == {}
            return False

        wait_for(are_deleted, seconds=4 * TIMEOUT_S)

    def numbers(self, isolation: str = "read_committed") -> list[int]:
        return numbers(self.bootstrap, self.topic, isolation)


@pytest.fixture
def sink(any_broker: RunningBroker, topic_name: str) -> Sink:
    create_topic(any_broker.bootstrap, topic_name, partitions=1)
    return Sink(any_broker.bootstrap, topic_name)


def failing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    yield from batches
    raise ValueError("the row after the last")


def test_rows_and_their_marker_are_written_together(sink: Sink) -> None:
    written = sink.task(0).run(rows(range(2500)))
    assert (written.partition, written.rows) == (0, 2500)
    assert written.size_bytes == 0
    assert sink.snapshot_with(0).markers == {0: Marker("query", 0, "plan", 2500)}
    assert sink.numbers() == list(range(2500))


def test_the_bytes_of_a_batch_are_counted_whichever_attempt_has_written_them(
    sink: Sink, tmp_path: Path
) -> None:
    sink.options = replace(sink.options, written_bytes=str(tmp_path / "count"))
    written = sink.task(0).run(rows(range(8, 12)))
    assert (written.rows, written.size_bytes) == (4, len(b"891011"))
    sink.snapshot_with(0)
    again = sink.task(0, is_retry=True).run(rows(range(8, 12)))
    assert (again.rows, again.size_bytes) == (4, 6)
    count_bytes(sink.options, [Committed("query", again), Committed("query", Written(1, 0)), None])
    assert WrittenBytes(tmp_path / "count").read() == 6


def test_a_failure_inside_the_transaction_leaves_nothing_and_the_next_attempt_writes_all(sink: Sink) -> None:
    with pytest.raises(ValueError, match="after the last"):
        sink.task(0).run(failing(rows(range(2500))))
    assert sink.numbers() == []
    assert sink.markers.snapshot().markers == {}
    sink.task(0, is_retry=True).run(rows(range(2500)))
    assert sink.numbers() == list(range(2500))


def test_a_batch_that_was_committed_is_skipped_when_it_runs_again(sink: Sink) -> None:
    before = sink.task(0)
    sink.task(0).run(rows(range(2500)))
    # An attempt that began before knows of the commit only by reading the marker after it has fenced the other.
    assert before.run(rows(range(2500))) == Written(0, 2500)
    # One that begins afterwards does not even ask for a row.
    assert sink.task(0, run="restarted").run(failing(iter(()))) == Written(0, 2500)
    assert sink.numbers() == list(range(2500))


def test_a_commit_that_becomes_visible_after_the_snapshot_is_checked_too(sink: Sink) -> None:
    sink.task(0, partition=1).run(rows(range(10)))
    sink.snapshot_with(1)
    same_batch, older_batch = sink.task(1, plan="another"), sink.task(0, run="restarted")
    sink.task(1).run(rows(range(10, 2500)))
    with pytest.raises(PipelineError, match=r"was written in part .* by the plan plan"):
        same_batch.run(rows(range(2500)))
    with pytest.raises(PipelineError, match="has batch 1 of this query already"):
        older_batch.run(rows(range(2500)))
    assert sink.numbers() == list(range(2500))


def test_markers_that_were_deleted_stop_the_sink_instead_of_repeating_a_batch(sink: Sink) -> None:
    for batch in (0, 1):
        sink.write_batch(batch, rows(range(3 * batch, 3 * batch + 3)))
    sink.delete_markers()
    with pytest.raises(PipelineError, match="has no markers, and the query would write batch 1") as rejected:
        sink.task(1, run="restarted").run(rows(range(3, 6)))
    assert 'resetSink="query@1"' in rejected.value.remedy
    assert sink.numbers() == list(range(6))


def test_a_first_batch_without_rows_is_marked_so_that_the_next_one_is_written(sink: Sink) -> None:
    for _ in range(2):
        mark_first_batch(sink.options, 0, [], sink.markers.snapshot())
    sink.task(1).run(rows(range(10)))
    assert sink.numbers() == list(range(10))
    # Nor does it hide that the markers are lost.
    sink.delete_markers()
    mark_first_batch(sink.options, 2, [], sink.markers.snapshot())
    assert sink.markers.snapshot().markers == {}


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_marker_topic_whose_markers_expire_is_rejected(sink: Sink, policy: str) -> None:
    create_topic(sink.bootstrap, marker_topic_name(f"sink-{sink.topic}"), cleanup_policy=policy)
    with pytest.raises(PipelineError, match=f"has cleanup.policy={policy}.*Set cleanup.policy=compact"):
        sink.task(0)


def test_markers_are_read_if_the_first_broker_does_not_know_their_topic_yet(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.task(0).run(rows(range(10)))
    expected = sink.snapshot_with(0)
    count, asked = sink.markers._partition_count, iter([0])
    monkeypatch.setattr(sink.markers, "_partition_count", lambda: next(asked, count()))
    assert sink.markers.snapshot() == expected


def test_the_driver_waits_until_a_commit_can_be_seen(sink: Sink) -> None:
    before = sink.markers.snapshot().markers
    committed = Committed("query", sink.task(0).run(rows(range(10))))
    verify_markers(sink.options, 0, [committed], before)


def test_the_driver_names_the_markers_that_never_come(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.spark.sink.exactly_once_writers.TIMEOUT_S", 0.2)
    sink.markers.snapshot()
    with pytest.raises(RetriableError, match=r"the markers of Spark partitions \[3\] are not in their topic"):
        verify_markers(sink.options, 0, [Committed("query", Written(3, 10))], {})


def test_the_older_of_two_live_writers_is_fenced(sink: Sink) -> None:
    older = sink.task(0, run="older")

    def interrupted() -> Iterator[pa.RecordBatch]:
        yield from rows(range(1000))
        sink.task(0, run="newer").run(rows(range(2500)))
        yield from rows(range(1000, 2500))

    with pytest.raises(PipelineError, match="A newer query writes to sink"):
        older.run(interrupted())
    assert sink.numbers() == list(range(2500))


def test_fenced_producers_with_records_in_flight_are_dropped_without_harm(sink: Sink) -> None:
    """A purge of such a producer could abort the process, and its test worker with it."""
    config = {
        "bootstrap.servers": sink.bootstrap,
        "transactional.id": f"{sink.topic}-dropped",
        "linger.ms": "0",
    }
    for _ in range(15):
        fenced, newer = RecordProducer(config), RecordProducer(config)
        fenced.producer.init_transactions(30)
        fenced.producer.begin_transaction()
        fenced.put((sink.topic, b"before") for _ in range(500))
        newer.producer.init_transactions(30)
        with contextlib.suppress(PipelineError, KafkaException):
            fenced.put((sink.topic, b"after") for _ in range(500))
        fenced.discard()
        newer.discard()


def test_a_pooled_producer_writes_the_next_batch_and_is_fenced_by_others(sink: Sink) -> None:
    for batch in range(3):
        sink.write_batch(batch, rows(range(batch * 10, batch * 10 + 10)))
    sink.task(3, run="elsewhere").run(rows(range(30, 40)))
    late = sink.task(4)
    # Its last batch was 2: what happened to 3 is not known here, so it starts afresh.
    late.run(rows(range(40, 50)))
    assert sink.numbers() == list(range(50))


def test_a_partition_without_rows_sends_no_request(sink: Sink) -> None:
    task = sink.task(0, partition=5)
    task.options = SinkOptions({"bootstrap.servers": "127.0.0.1:1"}, topic="none", sink_id="none")
    empty = pa.RecordBatch.from_arrays([pa.array([], pa.binary())], names=["value"])
    assert task.run(iter([empty])) == Written(5, 0)


def test_the_marker_topic_grows_with_the_spark_partitions(sink: Sink) -> None:
    partition = FIRST_PARTITIONS + 3
    sink.task(0, partition).run(rows(range(10)))
    snapshot = sink.snapshot_with(partition)
    assert snapshot.markers == {partition: Marker("query", 0, "plan", 10)}
    assert snapshot.room == 2 * FIRST_PARTITIONS


def test_a_marker_is_found_before_any_number_of_aborted_attempts(sink: Sink) -> None:
    sink.task(0).run(rows(range(10)))
    producer = Producer({"bootstrap.servers": sink.bootstrap, "transactional.id": f"{sink.topic}-other"})
    producer.init_transactions(30)
    for _ in range(20):
        producer.begin_transaction()
        producer.produce(marker_topic_name(f"sink-{sink.topic}"), b"not a marker", partition=0)
        producer.flush()
        producer.abort_transaction(30)
    assert sink.snapshot_with(0).markers == {0: Marker("query", 0, "plan", 10)}


def test_a_transaction_that_outlasts_its_time_says_so_and_what_to_do(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name)
    sink = Sink(broker.bootstrap, topic_name, **{"transaction.timeout.ms": "1000"})
    task = sink.task(0)

    def slow() -> Iterator[pa.RecordBatch]:
        yield from rows(range(10))
        while task.seconds_left() > 0:
            pass
        yield from rows(range(10, 20))

    with pytest.raises(PipelineError, match="longer than the 1 s that its transaction may last"):
        task.run(slow())
    assert sink.numbers() == []
    sink.task(0, is_retry=True).run(rows(range(20)))
    assert sorted(sink.numbers()) == list(range(20))


def test_a_writer_that_dies_in_its_transaction_holds_readers_only_until_the_timeout(
    broker: RunningBroker, topic_name: str
) -> None:
    create_topic(broker.bootstrap, topic_name, partitions=1)
    sink = Sink(broker.bootstrap, topic_name, **{"transaction.timeout.ms": "1000"})
    dead = PooledProducer((), sink.options, f"sink-{topic_name}-0")
    dead.producer.begin_transaction()
    dead.records.put([(topic_name, b"1")])
    assert dead.producer.flush(30) == 0
    after = RecordProducer({"bootstrap.servers": broker.bootstrap})
    after.put([(topic_name, b"2")])
    assert after.producer.flush(30) == 0
    # The broker looks for such transactions every ten seconds.
    wait_until_stable(broker.bootstrap, topic_name, [0], seconds=60)
    assert sink.numbers() == [2]
    dead.discard()


def test_a_timeout_that_the_cluster_does_not_allow_is_an_error(sink: Sink) -> None:
    patient = Sink(sink.bootstrap, sink.topic, **{"transaction.timeout.ms": "9000000"})
    with pytest.raises(PipelineError, match=r"does not let a transaction .* last 9000 s"):
        patient.task(0).run(rows(range(10)))


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": [b"x" * 2_000_000]}, "topic `{topic}`.*was not written.*MSG_SIZE_TOO_LARGE"),
        (
            {"value": [b"x"], "partition": [7]},
            "topic `{topic}`, partition 7 was not written.*UNKNOWN_PARTITION",
        ),
    ],
)
def test_the_error_for_a_record_names_its_topic(
    sink: Sink, columns: dict[str, list[object]], sentence: str
) -> None:
    bad = pa.RecordBatch.from_pydict(columns)
    with pytest.raises(PipelineError, match=sentence.format(topic=sink.topic)):
        sink.task(0).run(chain(rows(range(10)), iter([bad])))
    assert sink.numbers() == []


def test_a_record_of_ten_megabytes_is_written_if_the_topic_allows_it(
    any_broker: RunningBroker, topic_name: str
) -> None:
    create_topic(any_broker.bootstrap, topic_name, max_message_bytes="20000000")
    line = bytes(range(256)) * 40_000
    Sink(any_broker.bootstrap, topic_name).task(0).run(iter([pa.RecordBatch.from_pydict({"value": [line]})]))
    assert [message.value() for message in records(any_broker.bootstrap, topic_name)] == [line]


def test_a_cluster_that_is_down_is_a_retriable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.spark.sink.marker_topic.TIMEOUT_S", 1.0)
    with pytest.raises(RetriableError, match=r"markers of sink `away` .*cannot be read"):
        MarkerTopic({"bootstrap.servers": "127.0.0.1:1"}, "away").snapshot()
