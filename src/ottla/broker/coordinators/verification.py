"""Verifies with the transaction coordinator that partitions are in a producer's ongoing transaction, or adds them.

KIP-890: records of a transaction that the coordinator does not know would never be ended, and no consumer could read
beyond them.
"""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from ottla.broker.promise import Promise, completed
from ottla.broker.services import BrokerServices
from ottla.core.coordination import Command
from ottla.core.partition.producers import EPOCH_PER_TRANSACTION
from ottla.core.transactions.commands import AddPartitions, PartitionVerified, VerifyPartitions
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import TopicPartition

# The errors of those partitions that are not in the transaction.
PartitionErrors = Mapping[TopicPartition, KafkaError]


class VerificationMode(IntEnum):
    """How a partition gets into a transaction. The version of the request that has records for it decides."""

    VERIFY = 0  # the client has added the partition before
    VERIFY_ABORTABLE = 1  # likewise, and the client knows TRANSACTION_ABORTABLE
    ADD = 2  # the broker adds it with the first records

    @property
    def epoch_per_transaction(self) -> bool:
        return self is VerificationMode.ADD


def verification_mode(version: int, first_with_abortable: int, first_that_adds: int) -> VerificationMode:
    if version >= first_that_adds:
        return VerificationMode.ADD
    return VerificationMode.VERIFY_ABORTABLE if version >= first_with_abortable else VerificationMode.VERIFY


def verification_is_enabled(services: BrokerServices, mode: VerificationMode) -> bool:
    if mode is VerificationMode.ADD:
        return True
    return services.config.get_bool("transaction.partition.verification.enable")


def verify_partitions(
    services: BrokerServices,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    mode: VerificationMode,
) -> Promise[PartitionErrors]:
    """Asks the coordinator of the transactional id: here, or on the broker that leads its partition."""
    coordinator = services.transactions.get()
    if coordinator.runtimes.for_key(transactional_id) is None:
        leader_id = coordinator.runtimes.leader_of(transactional_id)
        if not isinstance(leader_id, KafkaError) and leader_id != services.config.node_id:
            asked = transactional_id, producer_id, producer_epoch, tuple(partitions)
            return _verify_remotely(services, leader_id, *asked, mode)
    command: Command[Any]
    if mode is VerificationMode.ADD:
        command = AddPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
            transaction_version=EPOCH_PER_TRANSACTION,
        )
    else:
        command = VerifyPartitions(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=tuple(partitions),
        )

    def to_errors(response: tuple[PartitionVerified, ...] | KafkaError | None) -> PartitionErrors:
        if isinstance(response, KafkaError):
            return {partition: _producer_error(response, mode) for partition in partitions}
        return _errors_of(dict(response or ()), mode)

    response: Promise[Any] = coordinator.submit(transactional_id, command)
    return completed(to_errors(response.value)) if response.done else response.then(to_errors)


def _verify_remotely(
    services: BrokerServices,
    coordinator_id: int,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: tuple[TopicPartition, ...],
    mode: VerificationMode,
) -> Promise[PartitionErrors]:
    from ottla.broker.coordinators.remote_verification import PartitionsToVerify, VerificationCodes

    def to_errors(codes: VerificationCodes | KafkaError) -> PartitionErrors:
        if isinstance(codes, KafkaError):
            # As in Kafka: the client must retry, and NETWORK_EXCEPTION is an error of its own connection.
            codes = dict.fromkeys(partitions, ErrorCode.coordinator_not_available)
        return _errors_of(codes, mode)

    asked = PartitionsToVerify(
        transactional_id,
        producer_id,
        producer_epoch,
        partitions,
        verify_only=mode is not VerificationMode.ADD,
    )
    verification = services.transactions.get().remote_verification.get()
    return verification.verify(coordinator_id, asked).then(to_errors)


def _errors_of(codes: Mapping[TopicPartition, ErrorCode], mode: VerificationMode) -> PartitionErrors:
    return {
        partition: _producer_error(KafkaError(code, f"{partition} is not in the transaction"), mode)
        for partition, code in codes.items()
        if code is not ErrorCode.none
    }


def _producer_error(error: KafkaError, mode: VerificationMode) -> KafkaError:
    if error.code is ErrorCode.producer_fenced:
        # Producers expect this code in the response to records (KIP-588).
        return KafkaError(ErrorCode.invalid_producer_epoch, error.message)
    if error.code is ErrorCode.transaction_abortable and mode is VerificationMode.VERIFY:
        return KafkaError(ErrorCode.invalid_txn_state, error.message)
    return error
