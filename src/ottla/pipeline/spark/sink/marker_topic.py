"""The topic of a sink's markers: compacted, so that they never expire, with one partition for each Spark partition.

Only the transactions of its Spark partition write to a partition. So the last committed record is the marker, and one
fetch at the end of the log finds it, however long the log is.
"""

import functools
import logging
import time
from collections.abc import Iterable, Mapping

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.clients import make_client, rejection_reason
from ottla.pipeline.spark.sink.markers import Marker, Snapshot, decode_marker

_log = logging.getLogger(__name__)

_PREFIX = "__ottla_sink_"
FIRST_PARTITIONS = 8
# small, because the active segment is never compacted
_POLICY = "compact"
_CONFIGS = {"cleanup.policy": _POLICY, "segment.bytes": str(4 << 20)}
TIMEOUT_S = 30.0
POLL_S = 0.05

# The search for a marker starts this many offsets before the end. A transaction takes two, one for its commit marker.
_TAIL = 8

# A connected client gets a response in milliseconds, a new one after half a second. Spark reuses its Python processes,
# so the clients stay there.
_CONSUMER = {
    "group.id": "ottla-sink-markers",
    "enable.auto.commit": "false",
    "enable.partition.eof": "true",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": "10",
    "fetch.error.backoff.ms": "20",
}

# errors while a topic is new, or its leader changes
_RETRIABLE = {
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.FENCED_LEADER_EPOCH,
}


@functools.lru_cache(maxsize=4)
def _shared_admin(config: frozenset[tuple[str, str]]) -> AdminClient:
    return make_client(AdminClient, {**dict(config), "log_level": "2"})


@functools.lru_cache(maxsize=4)
def _shared_consumer(config: frozenset[tuple[str, str]]) -> Consumer:
    return make_client(Consumer, {**dict(config), **_CONSUMER, "log_level": "2"})


def marker_topic_name(sink_id: str) -> str:
    return f"{_PREFIX}{sink_id}"


