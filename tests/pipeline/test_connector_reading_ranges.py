"""Ranges of offsets on real brokers, both ways that read them: our own requests, and librdkafka."""

import time
from datetime import UTC, datetime, timedelta
from threading import Timer
from typing import Any

import pytest
from tests.interop.brokers import RunningBroker, run_ottla
from tests.pipeline.connector_topics import READ_COMMITTED, Reading, Sent, Topics, rows, values

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark import consumer_reader, fetch_reader
from ottla.pipeline.spark.batch_reader import plan
from ottla.pipeline.spark.consumer_reader import consume_range
from ottla.pipeline.spark.fetch_reader import fetch_range
from ottla.pipeline.spark.offsets import OffsetRange, split

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture(params=[fetch_range, consume_range], ids=["wire", "librdkafka"])
def read(request: pytest.FixtureRequest) -> Reading:
    reading: Reading = request.param
    return reading


@pytest.fixture
def topics(any_broker: RunningBroker) -> Topics:
    return Topics(any_broker.bootstrap)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_field_of_a_record_comes_as_it_was_sent(
    topics: Topics, topic_name: str, read: Reading, codec: str
) -> None:
    sent = [
        Sent(b"value", b"key", (("h", b"1"), ("h", b"2"), ("none", None), ("", b"")), 1_000),
        Sent(None, b"tombstone", (), 2_000),
        Sent(b"", b"", (("x", b"\xff\x00"),), 3_000),
        Sent(b"\xff\xfe not text", None, (), 4_000),
        Sent(b"large" * 100_000, b"k" * 5_000, (), 1_700_000_000_123),
    ]
    topics.create(topic_name)
    topics.produce(topic_name, sent, **{"compression.type": codec})
    options = topics.options(subscribe=topic_name, includeHeaders="true", includeLeaderEpoch="true")
    expected = [
        {
            "key": one.key,
            "value": one.value,
            "topic": topic_name,
            "partition": 0,
            "offset": offset,
            "timestamp": EPOCH + timedelta(milliseconds=one.timestamp_ms),
            "timestampType": 0,
            "headers": [{"key": key, "value": value} for key, value in one.headers] or None,
            "leaderEpoch": 0,
        }
        for offset, one in enumerate(sent)
    ]
    assert rows(read, options, plan(options)) == expected


def test_timestamp_types_of_the_broker_and_the_producer_differ(
    topics: Topics, topic_name: str, read: Reading
) -> None:
    topics.create(topic_name, message_timestamp_type="LogAppendTime")
    topics.produce(topic_name, [Sent(b"v", timestamp_ms=1_000)])
    options = topics.options(subscribe=topic_name)
    (row,) = rows(read, options, plan(options))
    assert row["timestampType"] == 1
    assert row["timestamp"] > datetime.now(UTC) - timedelta(hours=1)


def test_read_committed_returns_no_aborted_record_and_does_not_wait_for_markers(
    topics: Topics, topic_name: str, read: Reading
) -> None:
    topics.create(topic_name)
    topics.transaction(topic_name, values(3), commit=True)
    topics.transaction(topic_name, values(3, start=10), commit=False)
    topics.produce(topic_name, values(1, start=20))
    topics.transaction(topic_name, values(2, start=30), commit=False)
    committed = topics.options(subscribe=topic_name, **READ_COMMITTED)
    ranges = plan(committed)
    assert ranges == [OffsetRange(topic_name, 0, 0, 12)]
    seen = rows(read, committed, ranges)
    assert [row["value"] for row in seen] == [b"0", b"1", b"2", b"20"]
    everything = topics.options(subscribe=topic_name)
    assert len(rows(read, everything, plan(everything))) == 9


def test_a_range_has_its_own_records_and_no_others(topics: Topics, topic_name: str, read: Reading) -> None:
    topics.create(topic_name)
    topics.produce(topic_name, values(100))
    options = topics.options(subscribe=topic_name)
    parts = [
        OffsetRange(topic_name, 0, 0, 33),
        OffsetRange(topic_name, 0, 33, 34),
        OffsetRange(topic_name, 0, 90, 100),
    ]
    assert [row["offset"] for row in rows(read, options, parts)] == [*range(34), *range(90, 100)]


def test_a_record_larger_than_a_response_is_read(topics: Topics, topic_name: str, read: Reading) -> None:
    topics.create(topic_name, max_message_bytes="20000000")
    large = [Sent(b"a"), Sent(bytes(10_000_000)), Sent(b"b")]
    topics.produce(topic_name, large, **{"message.max.bytes": 20_000_000})
    options = topics.options(subscribe=topic_name)
    assert [row["value"] for row in rows(read, options, plan(options))] == [one.value for one in large]


def test_offsets_that_were_deleted_are_an_error_or_skipped(
    topics: Topics, topic_name: str, read: Reading
) -> None:
    topics.create(topic_name)
    topics.produce(topic_name, values(10))
    topics.delete_before(topic_name, 6)
    wanted = [OffsetRange(topic_name, 0, 2, 9)]
    with pytest.raises(PipelineError, match=rf"{topic_name}-0 no longer has offset 2.*failOnDataLoss=false"):
        rows(read, topics.options(subscribe=topic_name), wanted)
    lenient = topics.options(subscribe=topic_name, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="2 to 5 cannot be read"):
        seen = rows(read, lenient, wanted)
    assert [row["offset"] for row in seen] == [6, 7, 8]


