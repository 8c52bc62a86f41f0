"""AddPartitionsToTxn, versions 0 to 5.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 is for brokers: several transactions, and asking without adding (KIP-890);
v5 TRANSACTION_ABORTABLE.
"""

from typing import TYPE_CHECKING, Any

from kio.schema.add_partitions_to_txn.v3 import response as v3
from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)

from ottla.broker.dispatch import RequestContext
from ottla.broker.group_requests import NO_THROTTLE
from ottla.broker.pending import Pending, completed, gather
from ottla.broker.transaction_requests import told_by_version
from ottla.core.transactions.commands import AddPartitions, PartitionVerified, VerifyPartitions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topics import is_internal
from ottla.protocol.messages import converter

if TYPE_CHECKING:
    from ottla.broker.node import Broker

FIRST_WITH_FENCED = 2
FIRST_OF_BROKERS = 4

Codes = dict[TopicPartition, ErrorCode]


def lift(request: AddPartitionsToTxnRequest, as_sent: Any, version: int) -> AddPartitionsToTxnRequest:
    if version >= FIRST_OF_BROKERS:
        return request
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=as_sent.v3_and_below_transactional_id,
        producer_id=as_sent.v3_and_below_producer_id,
        producer_epoch=as_sent.v3_and_below_producer_epoch,
        topics=tuple(
            AddPartitionsToTxnTopic(name=topic.name, partitions=topic.partitions)
            for topic in as_sent.v3_and_below_topics
        ),
    )
    return AddPartitionsToTxnRequest(transactions=(transaction,))


def lower(response: AddPartitionsToTxnResponse, version: int) -> Any:
    if version >= FIRST_OF_BROKERS:
        return response
    (result,) = response.results_by_transaction
    lowered = converter(AddPartitionsToTxnTopicResult, v3.AddPartitionsToTxnTopicResult)
    return v3.AddPartitionsToTxnResponse(
        throttle_time=response.throttle_time,
        results_by_topic_v3_and_below=tuple(lowered(topic) for topic in result.topic_results),
    )


def handle(
    broker: "Broker", context: RequestContext, request: AddPartitionsToTxnRequest
) -> Pending[AddPartitionsToTxnResponse]:
    results = [_decide(broker, context.version, each) for each in request.transactions]

    def answer(codes: list[Codes]) -> AddPartitionsToTxnResponse:
        return AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.none,
            results_by_transaction=tuple(
                _result(asked, each) for asked, each in zip(request.transactions, codes, strict=True)
            ),
        )

    return gather(results).then(answer)


def _decide(broker: "Broker", version: int, asked: AddPartitionsToTxnTransaction) -> Pending[Codes]:
    partitions = tuple(
        TopicPartition(topic.name, index) for topic in asked.topics for index in topic.partitions
    )
    refused = _refuse_partitions(broker, version, partitions)
    if refused:
        # All or none: the others are told that nothing was done.
        return completed({each: refused.get(each, ErrorCode.operation_not_attempted) for each in partitions})
    if asked.verify_only:
        return _verify(broker, asked, partitions)
    command = AddPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=partitions,
        transaction_version=2 if version >= FIRST_OF_BROKERS else 0,
    )

    def codes(error: KafkaError | None) -> Codes:
        code = ErrorCode.none if error is None else told_by_version(error, version, FIRST_WITH_FENCED)
        return dict.fromkeys(partitions, code)

    return broker.transactions.submit(asked.transactional_id, command).then(codes)


def _verify(
    broker: "Broker", asked: AddPartitionsToTxnTransaction, partitions: tuple[TopicPartition, ...]
) -> Pending[Codes]:
    command = VerifyPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=partitions,
    )

    def codes(verified: tuple[PartitionVerified, ...] | KafkaError) -> Codes:
        if isinstance(verified, KafkaError):
            return dict.fromkeys(partitions, verified.code)
        return dict(verified)

    return broker.transactions.submit(asked.transactional_id, command).then(codes)


def _refuse_partitions(broker: "Broker", version: int, partitions: tuple[TopicPartition, ...]) -> Codes:
    refused = {}
    for partition in partitions:
        if version < FIRST_OF_BROKERS and is_internal(partition.topic):
            # A client's offsets come into its transaction by AddOffsetsToTxn.
            refused[partition] = ErrorCode.topic_authorization_failed
        elif broker.image.partition(*partition) is None:
            refused[partition] = ErrorCode.unknown_topic_or_partition
    return refused


def _result(asked: AddPartitionsToTxnTransaction, codes: Codes) -> AddPartitionsToTxnResult:
    return AddPartitionsToTxnResult(
        transactional_id=asked.transactional_id,
        topic_results=tuple(
            AddPartitionsToTxnTopicResult(
                name=topic.name,
                results_by_partition=tuple(
                    AddPartitionsToTxnPartitionResult(
                        partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
                    )
                    for index in topic.partitions
                ),
            )
            for topic in asked.topics
        ),
    )
