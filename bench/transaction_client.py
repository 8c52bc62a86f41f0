"""Transactions of librdkafka, one after the other: how many a second, and the throughput of records inside them."""

import os
import time
from typing import Any

from confluent_kafka import Producer

TIMEOUT_S = 60
ROOMY_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}

Spec = dict[str, Any]


class TransactionalClient:
    def __init__(self, spec: Spec, **settings: object) -> None:
        self._topic = spec["topic"]
        self._producer = Producer(
            {
                "bootstrap.servers": spec["bootstrap"],
                "transactional.id": spec["topic"],
                **ROOMY_QUEUE,
                **settings,
            }
        )
        self._producer.list_topics(self._topic, timeout=TIMEOUT_S)
        self._producer.init_transactions(TIMEOUT_S)
        value = os.urandom(spec["value_bytes"])
        partitions = spec["partitions"]
        self._messages = [
            {"value": value, "partition": n % partitions} for n in range(spec["records_a_transaction"])
        ]

    def transaction(self) -> None:
        """Begins, sends all messages and commits; a rejected record fails the commit."""
        self._producer.begin_transaction()
        if self._producer.produce_batch(self._topic, self._messages) != len(self._messages):
            raise RuntimeError("the client's queue is full: make the transactions smaller")
        self._producer.commit_transaction(TIMEOUT_S)


def transactions(spec: Spec) -> dict[str, float]:
    """Counts the transactions that are committed in `run_s` seconds."""
    client = TransactionalClient(spec, **{"linger.ms": 0})
    count, began = 0, time.monotonic()
    while time.monotonic() < began + spec["run_s"]:
        client.transaction()
        count += 1
    return {"transactions": count / (time.monotonic() - began)}


def produce_in_transactions(spec: Spec) -> dict[str, float]:
    """`records` in all, with the settings of the throughput scenarios."""
    client = TransactionalClient(spec, **{"linger.ms": 5, "batch.size": 1_000_000})
    began, cpu_began = time.monotonic(), time.process_time()
    for _ in range(spec["records"] // spec["records_a_transaction"]):
        client.transaction()
    return {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu_began}
