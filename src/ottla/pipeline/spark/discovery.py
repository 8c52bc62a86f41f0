"""Asks the cluster for the partitions of the selected topics and for their offsets: earliest, latest or by time."""

import re
import time
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, Uuid
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from confluent_kafka.admin._metadata import TopicMetadata

from ottla.model.ids import TopicPartition
from ottla.pipeline.errors import PipelineError, RetriableError
from ottla.pipeline.spark.clients import make_client, rejection_reason
from ottla.pipeline.spark.offsets import EARLIEST, LATEST, Offsets
from ottla.pipeline.spark.options import Point, ReadOptions, read_options

RESPONSE_TIMEOUT_S = 30.0
_ATTEMPT_TIMEOUT_S = 2.0
_RETRY_PAUSE_S = 0.1
# errors while a partition changes its leader, or is new
_RETRIABLE = (
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.OFFSET_NOT_AVAILABLE,
)
# A topic that was deleted meanwhile, or that we may not see, has no id.
_WITHOUT_ID = (
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.LEADER_NOT_AVAILABLE,
)
_NO_TOPIC_ID = str(Uuid(0, 0))
# Internal topics of the cluster and of our sink match no pattern.
_INTERNAL = re.compile("__consumer_offsets|__transaction_state|__share_group_state|__ottla.*")


