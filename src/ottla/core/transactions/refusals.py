"""The refusals that several requests share, each saying who has the transactional id, and what to do."""

from ottla.core.transactions.metadata import TransactionMetadata
from ottla.model.errors import ErrorCode, KafkaError


def being_ended(transactional_id: str) -> KafkaError:
    return KafkaError(
        ErrorCode.concurrent_transactions,
        f"the last transaction of the transactional id {transactional_id!r} is being ended; try again in a moment",
    )


def wrong_producer_id(transactional_id: str, producer_id: int, metadata: TransactionMetadata) -> KafkaError:
    return KafkaError(
        ErrorCode.invalid_producer_id_mapping,
        f"the transactional id {transactional_id!r} belongs to producer {metadata.record.producer_id}, not to "
        f"{producer_id}; initialize the producer again",
    )


def fenced(
    transactional_id: str, producer_id: int, producer_epoch: int, metadata: TransactionMetadata
) -> KafkaError:
    return KafkaError(
        ErrorCode.producer_fenced,
        f"the transactional id {transactional_id!r} belongs to producer {metadata.record.producer_id} with epoch "
        f"{metadata.record.producer_epoch}, not to producer {producer_id} with epoch {producer_epoch}: another "
        "producer has taken it, or the transaction was aborted as it timed out; start a new producer",
    )
