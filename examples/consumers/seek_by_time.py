"""Seek by time: begin with the first record that is not older than a moment, in each partition."""

import sys
from datetime import datetime

from confluent_kafka import Consumer, KafkaException, TopicPartition

bootstrap, topic, group, since = sys.argv[1:]
since_ms = int(datetime.fromisoformat(since).timestamp() * 1000)


def begin_at_that_time(consumer: Consumer, partitions: list[TopicPartition]) -> None:
    # The broker answers with offsets; where all records are older, with the end of the partition. With a cooperative
    # assignment strategy, or group.protocol=consumer, this is incremental_assign.
    asked = [TopicPartition(p.topic, p.partition, since_ms) for p in partitions]
    consumer.assign(consumer.offsets_for_times(asked, timeout=30))


consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
consumer.subscribe([topic], on_assign=begin_at_that_time)
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
