"""WriteTxnMarkers, versions 1 and 2: a coordinator or an administrator ends transactions in partitions led here.

v1 flexible; v2 markers have a transaction version (KIP-1228).
"""

from typing import NamedTuple

from kio.schema.write_txn_markers.v2.request import WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from ottla.broker.coordinators.markers import WrittenMarker, flush_markers, write_marker
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.long_requests import is_long, prepare
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

# The sender writes to a partition, and does not know that a group coordinator is in front of it.
_PARTITION_ERRORS = {
    ErrorCode.coordinator_not_available: ErrorCode.not_leader_or_follower,
    ErrorCode.coordinator_load_in_progress: ErrorCode.not_leader_or_follower,
    ErrorCode.not_coordinator: ErrorCode.not_leader_or_follower,
}

# By producer id: several markers of one producer have one entry in the response.
Codes = dict[int, dict[TopicPartition, ErrorCode]]


class _Asked(NamedTuple):
    """One marker for one partition."""

    marker: TransactionMarker
    partition: TopicPartition


def handle(
    services: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> Promise[WriteTxnMarkersResponse]:
    in_thread = is_long(topic.partition_indexes for marker in request.markers for topic in marker.topics)
    writes = _Writes(services, in_thread=in_thread)

    def write(asked: list[_Asked]) -> Promise[WriteTxnMarkersResponse]:
        return services.scheduler.run(asked, writes.append).then(lambda _: writes.finish())

    return prepare(services, lambda: _asked(request, writes.codes), in_thread=in_thread).then(write)


def _asked(request: WriteTxnMarkersRequest, codes: Codes) -> list[_Asked]:
    asked = []
    for each in request.markers:
        marker = TransactionMarker(
            each.producer_id,
            each.producer_epoch,
            each.transaction_result,
            each.coordinator_epoch,
            each.transaction_version,
        )
        codes.setdefault(each.producer_id, {})
        for topic in each.topics:
            asked += [_Asked(marker, TopicPartition(topic.name, index)) for index in topic.partition_indexes]
    return asked


class _Writes:
    """The markers of one request, and the partitions that got them."""

    def __init__(self, services: BrokerServices, *, in_thread: bool) -> None:
        self._services = services
        self._in_thread = in_thread
        self.codes: Codes = {}
        self._last: dict[TopicPartition, WrittenMarker] = {}
        self._producers: dict[TopicPartition, dict[int, None]] = {}

    def append(self, asked: _Asked) -> None:
        marker, partition = asked
        of_producer = self.codes[marker.producer_id]
        try:
            if marker.producer_id < 0 or marker.producer_epoch < 0:
                raise KafkaError(ErrorCode.invalid_request, "a marker must have a producer id and epoch")
            # The last one is the last to be committed; under another leadership the earlier ones are lost too.
            self._last[partition] = write_marker(self._services, partition, marker)
        except KafkaError as error:
            of_producer[partition] = _PARTITION_ERRORS.get(error.code, error.code)
        else:
            of_producer[partition] = ErrorCode.none
            self._producers.setdefault(partition, {})[marker.producer_id] = None

    def finish(self) -> Promise[WriteTxnMarkersResponse]:
        """Waits until all markers are committed."""
        flush_markers(self._services, self._last.values())
        waiting = [marker for marker in self._last.values() if not marker.is_committed]
        if not waiting:
            return self._respond()
        promise: Promise[WriteTxnMarkersResponse] = Promise()

        def finish(failed: dict[HostedPartition, KafkaError]) -> None:
            for hosted, error in failed.items():
                for producer_id in self._producers[hosted.topic_partition]:
                    self.codes[producer_id][hosted.topic_partition] = error.code
            promise.resolve(self._respond())

        operation = DelayedProduce(promise, [marker.appended for marker in waiting], finish)
        # Many markers take several turns of the event loop, in which nobody watched the first partitions.
        if not operation.try_complete(0):
            self._services.delayed_operations.watch(
                operation,
                [marker.partition for marker in waiting],
                self._services.config.get_int("request.timeout.ms"),
            )
        return promise

    def _respond(self) -> Promise[WriteTxnMarkersResponse]:
        return prepare(self._services, lambda: _response(self.codes), in_thread=self._in_thread)


def _response(codes: Codes) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=tuple(
            WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(partitions))
            for producer_id, partitions in codes.items()
        )
    )


def _topics(codes: dict[TopicPartition, ErrorCode]) -> tuple[WritableTxnMarkerTopicResult, ...]:
    by_topic: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        result = WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
        by_topic.setdefault(topic, []).append(result)
    return tuple(
        WritableTxnMarkerTopicResult(name=topic, partitions=tuple(results))
        for topic, results in by_topic.items()
    )
