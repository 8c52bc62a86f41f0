"""confluent-kafka's transactional producer, and what readers see of its transactions."""

import contextlib
import random
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from tests.interop.brokers import RunningBroker
from tests.interop.group_clients import PROTOCOLS, committed, drive
from tests.interop.librdkafka import (
    TIMEOUT_S,
    admin_of,
    consumer_at,
    create_topic,
    flush,
    produce_values,
    take,
    wait_until,
)
from tests.interop.transaction_clients import (
    Transactional,
    all_values,
    committed_values,
    end_offset,
    error_of,
    last_stable_offset,
    numbers,
)

pytestmark = pytest.mark.contract


@pytest.fixture
def bootstrap(transaction_broker: RunningBroker) -> str:
    return transaction_broker.bootstrap


def test_a_transaction_over_partitions_and_topics_is_visible_whole_after_its_commit_and_not_before(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    other = f"{topic_name}-other"
    create_topic(bootstrap, topic_name, partitions=2)
    create_topic(bootstrap, other)
    where = [(topic_name, 0), (topic_name, 1), (other, 0)]
    producer = Transactional(bootstrap, transactional_id)
    producer.begin()
    for topic, partition in where:
        producer.send(topic, numbers(0, 10), partition)
    for topic, partition in where:
        assert all_values(bootstrap, topic, partition) == numbers(0, 10)
        assert committed_values(bootstrap, topic, partition) == []
        assert last_stable_offset(bootstrap, topic, partition) == 0
        assert end_offset(bootstrap, topic, partition) == 10
    producer.commit()
    for topic, partition in where:
        assert committed_values(bootstrap, topic, partition) == numbers(0, 10)
        # The marker has an offset too.
        assert (
            last_stable_offset(bootstrap, topic, partition) == end_offset(bootstrap, topic, partition) == 11
        )


def test_records_of_an_aborted_transaction_are_invisible_and_those_of_the_next_are_visible(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name, partitions=2)
    producer = Transactional(bootstrap, transactional_id)
    producer.begin()
    for partition in (0, 1):
        producer.send(topic_name, ["aborted"], partition)
    producer.abort()
    for partition in (0, 1):
        producer.transaction(topic_name, ["committed"], partition)
        assert committed_values(bootstrap, topic_name, partition) == ["committed"]
        assert all_values(bootstrap, topic_name, partition) == ["aborted", "committed"]
        assert end_offset(bootstrap, topic_name, partition) == 4


def test_the_last_stable_offset_is_the_first_offset_of_the_oldest_open_transaction(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)
    produce_values(bootstrap, topic_name, [b"before"])
    first, second = (Transactional(bootstrap, f"{transactional_id}-{n}") for n in (1, 2))
    first.begin()
    first.send(topic_name, ["first"])
    second.transaction(topic_name, ["second"])
    produce_values(bootstrap, topic_name, [b"after"])
    # before, first, second, the marker of second, after: all records behind the open transaction wait.
    assert (last_stable_offset(bootstrap, topic_name), end_offset(bootstrap, topic_name)) == (1, 5)
    assert committed_values(bootstrap, topic_name) == ["before"]
    second.begin()
    second.send(topic_name, ["open"])
    first.abort()
    assert (last_stable_offset(bootstrap, topic_name), end_offset(bootstrap, topic_name)) == (5, 7)
    assert committed_values(bootstrap, topic_name) == ["before", "second", "after"]
    second.commit()
    assert (last_stable_offset(bootstrap, topic_name), end_offset(bootstrap, topic_name)) == (8, 8)
    assert committed_values(bootstrap, topic_name) == ["before", "second", "after", "open"]


def test_many_interleaved_transactions_of_random_outcome_are_each_all_or_nothing(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name, partitions=3)
    chance = random.Random(890)
    producers = [Transactional(bootstrap, f"{transactional_id}-{n}") for n in range(3)]
    expected: list[list[str]] = [[], [], []]
    opened: dict[int, list[tuple[int, str]]] = {}
    for step in range(150):
        number = chance.randrange(3)
        producer = producers[number]
        if number not in opened:
            producer.begin()
            opened[number] = []
        partition, value = chance.randrange(3), f"{number}-{step}"
        producer.send(topic_name, [value], partition)
        opened[number].append((partition, value))
        if chance.random() < 0.4:
            sent = opened.pop(number)
            if chance.random() < 0.5:
                producer.abort()
                continue
            producer.commit()
            for partition, value in sent:
                expected[partition].append(value)
    for number in opened:
        producers[number].abort()
    for partition in range(3):
        written = all_values(bootstrap, topic_name, partition)
        in_log_order = [value for value in written if value in expected[partition]]
        assert committed_values(bootstrap, topic_name, partition) == in_log_order
        assert sorted(in_log_order) == sorted(expected[partition])


def test_transactions_without_records_begin_and_end(bootstrap: str, transactional_id: str) -> None:
    producer = Transactional(bootstrap, transactional_id)
    for end in (producer.commit, producer.abort, producer.commit):
        producer.begin()
        end()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_batches_are_committed_and_aborted_like_others(
    bootstrap: str, topic_name: str, transactional_id: str, codec: str
) -> None:
    create_topic(bootstrap, topic_name)
    producer = Transactional(bootstrap, transactional_id, compression_type=codec, linger_ms=5)
    for end in (producer.abort, producer.commit):
        producer.begin()
        producer.send(topic_name, numbers(0, 500))
        end()
    assert committed_values(bootstrap, topic_name) == numbers(0, 500)
    assert len(all_values(bootstrap, topic_name)) == 1000


# -- fencing and timeouts


def test_a_second_producer_with_the_same_id_aborts_the_open_transaction_and_fences_the_first(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)
    first = Transactional(bootstrap, transactional_id)
    first.transaction(topic_name, ["kept"])
    first.begin()
    first.send(topic_name, ["lost"])
    second = Transactional(bootstrap, transactional_id)
    second.transaction(topic_name, ["new"])
    with pytest.raises(KafkaException) as refused:
        first.commit()
    assert error_of(refused.value).fatal()
    assert error_of(refused.value).code() == KafkaError._FENCED
    second.transaction(topic_name, ["newer"])
    assert committed_values(bootstrap, topic_name) == ["kept", "new", "newer"]


def test_a_fenced_producer_can_neither_begin_nor_write(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)
    zombie = Transactional(bootstrap, transactional_id)
    Transactional(bootstrap, transactional_id)
    zombie.begin()
    zombie.producer.produce(topic_name, b"zombie", partition=0)
    with pytest.raises(KafkaException) as refused:
        zombie.commit()
    assert error_of(refused.value).fatal()
    assert all_values(bootstrap, topic_name) == []


def test_a_transaction_that_is_open_for_too_long_is_aborted(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)
    producer = Transactional(bootstrap, transactional_id, transaction_timeout_ms=1000)
    producer.begin()
    producer.send(topic_name, ["late"])
    wait_until(lambda: last_stable_offset(bootstrap, topic_name) == 2, "the coordinator has aborted it")
    with pytest.raises(KafkaException):
        producer.commit()
    assert committed_values(bootstrap, topic_name) == []
    Transactional(bootstrap, transactional_id).transaction(topic_name, ["next"])
    assert committed_values(bootstrap, topic_name) == ["next"]


def test_a_timeout_beyond_the_maximum_is_rejected(bootstrap: str, transactional_id: str) -> None:
    with pytest.raises(KafkaException) as refused:
        Transactional(bootstrap, transactional_id, transaction_timeout_ms=900_001)
    assert error_of(refused.value).code() == KafkaError.INVALID_TRANSACTION_TIMEOUT


# -- offsets inside transactions

GROUP_PROTOCOLS = ("eager", "cooperative", "consumer")


@contextlib.contextmanager
def member(bootstrap: str, group_id: str, topic: str, protocol: str, **config: object) -> Iterator[Consumer]:
    """A consumer of this process with assigned partitions."""
    settings = {name.replace("_", "."): value for name, value in config.items()}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group_id,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
            **PROTOCOLS[protocol],
            **settings,
        }
    )
    consumer.subscribe([topic])
    try:
        drive(consumer, lambda: bool(consumer.assignment()), "partitions are assigned")
        yield consumer
    finally:
        consumer.close()


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_offsets_of_the_consumer_move_with_the_records_when_the_transaction_is_committed(
    bootstrap: str, topic_name: str, group_id: str, transactional_id: str, protocol: str
) -> None:
    output = f"{topic_name}-out"
    create_topic(bootstrap, topic_name)
    create_topic(bootstrap, output)
    produce_values(bootstrap, topic_name, [b"1", b"2"])
    producer = Transactional(bootstrap, transactional_id)
    with member(bootstrap, group_id, topic_name, protocol) as consumer:

        def copy(value: str, next_offset: int) -> None:
            producer.begin()
            producer.send(output, [value])
            producer.send_offset(topic_name, next_offset, consumer.consumer_group_metadata())

        copy("1", 1)
        assert committed(bootstrap, group_id, topic_name) is None
        producer.commit()
        assert committed(bootstrap, group_id, topic_name) == 1
        copy("2", 2)
        assert committed(bootstrap, group_id, topic_name) == 1
        producer.abort()
        assert committed(bootstrap, group_id, topic_name) == 1
        copy("2 again", 2)
        # A reader of committed offsets waits for the outcome (UNSTABLE_OFFSET_COMMIT, KIP-447).
        with pytest.raises(KafkaException):
            consumer.committed([TopicPartition(topic_name, 0)], timeout=0.5)
        producer.commit()
        (position,) = consumer.committed([TopicPartition(topic_name, 0)], timeout=TIMEOUT_S)
        assert position.offset == 2
    assert committed_values(bootstrap, output) == ["1", "2 again"]


