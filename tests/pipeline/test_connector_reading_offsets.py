"""Which offsets a batch or a stream reads: every option, asked of real brokers, without Spark around it."""

import json
import time
from typing import Any

import pytest
from confluent_kafka import KafkaException
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows
from tests.interop.brokers import RunningBroker
from tests.pipeline.connector_topics import READ_COMMITTED, Sent, Topics, values

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.batch_reader import BatchReader, plan
from ottla.pipeline.spark.offsets import OffsetRange, Position, to_json
from ottla.pipeline.spark.stream_reader import StreamReader


@pytest.fixture
def topics(any_broker: RunningBroker) -> Topics:
    return Topics(any_broker.bootstrap)


@pytest.fixture
def topic(topics: Topics, topic_name: str) -> str:
    """Two partitions; the first has ten records, a second apart from each other, the second has five."""
    topics.create(topic_name, 2)
    sent = [Sent(b"v", timestamp_ms=1_000 * number) for number in range(1, 11)]
    topics.produce(topic_name, [*sent, *values(5, partition=1)])
    return topic_name


def planned(topics: Topics, **options: Any) -> list[tuple[int, int, int]]:
    return [(one.partition, one.start, one.end) for one in plan(topics.options(**options))]


def each(topic: str, *offsets: int) -> str:
    return json.dumps({topic: {str(partition): offset for partition, offset in enumerate(offsets)}})


def test_a_batch_takes_its_ends_from_offsets(topics: Topics, topic: str) -> None:
    assert planned(topics, subscribe=topic) == [(0, 0, 10), (1, 0, 5)]
    offsets = {"startingOffsets": each(topic, 3, -2), "endingOffsets": each(topic, 7, -1)}
    assert planned(topics, subscribe=topic, **offsets) == [(0, 3, 7), (1, 0, 5)]
    assert planned(topics, assign=json.dumps({topic: [1]})) == [(1, 0, 5)]


def test_a_batch_takes_its_ends_from_times(topics: Topics, topic: str) -> None:
    one = {"assign": json.dumps({topic: [0]})}
    assert planned(topics, **one, startingTimestamp="4000", endingTimestamp="8000") == [(0, 3, 7)]
    times = {
        "startingOffsetsByTimestamp": json.dumps({topic: {"0": 3500}}),
        "endingOffsetsByTimestamp": json.dumps({topic: {"0": 99_000}}),
    }
    assert planned(topics, **one, **times) == [(0, 3, 10)]
    with pytest.raises(PipelineError, match=rf"{topic}-0 has no record at or after the starting time 99000"):
        planned(topics, **one, startingTimestamp="99000")
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    assert planned(topics, **one, **latest, startingTimestamp="99000") == []


def test_a_batch_is_cut_into_as_many_parts_as_wanted(topics: Topics, topic: str) -> None:
    reader = BatchReader(topics.options(subscribe=topic, minPartitions="6"))
    parts = [partition.value for partition in reader.partitions()]
    assert len(parts) == 6
    assert sum(part.size for part in parts) == 15


def test_a_pattern_finds_topics_by_their_whole_name(topics: Topics, topic: str) -> None:
    topics.create(f"{topic}-other")
    topics.produce(f"{topic}-other", values(1))
    assert planned(topics, subscribePattern=f"{topic}") == [(0, 0, 10), (1, 0, 5)]
    assert len(planned(topics, subscribePattern=f"{topic}.*")) == 3
    assert planned(topics, subscribePattern="no-such-topic.*") == []


def test_read_committed_stops_before_an_open_transaction(topics: Topics, topic_name: str) -> None:
    topics.create(topic_name)
    topics.produce(topic_name, values(4))
    with topics.open_transaction(topic_name, values(3)):
        assert planned(topics, subscribe=topic_name) == [(0, 0, 7)]
        assert planned(topics, subscribe=topic_name, **READ_COMMITTED) == [(0, 0, 4)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"TOPIC": {"0": 1}}'}, "leaves out TOPIC-1"),
        ({"startingOffsets": '{"TOPIC": {"0": 1, "1": 1, "2": 1}}'}, "names TOPIC-2, which is not read"),
        ({"startingOffsets": '{"TOPIC": {"0": 11, "1": 0}}'}, "TOPIC-0 ends at offset 10"),
        ({"endingOffsets": '{"TOPIC": {"0": 11, "1": 1}}'}, "TOPIC-0 ends at offset 10"),
        ({"subscribe": "TOPIC,no-such-topic"}, "The topic no-such-topic does not exist"),
    ],
)
def test_offsets_that_the_topic_does_not_have_are_an_error(
    topics: Topics, topic: str, options: dict[str, str], said: str
) -> None:
    options = {"subscribe": topic} | {name: text.replace("TOPIC", topic) for name, text in options.items()}
    with pytest.raises(PipelineError, match=said.replace("TOPIC", topic)):
        planned(topics, **options)


