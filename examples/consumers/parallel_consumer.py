"""One consumer with many threads: for handlers that wait for a database or another service."""

import logging
import signal
import sys

from ottla.consumer import ParallelConsumer, Record, Retry

bootstrap, topic, group = sys.argv[1:]
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")


def handle(record: Record) -> None:
    if record.value == b"poison":
        raise ValueError("this record makes no sense")
    logging.info("handled %s", (record.value or b"").decode())


consumer = ParallelConsumer(
    {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "partition.assignment.strategy": "cooperative-sticky",
    },
    [topic],
    handle,
    concurrency=16,
    order="key",
    retry=Retry(attempts=3, backoff_s=0.5),
    dead_letter_topic=f"{topic}.dead",
)
signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
signal.signal(signal.SIGINT, lambda *_: consumer.stop())
consumer.run()