@pytest.mark.parametrize("protocol", GROUP_PROTOCOLS)
def test_offsets_of_a_member_that_has_left_are_rejected_and_change_nothing(
    bootstrap: str, topic_name: str, group_id: str, transactional_id: str, protocol: str
) -> None:
    output = f"{topic_name}-out"
    create_topic(bootstrap, topic_name)
    create_topic(bootstrap, output)
    with member(bootstrap, group_id, topic_name, protocol) as zombie:
        metadata = zombie.consumer_group_metadata()
    with member(bootstrap, group_id, topic_name, protocol) as consumer:
        producer = Transactional(bootstrap, transactional_id)
        producer.begin()
        producer.send(output, ["zombie"])
        with pytest.raises(KafkaException) as refused:
            producer.send_offset(topic_name, 7, metadata)
        assert error_of(refused.value).txn_requires_abort()
        producer.abort()
        assert committed(bootstrap, group_id, topic_name) is None
        producer.begin()
        mine = consumer.consumer_group_metadata()
        producer.send_offset(topic_name, 3, mine)
        producer.commit()
        assert committed(bootstrap, group_id, topic_name) == 3
    assert committed_values(bootstrap, output) == []


def test_offsets_of_an_older_generation_are_rejected(
    bootstrap: str, topic_name: str, group_id: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name, partitions=2)
    producer = Transactional(bootstrap, transactional_id)
    with member(bootstrap, group_id, topic_name, "eager") as first:
        old = first.consumer_group_metadata()
        joining = Consumer({"bootstrap.servers": bootstrap, "group.id": group_id, **PROTOCOLS["eager"]})
        with contextlib.closing(joining):
            joining.subscribe([topic_name])

            def is_shared() -> bool:
                joining.poll(0.05)
                return len(first.assignment()) == len(joining.assignment()) == 1

            drive(first, is_shared, "the second member has joined")
            producer.begin()
            with pytest.raises(KafkaException) as refused:
                producer.send_offset(topic_name, 7, old)
            assert error_of(refused.value).code() == KafkaError.ILLEGAL_GENERATION
            producer.abort()
    assert committed(bootstrap, group_id, topic_name) is None


