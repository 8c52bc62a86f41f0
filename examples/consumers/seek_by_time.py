"""Seek by time: start each partition at its first record with this timestamp or a later one."""

import sys
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap, topic, group, since = sys.argv[1:]
since_ms = int(datetime.fromisoformat(since).timestamp() * 1000)


def seek_to_time(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    # The broker returns an offset for each partition: its end if all records are older. With a cooperative assignment
    # strategy, or group.protocol=consumer, call incremental_assign instead of assign.
    times = [TopicPartition(p.topic, p.partition, since_ms) for p in partitions]
    consumer.assign(consumer.offsets_for_times(times, timeout=30))


consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
consumer.subscribe([topic], on_assign=seek_to_time)
try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        print("handled", message.value().decode(), flush=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
