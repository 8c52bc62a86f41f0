"""Manual commit: asynchronous at intervals, synchronous before partitions go to another member."""

import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap, topic, group = sys.argv[1:]
COMMIT_EVERY = 1000

done: dict[int, int] = {}  # partition: the next offset to handle


def commit(consumer: Consumer, *, asynchronous: bool) -> None:
    offsets = [TopicPartition(topic, partition, offset) for partition, offset in done.items()]
    if offsets:
        consumer.commit(offsets=offsets, asynchronous=asynchronous)


def on_revoke(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    # The last chance: when another member has the partitions, the broker rejects commits with ILLEGAL_GENERATION.
    commit(consumer, asynchronous=False)
    on_lost(consumer, partitions)


def on_lost(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    # Another member may have them already, so nothing can be committed.
    for partition in partitions:
        done.pop(partition.partition, None)


consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "partition.assignment.strategy": "cooperative-sticky",
    }
)
consumer.subscribe([topic], on_revoke=on_revoke, on_lost=on_lost)
handled = 0
try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        print("handled", message.value().decode(), flush=True)
        done[message.partition()] = message.offset() + 1
        handled += 1
        if handled % COMMIT_EVERY == 0:
            commit(consumer, asynchronous=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()  # calls on_revoke
