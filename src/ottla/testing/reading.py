"""Reads a topic from its beginning with a consumer that has no group."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

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
            fetch_wait_max_ms=50,
            fetch_error_backoff_ms=20,
        )
    )
    found: list[Record] = []
    at_end: set[int] = set()
    try:
        # librdkafka asks for the first offset again after 500 ms if it does not know the leader yet.
        with suppress(KafkaException):
            consumer.list_topics(topic, timeout=max(timeout_s, _POLL_S))
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in partitions])
        while not is_enough(found, len(at_end) == len(partitions)):
            if time.monotonic() > deadline:
                return found, False
            for message in _consume(consumer):
                error = message.error()
                if error is None:
                    at_end.discard(message.partition())
                    found.append(_record(message))
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition())
                elif not error.retriable():
                    raise cluster.error(f"Topic {topic}", error)
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
