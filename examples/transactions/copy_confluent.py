"""Exactly once with confluent-kafka: read records, change them and write them, all in one transaction."""

import sys
from collections.abc import Callable

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

bootstrap, source, target, group, transactional_id = sys.argv[1:]
RECORDS_A_TRANSACTION = 1000
TIMEOUT_S = 30.0

consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "group.protocol": "consumer",  # KIP-848; "classic" works too
        "auto.offset.reset": "earliest",
        # The transaction commits the offsets.
        "enable.auto.commit": False,
        # Skip records of aborted transactions.
        "isolation.level": "read_committed",
    }
)
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        # Unique to this instance, and the same after a restart: then a transaction left open is aborted at once.
        "transactional.id": transactional_id,
    }
)


def transform(value: bytes | None) -> bytes:
    return (value or b"").upper()


def copy(messages: list[Message]) -> None:
    """One transaction: the records that are written, and the offsets of those that were read."""
    producer.begin_transaction()
    done: dict[tuple[str, int], int] = {}
    for message in messages:
        producer.produce(target, transform(message.value()), message.key())
        producer.poll(0)
        done[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
    # With the group metadata, the broker rejects offsets of partitions that another member has by now (KIP-447).
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    retry_until_decided(producer.commit_transaction)


def retry_until_decided(end: Callable[[float], None]) -> None:
    """If no broker responds, the outcome is unknown. Repeating the call is safe, giving up is not."""
    while True:
        try:
            end(TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind() -> None:
    """Seeks to the end of the last committed transaction."""
    for position in consumer.committed(consumer.assignment(), TIMEOUT_S):
        if position.error:  # unknown, which is not the same as none
            raise KafkaException(position.error)
        position.offset = position.offset if position.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(position)


producer.init_transactions(TIMEOUT_S)  # fences an older instance with this id
consumer.subscribe([source])
try:
    while True:
        messages = consumer.consume(RECORDS_A_TRANSACTION, timeout=0.2)
        for message in messages:
            if message.error() and message.error().code() != KafkaError._TRANSPORT:
                raise KafkaException(message.error())
        messages = [message for message in messages if not message.error()]
        if not messages:
            continue
        try:
            copy(messages)
            print("committed", len(messages), flush=True)
        except KafkaException as error:
            # Fenced, or not authorized: this process cannot continue. Anything else is aborted and tried again.
            if error.args[0].fatal():
                raise
            retry_until_decided(producer.abort_transaction)
            rewind()
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
