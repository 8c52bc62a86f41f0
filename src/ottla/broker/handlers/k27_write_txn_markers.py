"""WriteTxnMarkers, versions 1 and 2: a coordinator or an administrator ends transactions in partitions led here.

v1 flexible; v2 markers have a transaction version (KIP-1228).
"""

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
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
from ottla.broker.promise import Promise, completed
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


def handle(
    services: BrokerServices, context: RequestContext, request: WriteTxnMarkersRequest
) -> Promise[WriteTxnMarkersResponse]:
    codes: Codes = {}
    written: list[tuple[int, WrittenMarker]] = []
    for asked in request.markers:
        _append(services, asked, codes, written)
    flush_markers(services, [marker for _, marker in written])
    waiting = [(producer_id, marker) for producer_id, marker in written if not marker.is_committed]
    if not waiting:
        return completed(_response(codes))
    promise: Promise[WriteTxnMarkersResponse] = Promise()

    def finish(failed: dict[HostedPartition, KafkaError]) -> None:
        for producer_id, marker in waiting:
            if marker.hosted in failed:
                codes[producer_id][marker.partition] = failed[marker.hosted].code
        promise.complete(_response(codes))

    services.delayed_operations.watch(
        DelayedProduce(promise, [(marker.hosted, marker.end_offset) for _, marker in waiting], finish),
        [marker.hosted.topic_partition for _, marker in waiting],
        services.config.get_int("request.timeout.ms"),
    )
    return promise


def _append(
    services: BrokerServices, asked: WritableTxnMarker, codes: Codes, written: list[tuple[int, WrittenMarker]]
) -> None:
    marker = TransactionMarker(
        asked.producer_id,
        asked.producer_epoch,
        asked.transaction_result,
        asked.coordinator_epoch,
        asked.transaction_version,
    )
    of_producer = codes.setdefault(asked.producer_id, {})
    for topic in asked.topics:
        for index in topic.partition_indexes:
            partition = TopicPartition(topic.name, index)
            try:
                if asked.producer_id < 0 or asked.producer_epoch < 0:
                    raise KafkaError(ErrorCode.invalid_request, "a marker must have a producer id and epoch")
                written.append((asked.producer_id, write_marker(services, partition, marker)))
            except KafkaError as error:
                of_producer[partition] = _PARTITION_ERRORS.get(error.code, error.code)
            else:
                of_producer[partition] = ErrorCode.none


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