def test_offsets_beyond_the_log_are_limited_to_it_if_loss_is_allowed(topics: Topics, topic: str) -> None:
    with pytest.warns(UserWarning, match="ends at offset 10"):
        ranges = planned(topics, subscribe=topic, endingOffsets=each(topic, 99, 2), failOnDataLoss="false")
    assert ranges == [(0, 0, 10), (1, 0, 2)]


def test_a_cluster_that_does_not_respond_is_a_retriable_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.pipeline.spark.discovery.RESPONSE_TIMEOUT_S", 0.5)
    with pytest.raises(RetriableError, match=r"The cluster at 127\.0\.0\.1:1 did not respond"):
        planned(Topics("127.0.0.1:1"), subscribe="a")


# Streams


def stream(topics: Topics, **options: str) -> StreamReader:
    return StreamReader(topics.options(streaming=True, **{"startingOffsets": "earliest", **options}))


def read(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[OffsetRange]:
    return [partition.value for partition in reader.partitions(start, end)]


def offsets(end: dict[str, Any]) -> dict[str, dict[str, int]]:
    return to_json(Position.from_json(end).offsets)


def test_a_stream_starts_at_its_starting_offsets(topics: Topics, topic: str) -> None:
    assert stream(topics, subscribe=topic).initialOffset() == {topic: {"0": 0, "1": 0}}
    assert stream(topics, subscribe=topic, startingOffsets="latest").initialOffset() == {
        topic: {"0": 10, "1": 5}
    }
    given = stream(topics, subscribe=topic, startingOffsets=each(topic, 3, -1))
    assert given.initialOffset() == {topic: {"0": 3, "1": 5}}


def test_a_batch_takes_at_most_the_limit_and_the_next_continues_after_it(topics: Topics, topic: str) -> None:
    reader = stream(topics, subscribe=topic, maxOffsetsPerTrigger="6")
    assert reader.getDefaultReadLimit() == ReadMaxRows(6)
    start = reader.initialOffset()
    taken = []
    while (end := reader.latestOffset(start, ReadMaxRows(6))) != start:
        taken.append(sum(one.size for one in read(reader, start, end)))
        start = end
    assert taken == [6, 6, 3]
    assert offsets(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())) == {
        topic: {"0": 10, "1": 5}
    }
    assert reader.reportLatestOffset() == {topic: {"0": 10, "1": 5}}


