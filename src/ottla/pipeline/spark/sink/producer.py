"""The producer of a task: its configuration, its queue, and its errors."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.clients import make_client

# Large batches, because a task has many rows at once; Java's partitioner, so that a key goes to the same partition as
# with other clients; and no limit of the client on a record's size, because the topic has one.
_PRODUCER = {
    "linger.ms": "20",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "message.max.bytes": "1000000000",
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "log_level": "2",
}
_QUEUE_FULL_WAIT_S = 0.005
_REPORTS_POLL_S = 0.1
_IN_FLIGHT_WAIT_S = 5.0
# errors of records that were still queued when the producer failed: the cause is another error
_PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class FirstError:
    """The error of the first record that was not delivered.

    It has no reference to its producer, which is destroyed with its last reference.
    """

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.where = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.error is None and error.code() not in _PURGED:
            self.error, self.where = error, describe_target(message.topic(), message.partition())


# producers whose requests in flight got no response in time; few, because each keeps memory and threads
_not_destroyed: deque[Producer] = deque(maxlen=8)


class RecordProducer:
    """A producer that remembers the first error of its records."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self.first_error = FirstError()
        reports = {"on_delivery": self.first_error, "delivery.report.only.error": True}
        self.producer = make_client(Producer, {**_PRODUCER, **client, **reports})

    def put(self, arguments: Iterable[tuple[Any, ...]]) -> None:
        """Passes each to `Producer.produce`, in order. Waits while the queue is full."""
        produce = self.producer.produce
        for record in arguments:
            try:
                produce(*record)
            except BufferError:
                self._put_when_there_is_room(record)
            except KafkaException as error:
                raise write_error(error.args[0], describe_target(*record[:1], *record[3:4])) from error
        self.poll()
        self.raise_first_error()

    def _put_when_there_is_room(self, record: tuple[Any, ...]) -> None:
        while True:
            self.poll(_QUEUE_FULL_WAIT_S)
            self.raise_first_error()
            try:
                return self.producer.produce(*record)
            except BufferError:
                continue

    def flush(self) -> None:
        while _serve(self.producer.flush, 1.0):
            self.raise_first_error()
        self.raise_first_error()

    def poll(self, timeout_s: float = 0.0) -> None:
        """Handles delivery reports. Raises KafkaException once if the producer is fenced or has another fatal error."""
        _serve(self.producer.poll, timeout_s)

    def raise_first_error(self) -> None:
        if self.first_error.error is not None:
            raise write_error(self.first_error.error, self.first_error.where)

    def discard(self) -> None:
        """Destroys the producer without sending the records in its queue.

        It waits for requests in flight. librdkafka (2.16) frees the text of a transaction's error when a producer is
        destroyed, and frees it again if a later response says that the producer is fenced: then the process aborts, and
        a Spark executor loses its Python worker.
        """
        self.producer.purge(in_flight=False)
        deadline = time.monotonic() + _IN_FLIGHT_WAIT_S
        while len(self.producer) and time.monotonic() < deadline:
            with suppress(KafkaException):
                self.poll(_REPORTS_POLL_S)
        if len(self.producer):
            _not_destroyed.append(self.producer)
        del self.producer


def _serve(call: Callable[[float], int], timeout_s: float) -> int:
    """Calls confluent-kafka, which after a fatal error sets its exception and still calls the delivery reports.

    Python raises a SystemError then; this raises the original exception.
    """
    try:
        return call(timeout_s)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def describe_target(topic: str | None, partition: int | None = None) -> str:
    is_known = partition is not None and partition >= 0
    return f"topic `{topic}`, partition {partition}" if is_known else f"topic `{topic}`"


_RETRIABLE = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._MSG_TIMED_OUT,
    KafkaError._RESOLVE,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.NOT_COORDINATOR,
}
_REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's max.message.bytes, or make the records smaller.",
    KafkaError._UNKNOWN_TOPIC: "Create the topic, or enable auto.create.topics.enable on the cluster.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create the topic, or enable auto.create.topics.enable on the cluster.",
    KafkaError._UNKNOWN_PARTITION: "Add partitions to the topic, or fix the column `partition`.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Allow this user to write to the topic.",
    KafkaError.TOPIC_EXCEPTION: "Fix the topic's name.",
    KafkaError.INVALID_RECORD: "A compacted topic rejects records without a key: add a key to every row.",
}


def write_error(error: KafkaError, where: str) -> PipelineError:
    """`where` names the topic, or the sink."""
    what = f"A record for {where} was not written: {error.str()} ({error.name()})."
    if error.code() in _RETRIABLE:
        return RetriableError(what, "The batch is written when the cluster responds again.")
    return PipelineError(what, _REMEDIES.get(error.code(), "Fix the cause and start again."))
