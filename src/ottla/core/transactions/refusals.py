"""The refusals that several requests share, each saying who has the transactional id, and what to do."""

from ottla.core.transactions.commands import AddPartitions, EndTransaction, VerifyPartitions
from ottla.core.transactions.metadata import TransactionMetadata
from ottla.model.errors import ErrorCode, KafkaError


def being_ended(transactional_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of the transactional id {transactional_id!r} is being ended; try again in a moment",
    )


def check_producer(
    command: AddPartitions | VerifyPartitions | EndTransaction, metadata: TransactionMetadata
) -> None:
    """Raises KafkaError unless it comes from the producer that has the transactional id now."""
    if command.producer_id != metadata.record.producer_id:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping,
            f"the transactional id {command.transactional_id!r} belongs to producer "
            f"{metadata.record.producer_id}, not to {command.producer_id}; initialize the producer again",
        )
    if not metadata.is_current_epoch(command.producer_epoch):
        raise fenced(command.transactional_id, command.producer_id, command.producer_epoch, metadata)


def fenced(
    transactional_id: str, producer_id: int, producer_epoch: int, metadata: TransactionMetadata
) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"the transactional id {transactional_id!r} belongs to producer {metadata.record.producer_id} with epoch "
        f"{metadata.record.producer_epoch}, not to producer {producer_id} with epoch {producer_epoch}: another "
        "producer has taken it, or the transaction was aborted as it timed out; start a new producer",
    )
