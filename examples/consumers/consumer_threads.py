"""One consumer per thread: four members of the group in one program."""

import logging
import signal
import sys

from ottla.consumer import ConsumerThreads, Record

bootstrap, topic, group = sys.argv[1:]
logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(message)s")


def handle(record: Record) -> None:
    logging.info("handled %s", (record.value or b"").decode())


consumers = ConsumerThreads(
    {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"},
    [topic],
    handle,
    threads=4,
)
signal.signal(signal.SIGTERM, lambda *_: consumers.stop())
signal.signal(signal.SIGINT, lambda *_: consumers.stop())
consumers.run()
