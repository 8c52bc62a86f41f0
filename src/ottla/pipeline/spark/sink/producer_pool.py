"""Transactional producers, kept in the Python worker from one batch to the next.

To make one and to fence its predecessors takes tens of milliseconds, which is most of a small batch. A kept producer is
as safe as a new one: whoever has written since has fenced it, and its transaction would fail.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from ottla.pipeline.spark.sink.marker_topic import marker_topic_name
from ottla.pipeline.spark.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions
from ottla.pipeline.spark.sink.producer import RecordProducer

INIT_TIMEOUT_S = 60.0
ABORT_TIMEOUT_S = 10.0
POOL_SIZE = 16

Key = tuple[Any, ...]


class PooledProducer:
    """`is_warm`: its last transaction was the batch before, so the partition's marker is known without reading it."""

    def __init__(self, key: Key, options: SinkOptions, transactional_id: str) -> None:
        self.key = key
        self.marker_topic = marker_topic_name(str(options.sink_id))
        timeout_ms = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        config = {**timeout_ms, **options.client, "transactional.id": transactional_id}
        self.records = RecordProducer(config)
        self.is_warm = False
        self.last_batch = -1
        try:
            # A producer that has not met the cluster yet asks for its coordinator only after half a second.
            self.producer.list_topics(self.marker_topic, timeout=INIT_TIMEOUT_S)
            self.producer.init_transactions(INIT_TIMEOUT_S)
        except KafkaException:
            self.discard()
            raise

    @property
    def producer(self) -> Producer:
        return self.records.producer

    def commit(self, seconds_left: Callable[[], float]) -> None:
        while True:
            try:
                return self.producer.commit_transaction(max(seconds_left(), 1.0))
            except KafkaException as error:
                # A record that was not delivered says more than the commit that failed for it.
                self.records.take_reports()
                self.records.raise_failure()
                if not error.args[0].retriable() or seconds_left() <= 0:
                    raise

    def abandon(self) -> None:
        """Where the transaction cannot be aborted, the next producer of this id or the cluster's timeout does it."""
        try:
            self.producer.abort_transaction(ABORT_TIMEOUT_S)
        except KafkaException:
            pass
        self.discard()

    def discard(self) -> None:
        self.records.discard()


_held: OrderedDict[Key, PooledProducer] = OrderedDict()


def acquire(options: SinkOptions, run: str, partition: int, batch: int | None) -> PooledProducer:
    """A producer for the Spark partition. Without `batch`, or where it was not there for the batch before, a new one.

    `run` is the query's run: after a restart the batch before may have been tried elsewhere.
    """
    transactional_id = f"{options.sink_id}-{partition}"
    key = (transactional_id, run, tuple(sorted(options.client.items())))
    held = _held.pop(key, None)
    if held is not None and held.last_batch + 1 == batch:
        held.is_warm = True
        return held
    if held is not None:
        held.discard()
    return PooledProducer(key, options, transactional_id)


def release(held: PooledProducer, batch: int) -> None:
    """Keeps a producer whose transaction was committed."""
    held.last_batch = batch
    _held[held.key] = held
    while len(_held) > POOL_SIZE:
        _held.popitem(last=False)[1].discard()