class MarkerTopic:
    def __init__(self, client: Mapping[str, str], sink_id: str) -> None:
        self.sink_id = sink_id
        self.topic = marker_topic_name(sink_id)
        self.config = frozenset(client.items())
        self.admin = _shared_admin(self.config)

    def snapshot(self) -> Snapshot:
        """The markers of all Spark partitions that have one. Creates the topic if it does not exist."""
        room = self._partition_count()
        if room == 0:
            if self._create():
                return Snapshot({}, FIRST_PARTITIONS)
            room = self._partition_count()
        self._check_policy()
        return Snapshot(self.read(range(room)), room)

    def read(self, partitions: Iterable[int]) -> dict[int, Marker]:
        """The last committed marker of each partition that has one."""
        try:
            ends = self._ends(partitions)
            found: dict[int, Marker] = {}
            back = _TAIL
            # Compaction and aborted transactions leave gaps before the end, so the search may have to start earlier.
            while starts := {
                partition: max(0, end - back) for partition, end in ends.items() if partition not in found
            }:
                found.update(self._last_from(starts))
                ends = {partition: end for partition, end in ends.items() if end > back}
                back *= 16
        except KafkaException as error:
            raise self._unreadable(error.args[0]) from error
        return found

    def ensure(self, partition: int) -> None:
        """Adds partitions to the topic if the query has more Spark partitions than the topic."""
        deadline = time.monotonic() + TIMEOUT_S
        while (count := self._partition_count()) <= partition:
            if time.monotonic() > deadline:
                raise RetriableError(
                    f"The topic `{self.topic}` has {count} partitions, and its growth to {partition + 1} does not end.",
                    "Check the log of the cluster's controller.",
                )
            self._grow(1 << partition.bit_length())
            time.sleep(POLL_S)

    def _ends(self, partitions: Iterable[int]) -> dict[int, int]:
        """The last stable offsets of the partitions that are not empty."""
        latest = OffsetSpec.latest()
        asked = {TopicPartition(self.topic, partition): latest for partition in partitions}
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            futures = self.admin.list_offsets(
                asked, isolation_level=IsolationLevel.READ_COMMITTED, request_timeout=TIMEOUT_S
            )
            try:
                offsets = {at.partition: future.result().offset for at, future in futures.items()}
                return {partition: offset for partition, offset in offsets.items() if offset > 0}
            except KafkaException as error:
                if error.args[0].code() not in _RETRIABLE or time.monotonic() > deadline:
                    raise
            time.sleep(POLL_S)

    def _last_from(self, starts: Mapping[int, int]) -> dict[int, Marker]:
        """The last marker of each partition from these offsets on."""
        consumer = _shared_consumer(self.config)
        found: dict[int, Marker] = {}
        unread = set(starts)
        deadline = time.monotonic() + TIMEOUT_S
        consumer.assign([TopicPartition(self.topic, partition, start) for partition, start in starts.items()])
        try:
            while unread:
                message = consumer.poll(1.0)
                if message is None:
                    if time.monotonic() > deadline:
                        raise self._unreadable(None)
                    continue
                error, partition = message.error(), message.partition()
                assert partition is not None
                if error is None:
                    found[partition] = decode_marker(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard(partition)
                elif error.code() not in _RETRIABLE or time.monotonic() > deadline:
                    raise self._unreadable(error)
        finally:
            consumer.unassign()
        return found

    def _partition_count(self) -> int:
        """0 if the topic does not exist. A plain Metadata request could create one that is not compacted."""
        futures = self.admin.describe_topics(TopicCollection([self.topic]), request_timeout=TIMEOUT_S)
        try:
            described = futures[self.topic].result()
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return 0
            raise self._unreadable(error.args[0]) from error
        return len(described.partitions)

    def _check_policy(self) -> None:
        """Raises PipelineError if the cluster may delete markers."""
        resource = ConfigResource(ResourceType.TOPIC, self.topic)
        futures = self.admin.describe_configs([resource], request_timeout=TIMEOUT_S)
        try:
            policy = futures[resource].result()["cleanup.policy"].value
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                raise self._unreadable(error.args[0]) from error
            _log.warning(
                "Sink `%s` may not read the configs of `%s`. Allow it, or check that cleanup.policy is %s.",
                *(self.sink_id, self.topic, _POLICY),
            )
            return
        if policy != _POLICY:
            raise PipelineError(
                f"The topic `{self.topic}` with the markers of sink `{self.sink_id}` has cleanup.policy={policy}: the"
                " cluster deletes markers after a time, and the sink would then write a batch twice.",
                f"Set cleanup.policy={_POLICY} for the topic, and start again. If markers are lost already, the sink"
                " says so.",
            )

    def _create(self) -> bool:
        """Returns False if the topic exists: the broker that was asked before did not know it yet."""
        is_new = True
        topic = NewTopic(self.topic, FIRST_PARTITIONS, config=_CONFIGS)
        try:
            self.admin.create_topics([topic], request_timeout=TIMEOUT_S)[self.topic].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise PipelineError(
                    f"The topic `{self.topic}` for the markers of sink `{self.sink_id}` cannot be created:"
                    f" {error.args[0].str()}.",
                    "Allow this user to create it, or create it: compacted, with a partition per Spark partition.",
                ) from error
            is_new = False
        self._wait_until_known()
        return is_new

    def _wait_until_known(self) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while self._partition_count() == 0:
            if time.monotonic() > deadline:
                raise self._unreadable(None)
            time.sleep(POLL_S)

    def _grow(self, count: int) -> None:
        futures = self.admin.create_partitions([NewPartitions(self.topic, count)], request_timeout=TIMEOUT_S)
        try:
            futures[self.topic].result()
        except KafkaException as error:
            # Another task was faster. The caller reads the count again.
            if error.args[0].code() not in (
                KafkaError.INVALID_PARTITIONS,
                KafkaError.REASSIGNMENT_IN_PROGRESS,
            ):
                raise self._unreadable(error.args[0]) from error

    def _unreadable(self, error: KafkaError | None) -> PipelineError:
        self.admin.poll(0)
        reason = rejection_reason(dict(self.config))
        if reason is None:
            reason = "the cluster does not respond" if error is None else f"{error.str()} ({error.name()})"
        return RetriableError(
            f"The markers of sink `{self.sink_id}` in the topic `{self.topic}` cannot be read: {reason}.",
            "Check the cluster. The sink writes nothing without them.",
        )
