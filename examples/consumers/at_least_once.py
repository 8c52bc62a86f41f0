"""At least once: handle first, then commit. After a crash some records are handled again, but none is lost."""

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
        # One commit per batch, not per record: each commit waits for the broker.
        messages = consumer.consume(100, timeout=0.5)
        for message in messages:
            if message.error():
                raise KafkaException(message.error())
            print("handled", message.value().decode(), flush=True)
        if messages:
            consumer.commit(asynchronous=False)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