def test_a_topic_that_is_gone_is_an_error_or_gives_nothing(
    broker: RunningBroker, topic_name: str, read: Reading, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetch_reader, "GONE_AFTER_S", 0.2)
    monkeypatch.setattr(consumer_reader, "CHECK_AFTER_S", 0.2)
    topics, wanted = Topics(broker.bootstrap), [OffsetRange(topic_name, 0, 0, 5)]
    with pytest.raises(PipelineError, match=f"{topic_name}-0 no longer has offset 0"):
        rows(read, topics.options(subscribe=topic_name), wanted)
    lenient = topics.options(subscribe=topic_name, failOnDataLoss="false")
    with pytest.warns(UserWarning, match="0 to 4 cannot be read"):
        assert rows(read, lenient, wanted) == []


def test_a_log_that_ends_before_the_range_is_waited_for(
    broker: RunningBroker, topic_name: str, read: Reading
) -> None:
    topics, wanted = Topics(broker.bootstrap), [OffsetRange(topic_name, 0, 0, 9)]
    topics.create(topic_name)
    topics.produce(topic_name, values(5))
    lenient = topics.options(subscribe=topic_name, failOnDataLoss="false")
    late = Timer(1, topics.produce, (topic_name, values(4, start=5)))
    late.start()
    seen = rows(read, lenient, wanted)
    late.join()
    assert [row["offset"] for row in seen] == list(range(9))


def test_a_log_that_stays_shorter_than_the_range_is_an_error_or_ends_the_range(
    broker: RunningBroker, topic_name: str, read: Reading
) -> None:
    topics, wanted = Topics(broker.bootstrap), [OffsetRange(topic_name, 0, 0, 9)]
    topics.create(topic_name)
    topics.produce(topic_name, values(5))
    # librdkafka reports the end of a log after 0.5 s.
    patience: dict[str, Any] = {"subscribe": topic_name, "kafkaConsumer.pollTimeoutMs": "2000"}
    lost = f"{topic_name}-0 ends at offset 5: 5 to 8 cannot be read"
    with pytest.raises(PipelineError, match=lost) as failed:
        rows(read, topics.options(**patience), wanted)
    assert not isinstance(failed.value, RetriableError)
    with pytest.warns(UserWarning, match=lost):
        seen = rows(read, topics.options(**patience, failOnDataLoss="false"), wanted)
    assert len(seen) == 5


def test_a_compacted_topic_gives_the_newest_of_each_key_and_every_part_ends(
    tmp_path_factory: pytest.TempPathFactory, topic_name: str
) -> None:
    with run_ottla(
        tmp_path_factory.mktemp("compacted") / "data", set={"log.cleaner.backoff.ms": "100"}
    ) as broker:
        topics = Topics(broker.bootstrap)
        compacted: dict[str, Any] = {
            "cleanup_policy": "compact",
            "segment_bytes": "1048576",
            "min_cleanable_dirty_ratio": "0.01",
        }
        topics.create(topic_name, **compacted)
        topics.produce(
            topic_name, [Sent(b"%0200d" % number, b"%d" % (number % 100)) for number in range(12_000)]
        )
        options = topics.options(subscribe=topic_name, minPartitions="7")
        parts = split(plan(options), 7)
        deadline = time.monotonic() + 60
        while len(seen := rows(fetch_range, options, parts)) == 12_000:
            assert time.monotonic() < deadline, "the topic was not cleaned"
        assert {row["key"]: row["value"] for row in seen} == {
            b"%d" % (number % 100): b"%0200d" % number for number in range(11_900, 12_000)
        }
        assert all(row in seen for row in rows(consume_range, options, parts[:1]))


def test_reading_continues_when_a_broker_comes_back(
    tmp_path_factory: pytest.TempPathFactory, topic_name: str
) -> None:
    with run_ottla(tmp_path_factory.mktemp("back") / "data") as broker:
        topics = Topics(broker.bootstrap)
        topics.create(topic_name)
        topics.produce(topic_name, [Sent(b"x" * 1000)] * 10_000)
        options = topics.options(subscribe=topic_name)
        (wanted,) = plan(options)
        batches = fetch_range(options, wanted)
        offsets = next(batches)["offset"].to_pylist()
        assert len(offsets) < 10_000
        broker.kill()
        broker.start()
        for batch in batches:
            offsets += batch["offset"].to_pylist()
        assert offsets == list(range(10_000))


def test_a_broker_that_stays_down_is_a_retriable_error(
    tmp_path_factory: pytest.TempPathFactory, topic_name: str, read: Reading
) -> None:
    with run_ottla(tmp_path_factory.mktemp("away") / "data") as broker:
        topics = Topics(broker.bootstrap)
        topics.create(topic_name)
        topics.produce(topic_name, values(5))
        patience: dict[str, Any] = {"kafkaConsumer.pollTimeoutMs": "500"}
        options = topics.options(subscribe=topic_name, **patience)
        ranges = plan(options)
    with pytest.raises(RetriableError, match=rf"{topic_name}-0 sent nothing"):
        rows(read, options, ranges)
