"""One consumer with a pool of processes: for handlers that compute, one for each core."""

import hashlib
import os
import signal
import sys

from ottla.workers import Record, WorkerPool


def handle(record: Record) -> None:
    digest = hashlib.pbkdf2_hmac("sha256", record.value or b"", b"salt", 1000).hex()
    # One write for the line, as all processes share the output.
    print(f"handled {(record.value or b'').decode()} {digest[:8]}\n", end="", flush=True)


# Worker processes import this file: only the program itself is to start a pool.
if __name__ == "__main__":
    bootstrap, topic, group = sys.argv[1:]
    pool = WorkerPool(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"},
        [topic],
        handle,
        workers=os.cpu_count() or 1,
        processes=True,
        order="partition",
    )
    signal.signal(signal.SIGTERM, lambda *_: pool.stop())
    signal.signal(signal.SIGINT, lambda *_: pool.stop())
    pool.run()
