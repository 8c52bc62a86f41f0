"""A member of a group as a program of its own, for tests that kill or stop it: `BOOTSTRAP TOPIC GROUP JOURNAL`.

Each handled record is a line of the journal: partition, offset, key.
"""

import sys
import threading
import time
from pathlib import Path

from ottla.consumer import ParallelConsumer, Record


def main(bootstrap: str, topic: str, group: str, journal: str) -> None:
    lock = threading.Lock()
    with Path(journal).open("a", buffering=1) as lines:

        def handle(record: Record) -> None:
            time.sleep(0.002)
            with lock:
                lines.write(f"{record.partition} {record.offset} {(record.key or b'').decode()}\n")

        config = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "partition.assignment.strategy": "cooperative-sticky",
            # The least that brokers allow: the others wait for it when this program is killed.
            "session.timeout.ms": 6_000,
            "heartbeat.interval.ms": 500,
        }
        ParallelConsumer(config, [topic], handle, concurrency=4, commit_interval_s=0.2).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
