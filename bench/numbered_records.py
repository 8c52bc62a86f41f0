"""Numbered records of 100 bytes: `python -m bench.numbered_records feed|check JSON`, each in a process of its own.

`feed` sends the numbers from 0 to `records`. `check` reads a topic as a consumer does, and compares every byte with
what was sent. With `archive`, it compares the archived offsets and values of each partition with those of the topic.
Both print one line of JSON.
"""

import hashlib
import json
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from ottla.pipeline.archive.store import Archive

Spec = dict[str, Any]

DIGITS, VALUE_BYTES = 12, 100
# Different ones, so that bytes of one record in another are found.
FILLERS = [
    hashlib.shake_128(str(number).encode()).hexdigest((VALUE_BYTES - DIGITS) // 2).encode()
    for number in range(997)
]
BATCH = 10_000
FLUSH_TIMEOUT_S = 600
SILENCE_S = 120
SETTINGS = {
    "enable.idempotence": True,
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "queue.buffering.max.messages": 1_000_000,
    # A broker that is killed and started again must not fail a record.
    "message.timeout.ms": FLUSH_TIMEOUT_S * 1_000,
    "delivery.report.only.error": True,
}


@dataclass
class Hashes:
    """Of all offsets of a partition, as 8 bytes each, and of all values, one after the other."""

    offsets: Any = field(default_factory=hashlib.blake2b)
    values: Any = field(default_factory=hashlib.blake2b)

    def add(self, offsets: bytes, values: bytes | memoryview) -> None:
        self.offsets.update(offsets)
        self.values.update(values)

    def digest(self) -> bytes:
        digest: bytes = self.offsets.digest() + self.values.digest()
        return digest


def value(number: int) -> bytes:
    return b"%012d" % number + FILLERS[number % len(FILLERS)]


def feed(spec: Spec) -> dict[str, float]:
    errors: list[str] = []
    report = {"on_delivery": lambda error, _: errors.append(str(error))}
    producer = Producer({"bootstrap.servers": spec["bootstrap"], **SETTINGS, **report})
    began = time.monotonic()
    for first in range(0, spec["records"], BATCH):
        for number in range(first, min(first + BATCH, spec["records"])):
            while True:
                try:
                    producer.produce(spec["topic"], value(number), partition=number % spec["partitions"])
                    break
                except BufferError:
                    producer.poll(0.1)
        producer.poll(0)
    if left := producer.flush(FLUSH_TIMEOUT_S):
        raise RuntimeError(f"{left} records were not acknowledged within {FLUSH_TIMEOUT_S} s")
    if errors:
        raise RuntimeError(f"{len(errors)} records could not be sent: {errors[0]}")
    return {"seconds": time.monotonic() - began}


def check(spec: Spec) -> dict[str, float]:
    """Raises RuntimeError unless `topic` has every record once, and its archive, if there is one, the same bytes."""
    began = time.monotonic()
    seen = np.zeros(spec["records"], np.uint8)
    hashes: dict[int, Hashes] = defaultdict(Hashes)
    for partition, offset, content in committed_records(spec):
        if len(content) != VALUE_BYTES or content != value(number := int(content[:DIGITS])):
            raise RuntimeError(f"{spec['topic']}-{partition}, offset {offset} has other bytes: {content!r}")
        seen[number] += 1
        if "archive" in spec:
            hashes[partition].add(offset.to_bytes(8, "little"), content)
    missing, twice = int(np.count_nonzero(seen == 0)), int(np.count_nonzero(seen > 1))
    if missing or twice:
        raise RuntimeError(f"{spec['topic']} lacks {missing} records, and has {twice} more than once")
    if "archive" in spec:
        check_archive(Path(spec["archive"]), hashes)
    return {"seconds": time.monotonic() - began}


def committed_records(spec: Spec) -> Iterator[tuple[int, int, bytes]]:
    """Partition, offset and value, in the order of each partition."""
    consumer = Consumer(
        {
            "bootstrap.servers": spec["bootstrap"],
            "group.id": "check",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.message.max.bytes": 8_000_000,
            "queued.min.messages": 200_000,
        }
    )
    consumer.assign([TopicPartition(spec["topic"], partition, 0) for partition in range(spec["partitions"])])
    unread = set(range(spec["partitions"]))
    last_s = time.monotonic()
    while unread:
        messages = consumer.consume(BATCH, timeout=1.0)
        last_s = time.monotonic() if messages else last_s
        if time.monotonic() - last_s > SILENCE_S:
            raise RuntimeError(f"no record of {spec['topic']} within {SILENCE_S} s")
        for message in messages:
            partition, error = message.partition(), message.error()
            if error is None:
                yield partition or 0, message.offset() or 0, message.value() or b""
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.discard(partition or 0)
            else:
                raise KafkaException(error)
    consumer.close()


def check_archive(folder: Path, expected: Mapping[int, Hashes]) -> None:
    """Rows within a file are sorted by partition and offset, and no two files have offsets of the same range."""
    found: dict[int, Hashes] = defaultdict(Hashes)
    for partition, path in parts_in_order(folder):
        rows = pq.read_table(
            path, columns=["offset", "value"], filters=[("partition", "=", partition)], partitioning=None
        )
        for batch in rows.to_batches():
            column = batch.column("value")
            _, bounds, content = column.buffers()
            first, last = np.frombuffer(bounds, np.int32)[column.offset :][[0, len(column)]]
            offsets = batch.column("offset").to_numpy().astype("<i8").tobytes()
            found[partition].add(offsets, memoryview(content)[first:last])
    partitions = expected.keys() | found.keys()
    other = [each for each in sorted(partitions) if expected[each].digest() != found[each].digest()]
    if other:
        raise RuntimeError(f"the archive at {folder} differs from the topic in partitions {other}")


def parts_in_order(folder: Path) -> list[tuple[int, Path]]:
    """Each partition, and the files that have records of it, by offset."""
    parts = [
        (partition, part.first, folder / name)
        for name, file in Archive.at(str(folder)).load().files.items()
        for partition, part in file.slices.items()
    ]
    return [(partition, path) for partition, _, path in sorted(parts)]


def main(role: str, asked: str) -> None:
    roles = {"feed": feed, "check": check}
    print(json.dumps(roles[role](json.loads(asked))))


if __name__ == "__main__":
    main(*sys.argv[1:])
