"""Clients of many partitions, with processes of their own (see `bench.client`)."""

import os
import time
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

TIMEOUT_S = 300
QUIET = {"log_level": 0}
# librdkafka would reject records of a topic that its metadata does not have for half a minute.
PATIENT = {"topic.metadata.propagation.max.ms": 1_000 * TIMEOUT_S, "message.timeout.ms": 1_000 * TIMEOUT_S}
ROOMY_QUEUE = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 2_097_151}
BATCH = 1_000
LOAD_INTERVAL_S = 0.01

Spec = dict[str, Any]


def create_partitions(spec: Spec) -> dict[str, float]:
    """Creates all topics with one request, and sends a record to each partition; until the last acknowledgement."""
    admin = AdminClient({"bootstrap.servers": spec["bootstrap"], **QUIET})
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "acks": "all", **QUIET, **PATIENT})
    admin.list_topics(timeout=TIMEOUT_S)
    began = time.monotonic()
    topics = [NewTopic(name, spec["partitions"], spec["replication"]) for name in spec["topics"]]
    for created in admin.create_topics(topics, request_timeout=TIMEOUT_S).values():
        created.result(TIMEOUT_S)
    answered_s = time.monotonic() - began
    failed: list[KafkaError] = []
    for name in spec["topics"]:
        for number in range(spec["partitions"]):
            producer.produce(name, b"first", partition=number, on_delivery=partial(_note, failed))
            producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"not every partition took a record within {TIMEOUT_S} s")
    if failed:
        raise KafkaException(failed[0])
    return {"created_s": time.monotonic() - began, "answered_s": answered_s}


def _note(failed: list[KafkaError], error: KafkaError | None, _: object) -> None:
    if error is not None:
        failed.append(error)


def produce_to_all(spec: Spec) -> dict[str, float]:
    """`records` round all partitions of all topics, with the settings of the throughput scenarios."""
    settings = {"linger.ms": 5, "batch.size": 1_000_000, "acks": "all"}
    producer = Producer(
        {"bootstrap.servers": spec["bootstrap"], **QUIET, **PATIENT, **ROOMY_QUEUE, **settings}
    )
    producer.list_topics(timeout=TIMEOUT_S)
    value = os.urandom(spec["value_bytes"])
    failed: list[KafkaError] = []
    messages = [
        {"value": value, "partition": n % spec["partitions"], "callback": partial(_note, failed)}
        for n in range(BATCH)
    ]
    began, cpu_began = time.monotonic(), time.process_time()
    for number in range(spec["records"] // BATCH):
        topic = spec["topics"][number % len(spec["topics"])]
        if producer.produce_batch(topic, messages) != BATCH:
            raise RuntimeError("the client's queue is full: make the run smaller")
        producer.poll(0)
    if producer.flush(TIMEOUT_S):
        raise RuntimeError(f"not all records were acknowledged within {TIMEOUT_S} s")
    if failed:
        raise KafkaException(failed[0])
    return {"seconds": time.monotonic() - began, "cpu_seconds": time.process_time() - cpu_began}


def steady_load(spec: Spec) -> dict[str, float]:
    """`rate` records a second round the partitions, until this process is ended."""
    producer = Producer({"bootstrap.servers": spec["bootstrap"], "acks": "all", "linger.ms": 5, **QUIET})
    value = os.urandom(spec["value_bytes"])
    count = max(1, int(spec["rate"] * LOAD_INTERVAL_S))
    messages = [{"value": value, "partition": n % spec["partitions"]} for n in range(count)]
    print("started", flush=True)
    while True:
        producer.produce_batch(
            spec["topic"], messages
        )  # a full queue rejects records: the load stays bounded
        producer.poll(0)
        time.sleep(LOAD_INTERVAL_S)
