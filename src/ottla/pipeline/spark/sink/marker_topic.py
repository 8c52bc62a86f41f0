"""The topic that holds a sink's markers: compacted, so that they never expire, with a partition per Spark partition.

Nobody but the Spark partition's own transactions writes to a partition, so its last committed record is the marker, and
reading it costs one fetch at the end of the log, however long the log is.
"""

import time
from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic  # type: ignore[attr-defined]

from ottla.pipeline.errors import PassingError, PipelineError
from ottla.pipeline.spark.clients import make_client
from ottla.pipeline.spark.sink.markers import Marker, Snapshot, decode_marker

PREFIX = "__ottla_sink_"
FIRST_PARTITIONS = 8
# Small segments, because the active one is never compacted.
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": str(4 << 20)}
TIMEOUT_S = 30.0
POLL_S = 0.05

# librdkafka's RD_KAFKA_OFFSET_TAIL: so many offsets before the end. A transaction takes two, one for its end.
TAIL_BASE = -2000
TAIL = 8


def topic_of(sink_id: str) -> str:
    return f"{PREFIX}{sink_id}"


class MarkerTopic:
    def __init__(self, client: Mapping[str, str], sink_id: str) -> None:
        self.client = client
        self.sink_id = sink_id
        self.topic = topic_of(sink_id)

    def snapshot(self) -> Snapshot:
        """The markers of all Spark partitions that have one. Makes the topic if there is none."""
        admin = make_client(AdminClient, self._config())
        room = self._partition_count(admin)
        if room == 0:
            self._create(admin)
            return Snapshot({}, FIRST_PARTITIONS)
        return Snapshot(self.read(range(room)), room)

    def read(self, partitions: Iterable[int]) -> dict[int, Marker]:
        """The last committed marker of each; those that have none are left out."""
        consumer = make_client(Consumer, self._consumer_config())
        try:
            tails = self._last_of_each(consumer, dict.fromkeys(partitions, TAIL_BASE - TAIL))
            # A row of aborted attempts can fill the tail; then the whole log is read.
            hidden = {partition: OFFSET_BEGINNING for partition, last in tails.items() if last is None}
            if hidden:
                tails.update(self._last_of_each(consumer, hidden))
        except KafkaException as error:
            raise self._unreadable(error.args[0]) from error
        finally:
            consumer.close()
        return {
            partition: decode_marker(last.value() or b"")
            for partition, last in sorted(tails.items())
            if last is not None
        }

    def ensure(self, partition: int) -> None:
        """A query may get more Spark partitions than the topic was made for."""
        admin = make_client(AdminClient, self._config())
        deadline = time.monotonic() + TIMEOUT_S
        while (count := self._partition_count(admin)) <= partition:
            if time.monotonic() > deadline:
                raise PassingError(
                    f"The topic `{self.topic}` has {count} partitions and does not grow to {partition + 1}.",
                    "See the log of the cluster's controller.",
                )
            self._grow(admin, 1 << partition.bit_length())
            time.sleep(POLL_S)

    def _last_of_each(self, consumer: Consumer, start: Mapping[int, int]) -> dict[int, Message | None]:
        """Reads to the end of each partition. An empty partition is left out, one whose tail holds nothing is None."""
        found: dict[int, Message | None] = {}
        open_partitions = set(start)
        deadline = time.monotonic() + TIMEOUT_S
        consumer.assign(
            [TopicPartition(self.topic, partition, offset) for partition, offset in start.items()]
        )
        while open_partitions:
            message = consumer.poll(1.0)
            if message is None:
                if time.monotonic() > deadline:
                    raise self._unreadable(None)
                continue
            error, partition, offset = message.error(), message.partition(), message.offset()
            assert partition is not None
            if error is None:
                found[partition] = message
            elif error.code() == KafkaError._PARTITION_EOF:
                open_partitions.discard(partition)
                if offset and start[partition] != OFFSET_BEGINNING:
                    found.setdefault(partition, None)
            elif not error.retriable():
                raise self._unreadable(error)
        return found

    def _partition_count(self, admin: AdminClient) -> int:
        """0 where there is no topic. A plain request for metadata would make one that is not compacted."""
        try:
            described = admin.describe_topics(TopicCollection([self.topic]))[self.topic].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise self._unreadable(error.args[0]) from error
        return len(described.partitions)

    def _create(self, admin: AdminClient) -> None:
        topic = NewTopic(self.topic, FIRST_PARTITIONS, config=CONFIGS)
        try:
            admin.create_topics([topic])[self.topic].result(TIMEOUT_S)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineError(
                    f"The topic `{self.topic}` for the markers of sink `{self.sink_id}` cannot be made:"
                    f" {error.args[0].str()}.",
                    "Allow this user to create it, or create it: compacted, with a partition per Spark partition.",
                ) from error
        self._wait_until_known(admin)

    def _wait_until_known(self, admin: AdminClient) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._partition_count(admin) == 0:
            if time.monotonic() > deadline:
                raise self._unreadable(None)
            time.sleep(POLL_S)

    def _grow(self, admin: AdminClient, count: int) -> None:
        try:
            admin.create_partitions([NewPartitions(self.topic, count)])[self.topic].result(TIMEOUT_S)
        except KafkaException as error:
            # Another task was faster; the count is read again.
            if error.args[0].code() not in (
                KafkaError.INVALID_PARTITIONS,
                KafkaError.REASSIGNMENT_IN_PROGRESS,
            ):
                raise self._unreadable(error.args[0]) from error

    def _config(self) -> dict[str, Any]:
        return {**self.client, "log_level": 3}

    def _consumer_config(self) -> dict[str, Any]:
        return {
            **self._config(),
            "group.id": self.topic,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 10,
            "fetch.error.backoff.ms": 20,
        }

    def _unreadable(self, error: KafkaError | None) -> PipelineError:
        reason = "the cluster does not answer" if error is None else f"{error.str()} ({error.name()})"
        return PassingError(
            f"The markers of sink `{self.sink_id}` in the topic `{self.topic}` cannot be read: {reason}.",
            "Nothing is written before they can be.",
        )
