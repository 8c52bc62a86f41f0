"""AddPartitionsToTxn, versions 0 to 5.

v2 PRODUCER_FENCED (KIP-588); v3 flexible; v4 is for brokers: many transactions, verification without adding (KIP-890);
v5 TRANSACTION_ABORTABLE.
"""

from ottla.broker.connection import ResponseParts
from ottla.broker.dispatch import RequestContext
from ottla.broker.long_requests import REQUEST_BYTES_ON_LOOP
from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.broker.transaction_requests import error_code_for_version
from ottla.core.transactions.commands import AddPartitions, PartitionVerified, VerifyPartitions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition
from ottla.model.topics import is_internal
from ottla.protocol.transaction_codec import (
    PartitionsOfTransaction,
    decode_add_partitions_request,
    encode_add_partitions_response,
)

FIRST_WITH_FENCED = 2
FIRST_OF_BROKERS = 4

# One for each partition of the request, in its order.
Codes = list[ErrorCode]


def handle_body(
    services: BrokerServices, context: RequestContext, body: memoryview
) -> ResponseParts | Promise[ResponseParts]:
    version = context.version
    if len(body) > REQUEST_BYTES_ON_LOOP:
        decoded = services.message_thread.submit(lambda: decode_add_partitions_request(body, version))
        return decoded.then(lambda transactions: _serve(services, context, transactions))
    return _serve(services, context, decode_add_partitions_request(body, version))


def _serve(
    services: BrokerServices, context: RequestContext, transactions: list[PartitionsOfTransaction]
) -> ResponseParts | Promise[ResponseParts]:
    version = context.version

    def respond(codes: list[Codes]) -> ResponseParts:
        return context.respond(encode_add_partitions_response(transactions, codes, version))

    if len(transactions) == 1:
        codes = _add(services, version, transactions[0])
        return respond([codes.value]) if codes.done else codes.then(lambda only: respond([only]))
    return services.scheduler.run(
        transactions, lambda transaction: _add(services, version, transaction)
    ).then(respond)


def _add(services: BrokerServices, version: int, asked: PartitionsOfTransaction) -> Promise[Codes]:
    errors = _check_partitions(services, version, asked.partitions)
    if errors:
        # All or none are added.
        return completed(
            [errors.get(partition, ErrorCode.operation_not_attempted) for partition in asked.partitions]
        )
    if asked.verify_only:
        return _verify(services, asked)
    command = AddPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=asked.partitions,
        transaction_version=2 if version >= FIRST_OF_BROKERS else 0,
    )

    def codes(error: KafkaError | None) -> Codes:
        code = ErrorCode.none if error is None else error_code_for_version(error, version, FIRST_WITH_FENCED)
        return [code] * len(asked.partitions)

    added = services.transactions.get().submit(asked.transactional_id, command)
    return completed(codes(added.value)) if added.done else added.then(codes)


def _verify(services: BrokerServices, asked: PartitionsOfTransaction) -> Promise[Codes]:
    command = VerifyPartitions(
        transactional_id=asked.transactional_id,
        producer_id=asked.producer_id,
        producer_epoch=asked.producer_epoch,
        partitions=asked.partitions,
    )

    def codes(verified: tuple[PartitionVerified, ...] | KafkaError) -> Codes:
        if isinstance(verified, KafkaError):
            return [verified.code] * len(asked.partitions)
        return [partition.error_code for partition in verified]

    return services.transactions.get().submit(asked.transactional_id, command).then(codes)


def _check_partitions(
    services: BrokerServices, version: int, partitions: tuple[TopicPartition, ...]
) -> dict[TopicPartition, ErrorCode]:
    errors = {}
    find = services.metadata.image.partition
    for partition in partitions:
        if version < FIRST_OF_BROKERS and is_internal(partition.topic):
            # Clients add offsets to a transaction with AddOffsetsToTxn.
            errors[partition] = ErrorCode.topic_authorization_failed
        elif find(*partition) is None:
            errors[partition] = ErrorCode.unknown_topic_or_partition
    return errors
