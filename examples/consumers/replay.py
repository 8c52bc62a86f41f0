"""Replay: a new group has committed nothing, so it begins with the oldest record. Other groups are not affected."""

import sys
import time

from confluent_kafka import Consumer, KafkaError, KafkaException

bootstrap, topic, group = sys.argv[1:]

consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": f"{group}-replay-{int(time.time())}",
        "auto.offset.reset": "earliest",
        "enable.partition.eof": True,
    }
)
consumer.subscribe([topic])
read_to_end: set[int] = set()
try:
    # Up to the end of each partition; `while True` would go on with new records.
    while not read_to_end or len(read_to_end) < len(consumer.assignment()):
        message = consumer.poll(1.0)
        if message is None:
            continue
        if not message.error():
            print("handled", message.value().decode(), flush=True)
        elif message.error().code() == KafkaError._PARTITION_EOF:
            read_to_end.add(message.partition())
        else:
            raise KafkaException(message.error())
finally:
    consumer.close()
