"""A whole pipeline as a user runs it: writes its folder, measures the run, and checks that all work was done."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from tests.pipeline.pipeline_command import running

from bench.client import BATCH, new_consumer
from ottla.pipeline.archive.store import Archive
from ottla.pipeline.template import TRANSFORMS

LINE_BYTES = 100
FILES = 8
CUSTOMERS = 10_007
RUN_TIMEOUT_S = 1_800
READ_TIMEOUT_S = 120
# The first stage runs, so Spark has started.
READY = ": running"

PIPELINE = """\
name = "{name}"

[cluster]
bootstrap = "{bootstrap}"

[spark]
master = "local[2]"
conf = {{ "spark.ui.enabled" = false, "spark.sql.shuffle.partitions" = 2, "spark.driver.memory" = "1g" }}

[sources.files]
kind = "spooldir"
folder = "spool"
topic = "{raw}"

[transforms.orders]
from = "{raw}"
to = "{transformed}"
function = "transforms.py:orders"
dead_letters = "{dead_letters}"

[sinks.archive]
kind = "archive"
topics = ["{raw}"]
path = "archive"
"""


@dataclass(frozen=True)
class Topics:
    raw: str
    transformed: str
    dead_letters: str


def order(number: int) -> str:
    """An order in a line of 100 bytes, as the transform of `ottla pipeline init` expects it."""
    head = (
        f'{{"id": {number}, "customer": "c{number % CUSTOMERS}", '
        f'"quantity": {1 + number % 9}, "price": {number % 500 / 100}, "item": "'
    )
    return f'{head}{"apples":.<{LINE_BYTES - len(head) - 2}}"}}'


def write_pipeline(folder: Path, name: str, bootstrap: str, topics: Topics, records: int) -> None:
    """A pipeline.toml, its transform, and the orders in the files of its spool folder."""
    (folder / "spool").mkdir(parents=True)
    (folder / "transforms.py").write_text(TRANSFORMS)
    text = PIPELINE.format(name=name, bootstrap=bootstrap, **vars(topics))
    (folder / "pipeline.toml").write_text(text)
    for file in range(FILES):
        lines = (f"{order(number)}\n" for number in range(file, records, FILES))
        (folder / "spool" / f"orders-{file}.jsonl").write_text("".join(lines))


def run_once(folder: Path) -> tuple[float, float]:
    """Seconds from the start of the command until the first stage runs, and until the command has ended."""
    began = time.monotonic()
    with running(
        folder / "run.log", "pipeline", "run", "--once", "--plain", "--file", str(folder)
    ) as pipeline:
        pipeline.wait_for(READY)
        ready_s = time.monotonic() - began
        code = pipeline.process.wait(RUN_TIMEOUT_S)
        all_s = time.monotonic() - began
        if code != 0:
            raise RuntimeError(f"the pipeline ended with code {code}: {pipeline.text()[-4_000:]}")
    return ready_s, all_s


def check(folder: Path, bootstrap: str, topics: Topics, records: int) -> None:
    """Every order is transformed once and archived once: a run that left something out would look fast."""
    ids = [json.loads(value)["id"] for value in committed_values(bootstrap, topics.transformed)]
    if sorted(ids) != list(range(records)):
        raise RuntimeError(
            f"{topics.transformed} holds {len(ids)} records of {len(set(ids))} orders, not {records} of as many"
        )
    archive = folder / "archive"
    archived = sum(
        pq.read_metadata(archive / name).num_rows for name in Archive.at(str(archive)).load().files
    )
    if archived != records:
        raise RuntimeError(f"the archive holds {archived} records, not {records}")


def committed_values(bootstrap: str, topic: str) -> Iterator[bytes]:
    settings = {"isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = new_consumer({"bootstrap": bootstrap}, **settings)
    try:
        partitions = set(consumer.list_topics(topic, READ_TIMEOUT_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        yield from values_until_ends(consumer, partitions, topic)
    finally:
        consumer.close()


def values_until_ends(consumer: Consumer, unread: set[int], topic: str) -> Iterator[bytes]:
    deadline = time.monotonic() + READ_TIMEOUT_S
    while unread:
        if time.monotonic() > deadline:
            raise RuntimeError(f"{topic} could not be read to its end in {READ_TIMEOUT_S} s")
        for message in consumer.consume(BATCH, timeout=1.0):
            error = message.error()
            if error is None:
                yield message.value() or b"null"
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise KafkaException(error)
