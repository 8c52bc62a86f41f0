"""Asks the transaction coordinator on another broker about the partitions of transactions (KIP-890)."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse

from ottla.broker.broker_queue import BrokerQueue, response_timeout_s
from ottla.broker.promise import Promise
from ottla.broker.services import BrokerServices
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition


class PartitionsToVerify(NamedTuple):
    """`verify_only`: the client has added the partitions before. Otherwise the coordinator adds them."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: tuple[TopicPartition, ...]
    verify_only: bool


VerificationCodes = Mapping[TopicPartition, ErrorCode]


class RemoteVerification:
    def __init__(self, services: BrokerServices) -> None:
        self._config = services.config
        # Its own: a verification must not wait behind a marker, whose replicas may take long.
        self._connections = services.connect_to_brokers()
        self._queue: BrokerQueue[PartitionsToVerify, VerificationCodes] = BrokerQueue(
            services.tasks, self._send, lambda item: 1 + len(item.partitions)
        )

    def verify(self, broker_id: int, asked: PartitionsToVerify) -> Promise[VerificationCodes | KafkaError]:
        return self._queue.submit(broker_id, asked)

    async def _send(self, broker_id: int, items: list[PartitionsToVerify]) -> list[VerificationCodes]:
        """A request has one entry for each transactional id, so later items of the same id make another request."""
        results: list[VerificationCodes] = []
        for start, end in _distinct_runs(items):
            results += await self._send_distinct(broker_id, items[start:end])
        return results

    async def _send_distinct(
        self, broker_id: int, items: list[PartitionsToVerify]
    ) -> list[VerificationCodes]:
        request = AddPartitionsToTxnRequest(transactions=tuple(_transaction(item) for item in items))
        timeout_s = response_timeout_s(self._config)
        response = await self._connections.call(broker_id, request, AddPartitionsToTxnResponse, timeout_s)
        if response.error_code is not ErrorCode.none:
            raise KafkaError(response.error_code, f"broker {broker_id} could not verify transactions")
        found = {
            result.transactional_id: {
                TopicPartition(topic.name, partition.partition_index): partition.partition_error_code
                for topic in result.topic_results
                for partition in topic.results_by_partition
            }
            for result in response.results_by_transaction
        }
        return [
            {
                partition: found.get(item.transactional_id, {}).get(partition, ErrorCode.unknown_server_error)
                for partition in item.partitions
            }
            for item in items
        ]


def _distinct_runs(items: Sequence[PartitionsToVerify]) -> list[tuple[int, int]]:
    runs, start, seen = [], 0, set[str]()
    for index, item in enumerate(items):
        if item.transactional_id in seen:
            runs.append((start, index))
            start, seen = index, set()
        seen.add(item.transactional_id)
    return [*runs, (start, len(items))]


def _transaction(item: PartitionsToVerify) -> AddPartitionsToTxnTransaction:
    by_topic: dict[str, list[int]] = {}
    for topic, index in item.partitions:
        by_topic.setdefault(topic, []).append(index)
    return AddPartitionsToTxnTransaction(
        transactional_id=item.transactional_id,
        producer_id=item.producer_id,
        producer_epoch=item.producer_epoch,
        verify_only=item.verify_only,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic, partitions=tuple(indexes))
            for topic, indexes in by_topic.items()
        ),
    )
