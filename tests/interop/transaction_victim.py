"""A producer process that begins a transaction, prints that, and waits until it is killed."""

import sys
import time

from tests.interop.transaction_clients import Transactional
from tests.interop.transaction_copier import emit, end_with_parent

if __name__ == "__main__":
    end_with_parent()
    bootstrap, topic, transactional_id, timeout_ms = sys.argv[1:]
    producer = Transactional(bootstrap, transactional_id, transaction_timeout_ms=int(timeout_ms))
    producer.begin()
    producer.send(topic, ["victim"])
    emit("open")
    while True:
        time.sleep(60)
