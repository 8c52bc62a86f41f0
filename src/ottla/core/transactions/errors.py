"""Errors that several requests share."""

from ottla.core.transactions.commands import AddPartitions, EndTransaction, VerifyPartitions
from ottla.core.transactions.metadata import TransactionMetadata
from ottla.model.errors import ErrorCode, KafkaError


def concurrent_transactions(transactional_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of the transactional id {transactional_id!r} has not completed yet; retry",
    )


def check_producer(
    command: AddPartitions | VerifyPartitions | EndTransaction, metadata: TransactionMetadata
) -> None:
    """Raises KafkaError unless the command comes from the producer that owns the transactional id now."""
    if command.producer_id != metadata.record.producer_id:
        raise KafkaError(
            ErrorCode.invalid_producer_id_mapping,
            f"the transactional id {command.transactional_id!r} belongs to producer "
            f"{metadata.record.producer_id}, not to {command.producer_id}; initialize the producer again",
        )
    if not metadata.is_current_epoch(command.producer_epoch):
        raise producer_fenced(command.transactional_id, command.producer_id, command.producer_epoch, metadata)


def producer_fenced(
    transactional_id: str, producer_id: int, producer_epoch: int, metadata: TransactionMetadata
) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"the transactional id {transactional_id!r} belongs to producer {metadata.record.producer_id} with epoch "
        f"{metadata.record.producer_epoch}, not to producer {producer_id} with epoch {producer_epoch}: another "
        "producer has taken over, or the transaction timed out and was aborted; start a new producer",
    )
