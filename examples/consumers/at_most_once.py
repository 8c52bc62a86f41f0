"""At most once: commit first, then handle. A crash can lose a record, but none is handled twice."""

import sys

from confluent_kafka import Consumer, KafkaException

bootstrap, topic, group = sys.argv[1:]

consumer = Consumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
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
        consumer.commit(message=message, asynchronous=False)
        print("handled", message.value().decode(), flush=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
