"""A member of a group as a program of its own, to be killed or stopped in its tracks: `BOOTSTRAP TOPIC GROUP JOURNAL`.

Each record that its pool has handled is a line of the journal: partition, offset, key.
"""

import sys
import threading
import time
from pathlib import Path

from ottla.workers import Record, WorkerPool


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
        WorkerPool(config, [topic], handle, workers=4, commit_interval_s=0.2).run()


if __name__ == "__main__":
    main(*sys.argv[1:])
