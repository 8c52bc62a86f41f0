"""Auto commit, at least once: the client commits in the background, but only offsets that we store."""

import sys

from confluent_kafka import Consumer, KafkaException

bootstrap, topic, group = sys.argv[1:]

consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5000,
        # Without this line poll() stores the offset before the record is handled, and a crash can lose the record.
        "enable.auto.offset.store": False,
    }
)
consumer.subscribe([topic])
try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        print("handled", message.value().decode(), flush=True)
        consumer.store_offsets(message)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
