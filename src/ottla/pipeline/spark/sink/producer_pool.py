"""A pool of transactional producers, which stay in Spark's Python worker from one batch to the next.

Creating a producer and fencing its predecessors takes tens of milliseconds, which is most of a small batch. A pooled
producer is as safe as a new one: any other that wrote since then has fenced it, and its transaction would fail.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException, Producer

from ottla.pipeline.spark.sink.marker_topic import marker_topic_name
from ottla.pipeline.spark.sink.options import TRANSACTION_TIMEOUT_MS, SinkOptions
from ottla.pipeline.spark.sink.producer import RecordProducer

_INIT_TIMEOUT_S = 60.0
_ABORT_TIMEOUT_S = 10.0
_POOL_SIZE = 16

_Key = tuple[Any, ...]


class PooledProducer:
    """`is_warm` means that it committed the batch before, so the partition's marker need not be read."""

    def __init__(self, key: _Key, options: SinkOptions, transactional_id: str) -> None:
        self.key = key
        self.marker_topic = marker_topic_name(str(options.sink_id))
        timeout_ms = {"transaction.timeout.ms": str(TRANSACTION_TIMEOUT_MS)}
        config = {**timeout_ms, **options.client, "transactional.id": transactional_id}
        self.records = RecordProducer(config)
        self.is_warm = False
        self.last_batch = -1
        try:
            # Connects first: otherwise librdkafka looks for the coordinator only after half a second.
            self.producer.list_topics(self.marker_topic, timeout=_INIT_TIMEOUT_S)
            self.producer.init_transactions(_INIT_TIMEOUT_S)
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
                # The error of a record says more than that of the commit that failed because of it.
                self.records.poll()
                self.records.raise_first_error()
                if not error.args[0].retriable() or seconds_left() <= 0:
                    raise

    def abort(self) -> None:
        """If aborting fails, the next producer with this id or the cluster's timeout aborts the transaction."""
        try:
            self.producer.abort_transaction(_ABORT_TIMEOUT_S)
        except KafkaException:
            pass
        self.discard()

    def discard(self) -> None:
        self.records.discard()


_pool: OrderedDict[_Key, PooledProducer] = OrderedDict()


def acquire(options: SinkOptions, run: str, partition: int, batch: int | None) -> PooledProducer:
    """A producer for the Spark partition: the pooled one if it committed the batch before `batch`, else a new one.

    `run` is the query's run: after a restart, another process may have written the batch before.
    """
    transactional_id = f"{options.sink_id}-{partition}"
    key = (transactional_id, run, tuple(sorted(options.client.items())))
    pooled = _pool.pop(key, None)
    if pooled is not None and pooled.last_batch + 1 == batch:
        pooled.is_warm = True
        return pooled
    if pooled is not None:
        pooled.discard()
    return PooledProducer(key, options, transactional_id)


def release(pooled: PooledProducer, batch: int) -> None:
    """Returns a producer whose transaction is committed to the pool."""
    pooled.last_batch = batch
    _pool[pooled.key] = pooled
    while len(_pool) > _POOL_SIZE:
        _pool.popitem(last=False)[1].discard()
