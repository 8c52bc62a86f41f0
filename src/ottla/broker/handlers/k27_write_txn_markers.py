"""WriteTxnMarkers, versions 1 and 2: a coordinator, or an administrator, ends transactions in partitions that are here.

v1 flexible; v2 markers say which transaction version they are of (KIP-1228).
"""

from typing import TYPE_CHECKING

from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)

from ottla.broker.coordinators.markers import WrittenMarker, append_marker, flush_markers
from ottla.broker.delayed_produce import DelayedProduce
from ottla.broker.dispatch import RequestContext
from ottla.broker.hosted_partition import HostedPartition
from ottla.broker.pending import Pending, completed
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.node import Broker

# The sender knows partitions, not groups.
_TOLD = {
    ErrorCode.coordinator_not_available: ErrorCode.not_leader_or_follower,
    ErrorCode.coordinator_load_in_progress: ErrorCode.not_leader_or_follower,
    ErrorCode.not_coordinator: ErrorCode.not_leader_or_follower,
}

# By producer id: several markers of one producer are answered as one.
Codes = dict[int, dict[TopicPartition, ErrorCode]]


def handle(
    broker: "Broker", context: RequestContext, request: WriteTxnMarkersRequest
) -> Pending[WriteTxnMarkersResponse]:
    codes: Codes = {}
    written: list[tuple[int, WrittenMarker]] = []
    for asked in request.markers:
        _append(broker, asked, codes, written)
    flush_markers(broker, [each for _, each in written])
    waiting = [(producer_id, each) for producer_id, each in written if not each.is_committed]
    if not waiting:
        return completed(_response(codes))
    pending: Pending[WriteTxnMarkersResponse] = Pending()

    def finished(failed: dict[HostedPartition, KafkaError]) -> None:
        for producer_id, each in waiting:
            if each.hosted in failed:
                codes[producer_id][each.partition] = failed[each.hosted].code
        pending.complete(_response(codes))

    broker.waiting_room.wait(
        DelayedProduce(pending, [(each.hosted, each.end_offset) for _, each in waiting], finished),
        [each.hosted.topic_partition for _, each in waiting],
        broker.config.get_int("request.timeout.ms"),
    )
    return pending


def _append(
    broker: "Broker", asked: WritableTxnMarker, codes: Codes, written: list[tuple[int, WrittenMarker]]
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
                    raise KafkaError(ErrorCode.invalid_request, "a marker names its producer")
                written.append((asked.producer_id, append_marker(broker, partition, marker)))
            except KafkaError as error:
                of_producer[partition] = _TOLD.get(error.code, error.code)
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