# -- other readers and writers beside


def test_a_reader_that_waits_at_an_open_transaction_continues_when_it_ends(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name)
    producer = Transactional(bootstrap, transactional_id)
    begin = [TopicPartition(topic_name, 0, 0)]
    with consumer_at(bootstrap, begin, isolation_level="read_committed") as reader:
        for number in range(10):
            producer.begin()
            producer.send(topic_name, [str(number)])
            assert reader.consume(1, timeout=0.05) == []
            producer.commit()
            (message,) = take(reader, 1)
            assert message.value() == str(number).encode()


def test_a_lookup_by_timestamp_finds_only_records_that_the_reader_may_see(
    bootstrap: str, topic_name: str, transactional_id: str
) -> None:
    create_topic(bootstrap, topic_name, config={"retention.ms": "-1"})  # the record has a timestamp of 1970
    producer = Transactional(bootstrap, transactional_id)
    producer.begin()
    producer.producer.produce(topic_name, b"open", partition=0, timestamp=1_000)
    flush(producer.producer)
    admin, wanted = admin_of(bootstrap), TopicPartition(topic_name, 0)
    for level, offset in ((IsolationLevel.READ_UNCOMMITTED, 0), (IsolationLevel.READ_COMMITTED, -1)):
        asked = admin.list_offsets({wanted: OffsetSpec.for_timestamp(500)}, isolation_level=level)
        assert asked[wanted].result(TIMEOUT_S).offset == offset
    producer.commit()
    asked = admin.list_offsets(
        {wanted: OffsetSpec.for_timestamp(500)}, isolation_level=IsolationLevel.READ_COMMITTED
    )
    assert asked[wanted].result(TIMEOUT_S).offset == 0