def test_too_few_records_wait_until_the_delay_is_over(
    topics: Topics, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 0.0
    monkeypatch.setattr("ottla.pipeline.spark.stream_reader.time.monotonic", lambda: now)
    reader = stream(topics, subscribe=topic, minOffsetsPerTrigger="3", maxTriggerDelay="60s")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    first = reader.latestOffset(reader.initialOffset(), limit)
    topics.produce(topic, values(2))
    assert reader.latestOffset(first, limit) == first
    now = 61.0
    second = reader.latestOffset(first, limit)
    assert offsets(second) == {topic: {"0": 12, "1": 5}}
    topics.produce(topic, values(3))
    assert offsets(reader.latestOffset(second, limit)) == {topic: {"0": 15, "1": 5}}


def test_available_now_ends_where_the_log_ended(topics: Topics, topic: str) -> None:
    reader = stream(topics, subscribe=topic)
    reader.prepareForTriggerAvailableNow()
    topics.produce(topic, values(7))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert offsets(end) == {topic: {"0": 10, "1": 5}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_new_partitions_and_topics_are_read_from_their_beginning(topics: Topics, topic: str) -> None:
    reader = stream(topics, subscribePattern=f"{topic}.*", startingOffsets="latest")
    start = reader.initialOffset()
    topics.grow(topic, 3)
    topics.create(f"{topic}-more")
    topics.produce(topic, values(2, partition=2))
    topics.produce(f"{topic}-more", values(3))
    found = reader.latestOffset(start, ReadAllAvailable())
    end = reader.latestOffset(found, ReadAllAvailable())
    ranges = [*read(reader, start, found), *read(reader, found, end)]
    assert ranges == [OffsetRange(topic, 2, 0, 2), OffsetRange(f"{topic}-more", 0, 0, 3)]


def test_records_that_were_deleted_before_they_were_read_stop_the_stream_or_are_skipped(
    topics: Topics, topic: str
) -> None:
    start = {topic: {"0": 2, "1": 5}}
    topics.delete_before(topic, 6)
    with pytest.raises(
        PipelineError, match=f"{topic}-0 now starts at offset 6: 2 to 5 were deleted before they were read"
    ):
        stream(topics, subscribe=topic).latestOffset(start, ReadAllAvailable())
    with pytest.warns(UserWarning, match="The query continues"):
        end = stream(topics, subscribe=topic, failOnDataLoss="false").latestOffset(start, ReadAllAvailable())
    assert offsets(end) == {topic: {"0": 10, "1": 5}}


def test_the_first_batch_has_the_same_start_when_it_runs_again(topics: Topics, topic: str) -> None:
    reader = stream(topics, subscribe=topic, startingOffsets=each(topic, 7, -1))
    end = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))
    topics.produce(topic, values(3))
    again = stream(topics, subscribe=topic, startingOffsets="latest")
    assert read(again, again.initialOffset(), end) == [OffsetRange(topic, 0, 7, 10)]
    following = again.latestOffset(end, ReadAllAvailable())
    assert read(again, end, following) == [OffsetRange(topic, 0, 10, 13)]


def test_a_topic_that_was_created_again_is_noticed_even_if_it_has_grown_as_long(
    topics: Topics, topic: str
) -> None:
    before = stream(topics, subscribe=topic)
    end = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    topics.delete(topic)
    make_again(topics, topic)
    topics.produce(topic, [*values(20), *values(20, partition=1)])
    message = f"The topic {topic} was deleted and created again: its id was "
    with pytest.raises(PipelineError, match=message):
        stream(topics, subscribe=topic).latestOffset(end, ReadAllAvailable())
    with pytest.raises(PipelineError, match=message):
        # A batch that was planned before is not read from the new topic either.
        read(stream(topics, subscribe=topic), before.initialOffset(), end)
    with pytest.warns(UserWarning, match=message):
        again = read(stream(topics, subscribe=topic, failOnDataLoss="false"), before.initialOffset(), end)
    assert again == [OffsetRange(topic, 0, 0, 0), OffsetRange(topic, 1, 0, 0)]
    lenient = stream(topics, subscribe=topic, failOnDataLoss="false")
    with pytest.warns(UserWarning, match=message):
        following = lenient.latestOffset(end, ReadAllAvailable())
    assert offsets(following) == {topic: {"0": 20, "1": 20}}
    # All records of the new topic are new.
    assert read(lenient, end, following) == [OffsetRange(topic, 0, 0, 20), OffsetRange(topic, 1, 0, 20)]
    assert lenient.latestOffset(following, ReadAllAvailable()) == following


def make_again(topics: Topics, topic: str) -> None:
    """A broker forgets a topic some time after it has said so."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return topics.create(topic, 2)
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_topic_that_was_deleted_or_created_again_stops_the_stream_or_is_left_out(
    topics: Topics, topic: str
) -> None:
    start = {topic: {"0": 99, "1": 5}, f"{topic}-gone": {"0": 3}}
    options = {"subscribe": f"{topic},{topic}-gone"}
    with pytest.raises(PipelineError, match=f"{topic}-0 ends at offset 10, and was read up to 99"):
        stream(topics, **options).latestOffset(start, ReadAllAvailable())
    with pytest.raises(PipelineError, match=f"{topic}-gone-0 is gone: it was read up to offset 3"):
        stream(topics, **options).latestOffset({f"{topic}-gone": {"0": 3}}, ReadAllAvailable())
    reader = stream(topics, **options, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="The query continues"):
        end = reader.latestOffset(start, ReadAllAvailable())
    assert offsets(end) == {topic: {"0": 10, "1": 5}}
    assert read(reader, start, end) == []
