"""Exactly once with confluent-kafka: records are read, changed and written, all of it or nothing."""

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
        "group.protocol": "consumer",  # KIP-848; it works with "classic" alike
        "auto.offset.reset": "earliest",
        # The transaction commits the offsets, nobody else.
        "enable.auto.commit": False,
        # Of what others write in transactions, only what they have committed.
        "isolation.level": "read_committed",
    }
)
producer = Producer(
    {
        "bootstrap.servers": bootstrap,
        # The same after a restart, so that what the program left open is aborted at once; another in each instance.
        "transactional.id": transactional_id,
    }
)


def transform(value: bytes | None) -> bytes:
    return (value or b"").upper()


def copy(messages: list[Message]) -> None:
    """One transaction: the records that are written, and the offsets to go on with."""
    producer.begin_transaction()
    done: dict[tuple[str, int], int] = {}
    for message in messages:
        producer.produce(target, transform(message.value()), message.key())
        producer.poll(0)
        done[message.topic(), message.partition()] = message.offset() + 1
    offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in done.items()]
    # With the consumer's metadata the broker refuses the offsets of a member whose partitions another has (KIP-447).
    producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), TIMEOUT_S)
    until_it_is_known(producer.commit_transaction)


def until_it_is_known(end: Callable[[float], None]) -> None:
    """While no broker answers, the outcome is not known. Asking again is safe, giving up is not."""
    while True:
        try:
            end(TIMEOUT_S)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def rewind() -> None:
    """Back to where the last committed transaction ended."""
    for position in consumer.committed(consumer.assignment(), TIMEOUT_S):
        if position.error:  # not known, which is something else than none
            raise KafkaException(position.error)
        position.offset = position.offset if position.offset >= 0 else OFFSET_BEGINNING
        consumer.seek(position)


producer.init_transactions(TIMEOUT_S)  # whoever had this id before is fenced
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
            # Fenced, or not allowed: only another process can go on. Anything else is undone and tried again.
            if error.args[0].fatal():
                raise
            until_it_is_known(producer.abort_transaction)
            rewind()
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
