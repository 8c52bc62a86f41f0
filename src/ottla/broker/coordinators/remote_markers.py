"""Has other brokers write the markers that end transactions in the partitions that they lead (WriteTxnMarkers)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse

from ottla.broker.broker_queue import BrokerQueue, response_timeout_s
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.core.partition.leader import TransactionMarker
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition


class MarkerForBroker(NamedTuple):
    marker: TransactionMarker
    partitions: tuple[TopicPartition, ...]


# Of each partition; one that is missing in a response counts as an error that is retried.
MarkerResults = Mapping[TopicPartition, ErrorCode]


class RemoteMarkers:
    def __init__(self, services: BrokerServices) -> None:
        self._config = services.config
        # Its own: a marker may wait long for its replicas, and a verification must not wait behind it.
        self._connections = services.connect_to_brokers()
        self._queue: BrokerQueue[MarkerForBroker, MarkerResults] = BrokerQueue(
            services.tasks, self._send, lambda item: 1 + len(item.partitions)
        )

    def write(
        self, broker_id: int, marker: TransactionMarker, partitions: Sequence[TopicPartition]
    ) -> Promise[MarkerResults | KafkaError]:
        return self._queue.submit(broker_id, MarkerForBroker(marker, tuple(partitions)))

    async def _send(self, broker_id: int, items: list[MarkerForBroker]) -> list[MarkerResults]:
        request = WriteTxnMarkersRequest(markers=tuple(_request_marker(item) for item in items))
        timeout_s = response_timeout_s(self._config)
        response = await self._connections.call(broker_id, request, WriteTxnMarkersResponse, timeout_s)
        codes: dict[tuple[int, TopicPartition], ErrorCode] = {
            (result.producer_id, TopicPartition(topic.name, partition.partition_index)): partition.error_code
            for result in response.markers
            for topic in result.topics
            for partition in topic.partitions
        }
        return [
            {
                partition: codes.get((item.marker.producer_id, partition), ErrorCode.unknown_server_error)
                for partition in item.partitions
            }
            for item in items
        ]


def _request_marker(item: MarkerForBroker) -> WritableTxnMarker:
    marker = item.marker
    by_topic: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        by_topic.setdefault(topic, []).append(index)
    return WritableTxnMarker(
        producer_id=marker.producer_id,
        producer_epoch=marker.producer_epoch,
        transaction_result=marker.commit,
        topics=tuple(
            WritableTxnMarkerTopic(name=topic, partition_indexes=tuple(indexes))
            for topic, indexes in by_topic.items()
        ),
        coordinator_epoch=marker.coordinator_epoch,
        transaction_version=marker.transaction_version,
    )
