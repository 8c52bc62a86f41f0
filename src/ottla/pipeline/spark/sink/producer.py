"""One producer of a task: its configuration, records into its queue, and what a person is told when it fails."""

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.spark.clients import make_client

# Large batches, because a task has many rows at once; Java's partitioner, so that a key goes where other clients send
# it; and no limit of the client's own on a record, because the topic has one.
PRODUCER = {
    "linger.ms": "20",
    "batch.num.messages": "100000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
    "message.max.bytes": "1000000000",
    "partitioner": "murmur2_random",
    "enable.idempotence": "true",
    "log_level": "2",
}
QUEUE_FULL_WAIT_S = 0.005
REPORTS_POLL_S = 0.1
IN_FLIGHT_WAIT_S = 5.0
# Records that went down with a producer: the reason is another error.
PURGED = {KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT}


class FirstError:
    """The first record that could not be delivered. It knows nothing of its producer, which ends with its last use."""

    def __init__(self) -> None:
        self.error: KafkaError | None = None
        self.where = ""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        if error is not None and self.error is None and error.code() not in PURGED:
            self.error, self.where = error, describe_target(message.topic(), message.partition())


# Producers whose requests in flight were not answered in time. Few, as they keep memory and threads.
_not_destroyed: deque[Producer] = deque(maxlen=8)


class RecordProducer:
    """A producer and what became of its records."""

    def __init__(self, client: Mapping[str, str]) -> None:
        self.failed = FirstError()
        reports = {"on_delivery": self.failed, "delivery.report.only.error": True}
        self.producer = make_client(Producer, {**PRODUCER, **client, **reports})

    def put(self, arguments: Iterable[tuple[Any, ...]]) -> None:
        """Each is given to `Producer.produce`, in order; a full queue is waited for."""
        produce = self.producer.produce
        for record in arguments:
            try:
                produce(*record)
            except BufferError:
                self._put_when_there_is_room(record)
            except KafkaException as error:
                raise write_error(error.args[0], describe_target(*record[:1], *record[3:4])) from error
        self.take_reports()
        self.raise_failure()

    def _put_when_there_is_room(self, record: tuple[Any, ...]) -> None:
        while True:
            self.take_reports(QUEUE_FULL_WAIT_S)
            self.raise_failure()
            try:
                return self.producer.produce(*record)
            except BufferError:
                continue

    def flush(self) -> None:
        while _unmixed(self.producer.flush, 1.0):
            self.raise_failure()
        self.raise_failure()

    def take_reports(self, timeout_s: float = 0.0) -> None:
        """Takes delivery reports. Raises KafkaException, once, when the producer is fenced or otherwise beyond use."""
        _unmixed(self.producer.poll, timeout_s)

    def raise_failure(self) -> None:
        if self.failed.error is not None:
            raise write_error(self.failed.error, self.failed.where)

    def discard(self) -> None:
        """Ends the producer without sending what is in its queue.

        Requests in flight are waited for. librdkafka (2.16) frees the text of a transaction's error when a producer is
        destroyed, and frees it again if the answer to a request says after that that the producer is fenced: the
        process aborts, and a Spark executor loses its Python worker.
        """
        self.producer.purge(in_flight=False)
        give_up = time.monotonic() + IN_FLIGHT_WAIT_S
        while len(self.producer) and time.monotonic() < give_up:
            with suppress(KafkaException):
                self.take_reports(REPORTS_POLL_S)
        if len(self.producer):
            _not_destroyed.append(self.producer)
        del self.producer


def _unmixed(serve: Callable[[float], int], timeout_s: float) -> int:
    """Calls confluent-kafka, which sets the exception of a fatal error and goes on with the delivery reports behind it:
    Python makes a SystemError of that.
    """
    try:
        return serve(timeout_s)
    except SystemError as error:
        if isinstance(error.__cause__, KafkaException):
            raise error.__cause__ from None
        raise


def describe_target(topic: str | None, partition: int | None = None) -> str:
    is_known = partition is not None and partition >= 0
    return f"topic `{topic}`, partition {partition}" if is_known else f"topic `{topic}`"


PASSING = {
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
REMEDIES = {
    KafkaError.MSG_SIZE_TOO_LARGE: "Raise the topic's max.message.bytes, or make the records smaller.",
    KafkaError._UNKNOWN_TOPIC: "Create the topic, or let the cluster create topics by itself.",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "Create the topic, or let the cluster create topics by itself.",
    KafkaError._UNKNOWN_PARTITION: "Give the topic more partitions, or correct the column `partition`.",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "Allow this user to write to the topic.",
    KafkaError.TOPIC_EXCEPTION: "Correct the topic's name.",
    KafkaError.INVALID_RECORD: "A compacted topic takes no record without a key: give every row one.",
}


def write_error(error: KafkaError, where: str) -> PipelineError:
    """`where` names the topic, or the sink."""
    what = f"A record for {where} was not written: {error.str()} ({error.name()})."
    if error.code() in PASSING:
        return PassingError(what, "The batch is written when the cluster answers again.")
    return PipelineError(what, REMEDIES.get(error.code(), "Mend the cause and start again."))
