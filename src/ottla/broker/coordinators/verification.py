"""Asks the transaction coordinator whether partitions are in a producer's ongoing transaction, or has it add them.

KIP-890: records outside of what the coordinator knows would never be ended, and nobody could read beyond them.
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

# Of partitions that are not in the transaction; nothing for those that are.
Refusals = Mapping[TopicPartition, KafkaError]


class Entry(IntEnum):
    """How a partition comes into a transaction, by the version of the request that brings records for it."""

    VERIFIED = 0  # the client has added it before
    VERIFIED_OR_ABORTABLE = 1  # the same, and the client knows TRANSACTION_ABORTABLE
    ADDED = 2  # with its first records

    @property
    def epoch_per_transaction(self) -> bool:
        return self is Entry.ADDED


def verification_is_on(services: BrokerServices, entry: Entry) -> bool:
    return entry is Entry.ADDED or services.config.get_bool("transaction.partition.verification.enable")


def ask_coordinator(
    services: BrokerServices,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Sequence[TopicPartition],
    entry: Entry,
) -> Promise[Refusals]:
    """Which of the partitions are not in the transaction now, and why."""
    command: Command[Any]
    if entry is Entry.ADDED:
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

    def refusals(told: tuple[PartitionVerified, ...] | KafkaError | None) -> Refusals:
        if isinstance(told, KafkaError):
            return {each: _told(told, entry) for each in partitions}
        return {
            partition: _told(KafkaError(code, f"{partition} is not in the transaction"), entry)
            for partition, code in told or ()
            if code is not ErrorCode.none
        }

    told: Promise[Any] = services.transactions.get().submit(transactional_id, command)
    return completed(refusals(told.value)) if told.done else told.then(refusals)


def _told(error: KafkaError, entry: Entry) -> KafkaError:
    if error.code is ErrorCode.producer_fenced:
        # What producers expect where they send records (KIP-588).
        return KafkaError(ErrorCode.invalid_producer_epoch, error.message)
    if error.code is ErrorCode.transaction_abortable and entry is Entry.VERIFIED:
        return KafkaError(ErrorCode.invalid_txn_state, error.message)
    return error
