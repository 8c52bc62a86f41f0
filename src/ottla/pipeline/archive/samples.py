"""Reads a few records of each partition, to estimate sizes and ages without reading the topic."""

import time
from collections.abc import Iterable
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message
from confluent_kafka import TopicPartition as KafkaPartition

from ottla.model.ids import TopicPartition
from ottla.pipeline.spark.offsets import Offsets
from ottla.pipeline.stage import ClusterSettings

_RECORDS_PER_PARTITION = 100
# for all partitions together; only a partition whose leader does not respond makes it wait
TIMEOUT_S = 5.0
_CLIENT = {
    "group.id": "ottla-archive-samples",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "earliest",
    "log_level": 0,
    # Nobody needs more than the first records.
    "fetch.message.max.bytes": 65_536,
    "queued.max.messages.kbytes": 1024,
}


class Sample(NamedTuple):
    """One record: its timestamp, and the size of its key and value."""

    timestamp_ms: int
    bytes: int


def first_records(cluster: ClusterSettings, starts: Offsets) -> dict[TopicPartition, list[Sample]]:
    """The first records from an offset on, for each partition that has some.

    It does not wait for records: it returns when each partition has given enough, or all that it has.
    """
    found: dict[TopicPartition, list[Sample]] = {}
    waiting = set(starts)
    consumer = Consumer(cluster.client_config(**_CLIENT))
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        consumer.assign([KafkaPartition(*at, offset) for at, offset in starts.items()])
        while waiting and (left_s := deadline_s - time.monotonic()) > 0:
            message = consumer.poll(left_s)
            if message is None:
                continue
            at = _partition_of(message)
            if at in waiting and not _take(message, found.setdefault(at, [])):
                waiting.discard(at)
                consumer.pause([KafkaPartition(*at)])
    finally:
        consumer.close()
    return {at: samples for at, samples in found.items() if samples}


def _partition_of(message: Message) -> TopicPartition:
    return TopicPartition(str(message.topic()), int(message.partition() or 0))


def _take(message: Message, samples: list[Sample]) -> bool:
    """Adds a record to the samples. Returns whether the partition should give more."""
    error = message.error()
    if error is None:
        size = len(message.key() or b"") + len(message.value() or b"")
        samples.append(Sample(message.timestamp()[1], size))
        return len(samples) < _RECORDS_PER_PARTITION
    # Any other error may pass.
    return bool(error.code() != KafkaError._PARTITION_EOF)


def mean_record_bytes(cluster: ClusterSettings, earliest: Offsets, latest: Offsets) -> float | None:
    """Of the newest records of each partition; None if there are none."""
    starts = {
        at: max(earliest[at], end - _RECORDS_PER_PARTITION)
        for at, end in latest.items()
        if end > earliest[at]
    }
    return mean_bytes(sample for samples in first_records(cluster, starts).values() for sample in samples)


def mean_bytes(samples: Iterable[Sample]) -> float | None:
    sizes = [sample.bytes for sample in samples]
    return sum(sizes) / len(sizes) if sizes else None
