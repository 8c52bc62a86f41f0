"""Reads a topic from its beginning with a consumer that has no group."""

import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from ottla.admin.cluster import Cluster
from ottla.testing.helpers import Record

_POLL_S = 0.1
_BATCH_RECORDS = 10_000


def read_topic(
    cluster: Cluster,
    topic: str,
    committed_only: bool,
    is_enough: Callable[[list[Record], bool], bool],
    timeout_s: float,
) -> tuple[list[Record], bool]:
    """The records, and whether `is_enough` was satisfied in time. It gets whether all partitions are at their ends."""
    deadline = time.monotonic() + timeout_s
    partitions = cluster.partitions_of(topic)
    consumer = Consumer(
        cluster.client_config(
            group_id="ottla-testing",
            enable_auto_commit=False,
            enable_partition_eof=True,
            auto_offset_reset="earliest",
            isolation_level="read_committed" if committed_only else "read_uncommitted",
            fetch_wait_max_ms=10,
            fetch_error_backoff_ms=20,
        )
    )
    found: list[Record] = []
    at_end: set[int] = set()
    try:
        # Offset 0 and not OFFSET_BEGINNING, which takes another request, and half a second more if the leader is not
        # known yet. If the log begins later, auto.offset.reset applies.
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        while not is_enough(found, len(at_end) == len(partitions)):
            if time.monotonic() > deadline:
                return found, False
            ends: dict[int, int] = {}
            for message in _consume(consumer):
                error = message.error()
                if error is None:
                    ends[message.partition()] = message.offset() + 1
                    found.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                    ends.pop(message.partition(), None)
                elif not error.retriable():
                    raise cluster.error(f"Topic {topic}", error)
            for number, end in ends.items():
                # The end of the partition would come with the next fetch; its response may have to wait for others.
                _, high_watermark = consumer.get_watermark_offsets(TopicPartition(topic, number), cached=True)
                (at_end.add if end == high_watermark else at_end.discard)(number)
    finally:
        consumer.close()
    return found, True


def _consume(consumer: Consumer) -> list[Any]:
    """The next messages, without waiting for more than the first."""
    first = consumer.poll(_POLL_S)
    return [] if first is None else [first, *consumer.consume(_BATCH_RECORDS, 0)]


def _record(message: Any) -> Record:
    return Record(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )
