"""DescribeTransactions and ListTransactions (KIP-664, KIP-1152)."""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import (
    DescribedTransaction,
    DescribeTransaction,
    ListedTransaction,
    ListTransactions,
)
from ottla.core.transactions.metadata import TransactionMetadata
from ottla.core.transactions.states import PREPARED, STATE_NAMES
from ottla.core.transactions.store import TransactionDecision, TransactionStore, check_transactional_id
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.regex import compile_regex


def describe_transaction(
    store: TransactionStore,
    command: DescribeTransaction,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    check_transactional_id(command.transactional_id)
    metadata = store.by_id.get(command.transactional_id)
    if metadata is None:
        raise KafkaError(
            ErrorCode.transactional_id_not_found,
            f"the transactional id {command.transactional_id!r} is not known, or has expired",
        )
    record = metadata.record
    decision.reply(
        waiter,
        DescribedTransaction(
            command.transactional_id,
            STATE_NAMES[metadata.state],
            record.transaction_timeout_ms,
            record.transaction_start_timestamp_ms,
            record.producer_id,
            record.producer_epoch,
            # As in Kafka: while a transaction is completing, only the partitions without a marker.
            tuple(metadata.unmarked if metadata.state in PREPARED else metadata.partitions),
        ),
    )


def list_transactions(
    store: TransactionStore,
    command: ListTransactions,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    pattern = command.transactional_id_pattern
    matches_id = compile_regex(pattern, "Transaction ID pattern").fullmatch if pattern else None
    decision.reply(
        waiter,
        tuple(
            ListedTransaction(transactional_id, metadata.record.producer_id, STATE_NAMES[metadata.state])
            for transactional_id, metadata in store.by_id.items()
            if _is_listed(command, metadata, now_ms) and (matches_id is None or matches_id(transactional_id))
        ),
    )


def _is_listed(command: ListTransactions, metadata: TransactionMetadata, now_ms: int) -> bool:
    if command.producer_ids and metadata.record.producer_id not in command.producer_ids:
        return False
    if command.states and STATE_NAMES[metadata.state] not in command.states:
        return False
    return (
        command.duration_ms < 0
        or now_ms - metadata.record.transaction_start_timestamp_ms > command.duration_ms
    )