class Discovery:
    """Asks the cluster for one reader, with its isolation level."""

    def __init__(self, options: ReadOptions) -> None:
        self.options = options
        config = {name: value for name, value in options.client.items() if name != "isolation.level"}
        self.client = make_client(AdminClient, config)
        committed = options.read_committed
        self.isolation = IsolationLevel.READ_COMMITTED if committed else IsolationLevel.READ_UNCOMMITTED

    @classmethod
    def of_topics(cls, cluster: Mapping[str, str], topics: Iterable[str]) -> "Discovery":
        """For a reader of these topics' committed records; `cluster` are the options `kafka.*`."""
        options = {**cluster, "subscribe": ",".join(topics), "kafka.isolation.level": "read_committed"}
        return cls(read_options(options, streaming=False))

    def partitions(self) -> set[TopicPartition]:
        """The partitions of those selected topics that exist."""
        existing = {
            TopicPartition(name, number)
            for name, topic in self.topics().items()
            for number in topic.partitions
        }
        return _select_partitions(self.options, existing)

    def topics(self) -> dict[str, TopicMetadata]:
        """Asks in short attempts: a client that is rejected should not wait as long as one whose cluster is down."""
        deadline = time.monotonic() + RESPONSE_TIMEOUT_S
        while True:
            try:
                return self.client.list_topics(timeout=_ATTEMPT_TIMEOUT_S).topics
            except KafkaException as error:
                self.client.poll(0)
                is_late = time.monotonic() > deadline
                if is_late or rejection_reason(self.options.client) is not None:
                    raise self._no_response(error) from error
                time.sleep(_RETRY_PAUSE_S)

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The ids of those topics that exist; empty if the cluster has no topic ids (KIP-516)."""
        names = sorted(set(topics))
        if not names:
            return {}
        futures = self.client.describe_topics(TopicCollection(names), request_timeout=RESPONSE_TIMEOUT_S)
        found = {}
        for name in names:
            try:
                # As Kafka's tools print it; librdkafka uses the other base64 alphabet.
                topic_id = str(futures[name].result().topic_id).replace("+", "-").replace("/", "_")
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() not in _WITHOUT_ID:
                    raise self._no_response(error) from error
            else:
                if topic_id != _NO_TOPIC_ID:
                    found[name] = topic_id
        return found

    def earliest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._list_offsets({at: OffsetSpec.earliest() for at in partitions})

    def latest(self, partitions: Collection[TopicPartition]) -> Offsets:
        return self._list_offsets({at: OffsetSpec.latest() for at in partitions})

    def at_time(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        """The offset of the first record at or after the time; LATEST if there is none."""
        return self._list_offsets({at: OffsetSpec.for_timestamp(time_ms) for at, time_ms in times_ms.items()})

    def _list_offsets(self, specs: Mapping[TopicPartition, Any]) -> Offsets:
        deadline = time.monotonic() + RESPONSE_TIMEOUT_S
        asked = {KafkaPartition(*at): spec for at, spec in specs.items()}
        while True:
            try:
                return self._list_once(asked)
            except KafkaException as error:
                reason: KafkaError = error.args[0]
                if reason.code() not in _RETRIABLE or time.monotonic() > deadline:
                    raise self._no_response(error) from error
            time.sleep(_RETRY_PAUSE_S)

    def _list_once(self, asked: dict[KafkaPartition, Any]) -> Offsets:
        if not asked:
            return {}
        futures = self.client.list_offsets(
            asked, isolation_level=self.isolation, request_timeout=RESPONSE_TIMEOUT_S
        )
        return {
            TopicPartition(at.topic, at.partition): future.result().offset for at, future in futures.items()
        }

    def _no_response(self, error: KafkaException) -> PipelineError:
        reason: KafkaError = error.args[0]
        rejection = rejection_reason(self.options.client)
        if rejection is not None:
            # Retriable, because a broker that restarts during a handshake looks the same.
            return RetriableError(
                f"The cluster at {self.options.client['bootstrap.servers']} rejected the client: {rejection}.",
                "Fix the `kafka.*` options for security: protocol, mechanism, user, password, certificates.",
            )
        return RetriableError(
            f"The cluster at {self.options.client['bootstrap.servers']} did not respond: {reason.str()}.",
            "Check that it runs, the address, and the `kafka.*` options for security.",
        )

    def resolve(self, point: Point, partitions: Collection[TopicPartition], *, is_start: bool) -> Offsets:
        """The offset of each partition at a starting or ending point."""
        if point.everywhere is not None:
            wanted = dict.fromkeys(partitions, point.everywhere)
        else:
            wanted = point.each
            _check_complete(wanted, partitions)
        if point.kind == "time":
            return self._resolve_times(wanted, is_start=is_start)
        ends = {EARLIEST: self.earliest, LATEST: self.latest}
        offsets = {at: offset for at, offset in wanted.items() if offset not in ends}
        for end, find in ends.items():
            offsets |= find([at for at, offset in wanted.items() if offset == end])
        return offsets

    def _resolve_times(self, times_ms: Mapping[TopicPartition, int], *, is_start: bool) -> Offsets:
        offsets = self.at_time(times_ms)
        late = [at for at, offset in offsets.items() if offset == LATEST]
        if late and is_start and not self.options.late_start_is_latest:
            raise PipelineError(
                f"{late[0]} has no record at or after the starting time {times_ms[late[0]]}.",
                "Give an earlier time, or startingOffsetsByTimestampStrategy=latest to start with the next record.",
            )
        return offsets | self.latest(late)


def _select_partitions(options: ReadOptions, existing: Iterable[TopicPartition]) -> set[TopicPartition]:
    if options.assign:
        return {at for at in existing if at in options.assign}
    if options.pattern is not None:
        matches = re.compile(options.pattern).fullmatch
        return {at for at in existing if matches(at.topic) and not _INTERNAL.fullmatch(at.topic)}
    return {at for at in existing if at.topic in options.subscribe}


def check_exists(options: ReadOptions, partitions: Collection[TopicPartition]) -> None:
    """Named topics and partitions must exist when a query starts; a pattern may match nothing yet."""
    missing = sorted(set(options.subscribe) - {at.topic for at in partitions})
    missing += sorted(str(at) for at in options.assign if at not in partitions)
    if missing:
        what = "The partition" if options.assign else "The topic"
        raise PipelineError(
            f"{what} {missing[0]} does not exist on {options.client['bootstrap.servers']}.",
            "Create it, or fix the name.",
        )


def _check_complete(given: Collection[TopicPartition], partitions: Collection[TopicPartition]) -> None:
    missing = sorted(str(at) for at in partitions if at not in given)
    unknown = sorted(str(at) for at in given if at not in partitions)
    if missing or unknown:
        what = f"leaves out {missing[0]}" if missing else f"names {unknown[0]}, which is not read"
        raise PipelineError(
            f"The JSON of offsets {what}.", "Name each partition; -1 stands for latest, -2 for earliest."
        )
