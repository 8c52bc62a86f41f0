"""One consumer with many processes: for handlers that compute, one process for each core."""

import hashlib
import os
import signal
import sys

from ottla.consumer import ParallelConsumer, Record


def handle(record: Record) -> None:
    digest = hashlib.pbkdf2_hmac("sha256", record.value or b"", b"salt", 1000).hex()
    # One write for the whole line, because all processes share the output.
    print(f"handled {(record.value or b'').decode()} {digest[:8]}\n", end="", flush=True)


# Handler processes import this file too: only the program itself may start a consumer.
if __name__ == "__main__":
    bootstrap, topic, group = sys.argv[1:]
    consumer = ParallelConsumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"},
        [topic],
        handle,
        concurrency=os.cpu_count() or 1,
        processes=True,
        order="partition",
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
    signal.signal(signal.SIGINT, lambda *_: consumer.stop())
    consumer.run()
