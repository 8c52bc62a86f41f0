"""Reads a dead-letter topic: which records failed, where they came from, and why."""

import sys

from confluent_kafka import Consumer, KafkaException

bootstrap, topic, group = sys.argv[1:]

consumer = Consumer(
    {"bootstrap.servers": bootstrap, "group.id": f"{group}-inspection", "auto.offset.reset": "earliest"}
)
consumer.subscribe([f"{topic}.dead"])
try:
    while True:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error():
            raise KafkaException(message.error())
        prefix = "dead-letter."
        headers = {
            name.removeprefix(prefix): value.decode()
            for name, value in message.headers()
            if name.startswith(prefix)
        }
        origin = f"{headers['topic']}-{headers['partition']}@{headers['offset']}"
        print(f"{origin} failed with {headers['error.type']}: {headers['error.text']}", flush=True)
except KeyboardInterrupt:
    pass
finally:
    consumer.close()
