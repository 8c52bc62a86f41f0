"""kafka-python as a producer or a consumer that prints what happens, in the lines of Kafka's verifiable clients.

    python -m tests.interop.kafka_python_tools produce|consume BOOTSTRAP TOPIC [GROUP]

It is a process of its own, because kafka-python leaves sockets open that could not be connected. It ends at a SIGTERM.
"""

import json
import signal
import sys
import threading
from typing import Any

from kafka import KafkaConsumer, KafkaProducer

RATE = 600
PARTITIONS = 3
PAUSE_S = 0.05
CLOSE_TIMEOUT_S = 30
COMMON = {"reconnect_backoff_max_ms": 200}


def produce(stop: threading.Event, bootstrap: str, topic: str) -> None:
    # A paused node keeps its connections open: with the default each request to it would take 30 s.
    producer = KafkaProducer(bootstrap_servers=bootstrap.split(","), request_timeout_ms=3_000, **COMMON)
    number = 0
    while not stop.wait(PAUSE_S):
        for _ in range(int(RATE * PAUSE_S)):
            sent = producer.send(topic, str(number).encode(), partition=number % PARTITIONS)
            sent.add_callback(acknowledged, number)
            sent.add_errback(rejected, number)
            number += 1
    producer.close(timeout=CLOSE_TIMEOUT_S)


def acknowledged(number: int, metadata: Any) -> None:
    say("producer_send_success", value=number, partition=metadata.partition, offset=metadata.offset)


def rejected(number: int, error: BaseException) -> None:
    say("producer_send_error", value=number, message=repr(error))


def consume(stop: threading.Event, bootstrap: str, topic: str, group: str) -> None:
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap.split(","),
        group_id=group,
        auto_offset_reset="earliest",
        auto_commit_interval_ms=200,
        # A JoinGroup may wait for the other members, so it must have more time than a session.
        session_timeout_ms=10_000,
        request_timeout_ms=15_000,
        **COMMON,
    )
    while not stop.is_set():
        for records in consumer.poll(timeout_ms=200).values():
            for record in records:
                number = int(record.value)
                say("record_data", value=number, partition=record.partition, offset=record.offset)
    consumer.close()


def say(name: str, **values: object) -> None:
    print(json.dumps({"name": name, **values}), flush=True)


def main() -> None:
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    role, *arguments = sys.argv[1:]
    if role == "produce":
        produce(stop, *arguments)
    else:
        consume(stop, *arguments)


if __name__ == "__main__":
    main()
