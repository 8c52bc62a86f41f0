"""The client of a benchmark. It has a process of its own, so that its CPU time can be told from the broker's.

`python -m bench.client ROLE JSON` does one piece of work with librdkafka (or on plain sockets, if a library would cost
more than the broker) and prints one line of JSON: the measurements and, for throughput, the CPU seconds of the client.
It makes few Python calls per record: it produces lists, it consumes up to ten thousand records a call, and it uses no
delivery callbacks (the end offsets are checked), except to measure the time until they are called.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from bench.cluster_client import create_partitions, produce_to_all, steady_load
from bench.group_client import group_join, group_ready
from bench.group_wire import many_groups, offset_commits
from bench.transaction_client import produce_in_transactions, transactions

BATCH = 10_000
FLUSH_TIMEOUT_S = 300
ROUND_TRIP_TIMEOUT_S = 30
OFFSETS_TIMEOUT_S = 60
# Room for a whole run, so that Python never waits for the queue: we measure how fast the queue drains.
ROOMY_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}
THROUGHPUT = {"linger.ms": 5, "batch.size": 1_000_000, "acks": "all"}
ONE_RECORD_A_REQUEST = {"linger.ms": 0, "batch.num.messages": 1, "acks": "all"}

Spec = dict[str, Any]
Result = dict[str, Any]


class Stopwatch:
    """Wall clock and CPU time since it was created: the time of the work, without the start of Python."""

    def __init__(self) -> None:
        self._began, self._cpu_began = time.monotonic(), time.process_time()

    def read(self) -> dict[str, float]:
        return {
            "seconds": time.monotonic() - self._began,
            "cpu_seconds": time.process_time() - self._cpu_began,
        }


def produce(spec: Spec) -> Result:
    """Sends `records` of `value_bytes` round the partitions; throughput settings, or one record a request."""
    settings = ONE_RECORD_A_REQUEST if spec.get("one_record") else THROUGHPUT
    producer = Producer({"bootstrap.servers": spec["bootstrap"], **ROOMY_QUEUE, **settings})
    producer.list_topics(spec["topic"], timeout=30)
    value = os.urandom(spec["value_bytes"])
    messages = [{"value": value, "partition": n % spec["partitions"]} for n in range(BATCH)]
    clock = Stopwatch()
    for first in range(0, spec["records"], BATCH):
        count = min(BATCH, spec["records"] - first)
        if producer.produce_batch(spec["topic"], messages[:count] if count < BATCH else messages) != count:
            raise RuntimeError("the client's queue is full: make the run smaller")
    if producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError(f"not all records were acknowledged within {FLUSH_TIMEOUT_S} s")
    measured = clock.read()
    check_end(spec)
    return measured


def check_end(spec: Spec) -> None:
    """Checks the end offsets: without callbacks a rejected record would go unnoticed."""
    held = sum(end_offsets(spec["bootstrap"], spec["topic"], spec["partitions"]))
    expected = spec.get("expected_end", spec["records"])
    if held != expected:
        raise RuntimeError(f"{spec['topic']} holds {held} records, not {expected}")


def end_offsets(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Asks until every partition has a leader: a new topic does not have all of them at once."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    latest = {TopicPartition(topic, partition): OffsetSpec.latest() for partition in range(partitions)}
    deadline = time.monotonic() + OFFSETS_TIMEOUT_S
    while True:
        try:
            return [future.result(OFFSETS_TIMEOUT_S).offset for future in admin.list_offsets(latest).values()]
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def consume(spec: Spec) -> Result:
    """Consumes `records` that are in the topic already, from `start_offset` of each partition."""
    consumer = new_consumer(spec, **{"fetch.message.max.bytes": 8_000_000, "queued.min.messages": 1_000_000})
    start = spec.get("start_offset", 0)
    consumer.list_topics(spec["topic"], timeout=30)
    clock = Stopwatch()
    consumer.assign([TopicPartition(spec["topic"], p, start) for p in range(spec["partitions"])])
    left, first_record_s = spec["records"], 0.0
    while left > 0:
        messages = consumer.consume(BATCH, timeout=10)
        if not messages:
            raise RuntimeError(f"no record for 10 s, with {left} of {spec['records']} to come")
        if messages[0].error() is not None:
            raise KafkaException(messages[0].error())
        first_record_s = first_record_s or clock.read()["seconds"]
        left -= len(messages)
    measured = clock.read()
    consumer.close()
    return {**measured, "first_record_s": first_record_s}


def latency(spec: Spec) -> Result:
    """From produce() until the consumer has the record, at `rate` records a second; one thread, so no lock is held."""
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "linger.ms": 0, "acks": "all"})
    consumer = new_consumer(spec)
    consumer.assign([TopicPartition(spec["topic"], 0, 0)])
    interval_ns = 1_000_000_000 // spec["rate"]
    padding = os.urandom(spec["value_bytes"] - 8)
    taken_us: list[float] = []
    sent, next_send = 0, time.monotonic_ns()
    while len(taken_us) < spec["records"]:
        now = time.monotonic_ns()
        if sent < spec["records"] and now >= next_send:
            producer.produce(spec["topic"], now.to_bytes(8, "big") + padding, partition=0)
            producer.poll(0)
            sent, next_send = sent + 1, next_send + interval_ns
        wait_s = max(0, next_send - time.monotonic_ns()) / 1e9 if sent < spec["records"] else 1.0
        for message in consumer.consume(1, timeout=wait_s):
            if message.error() is not None:
                raise KafkaException(message.error())
            taken_us.append(
                (time.monotonic_ns() - int.from_bytes((message.value() or b"")[:8], "big")) / 1_000
            )
    consumer.close()
    return percentiles(taken_us)


def round_trip(spec: Spec) -> Result:
    """From produce() until the consumer has the record, one record at a time: no side can fall behind a rate."""
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "linger.ms": 0, "acks": "all"})
    consumer = new_consumer(spec)
    consumer.assign([TopicPartition(spec["topic"], 0, 0)])
    value = os.urandom(spec["value_bytes"])
    taken_us: list[float] = []
    for number in range(spec["records"]):
        began_ns = time.monotonic_ns()
        producer.produce(spec["topic"], value, partition=0)
        messages = consumer.consume(1, timeout=ROUND_TRIP_TIMEOUT_S)
        if not messages:
            raise RuntimeError(f"record {number} did not arrive within {ROUND_TRIP_TIMEOUT_S} s")
        if messages[0].error() is not None:
            raise KafkaException(messages[0].error())
        taken_us.append((time.monotonic_ns() - began_ns) / 1_000)
        producer.poll(0)
    consumer.close()
    return percentiles(taken_us)


def produce_latency(spec: Spec) -> Result:
    """From produce() to the acknowledgement, at `rate` records a second."""
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "linger.ms": 0, "acks": "all"})
    interval_ns = 1_000_000_000 // spec["rate"]
    value = os.urandom(spec["value_bytes"])
    taken_us: list[float] = []

    def acknowledged(began_ns: int, error: KafkaError | None, _: object) -> None:
        if error is not None:
            raise KafkaException(error)
        taken_us.append((time.monotonic_ns() - began_ns) / 1_000)

    next_send = time.monotonic_ns()
    for _ in range(spec["records"]):
        while (left_ns := next_send - time.monotonic_ns()) > 0:
            producer.poll(left_ns / 1e9)
        began_ns = time.monotonic_ns()
        producer.produce(spec["topic"], value, partition=0, on_delivery=partial(acknowledged, began_ns))
        next_send += interval_ns
    if producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError(f"not all records were acknowledged within {FLUSH_TIMEOUT_S} s")
    return percentiles(taken_us)


def percentiles(taken_us: list[float]) -> Result:
    """Leaves out the first records, which include connecting and the first fetch."""
    steady = sorted(taken_us[len(taken_us) // 10 :])
    return {"p50_ms": steady[len(steady) // 2] / 1_000, "p99_ms": steady[len(steady) * 99 // 100] / 1_000}


def new_consumer(spec: Spec, **settings: object) -> Consumer:
    fixed = {"group.id": "bench", "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({"bootstrap.servers": spec["bootstrap"], **fixed, **settings})


ROLES: dict[str, Callable[[Spec], Result]] = {
    "produce": produce,
    "consume": consume,
    "latency": latency,
    "round_trip": round_trip,
    "produce_latency": produce_latency,
    "group_ready": group_ready,
    "group_join": group_join,
    "offset_commits": offset_commits,
    "many_groups": many_groups,
    "transactions": transactions,
    "produce_in_transactions": produce_in_transactions,
    "create_partitions": create_partitions,
    "produce_to_all": produce_to_all,
    "steady_load": steady_load,
}


def main() -> None:
    role, spec = sys.argv[1], json.loads(sys.argv[2])
    print(json.dumps(ROLES[role](spec)))


if __name__ == "__main__":
    main()
