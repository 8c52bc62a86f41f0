"""The start of a test: from the first import until a record has been written and read.

With Ottla that is `ottla.testing`; with Apache Kafka a broker that is started bare, without a container, formatted and
asked until it answers, and librdkafka, which is imported already.
"""

import json
import os
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from bench.scenario import Metric, Scenario, Sizes
from bench.sides import ROOT, Side

TIMEOUT_S = 120
TOPIC = "orders"


def first_record(side: Side, sizes: Sizes) -> dict[str, float]:
    if side.name == "ottla":
        done = subprocess.run(
            [sys.executable, "-m", "bench.testing_client"],
            cwd=ROOT,
            env={**os.environ, "TMPDIR": str(side.scratch)},
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        measured = json.loads(done.stdout)
        return {
            "broker ready": measured["ready_s"],
            "next broker ready": measured["again_s"],
            "first record read": measured["read_s"],
        }
    began = time.monotonic()
    with side.fresh() as broker:
        ready_s = time.monotonic() - began
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(TOPIC, b"3 apples", partition=0)
        if producer.flush(TIMEOUT_S):
            raise RuntimeError("the record was not acknowledged")
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "bench"})
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        message = consumer.poll(TIMEOUT_S)
        if message is None or message.error() is not None:
            raise RuntimeError(f"no record was read: {message and message.error()}")
        read_s = time.monotonic() - began
        consumer.close()
        return {"broker ready": ready_s, "first record read": read_s}


SCENARIOS = (
    Scenario(
        "first-record",
        "a test's first record, from the first import on (Kafka: a bare broker)",
        (
            Metric("broker ready", "s", higher_is_better=False, target=10.0),
            Metric("next broker ready", "s", higher_is_better=False, limit=0.3),
            Metric("first record read", "s", higher_is_better=False, target=10.0),
        ),
        first_record,
    ),
)
