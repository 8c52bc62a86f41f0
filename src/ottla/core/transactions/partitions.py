"""The partitions of a transaction: clients add them, and partition leaders verify them (KIP-890).

A transaction that commits offsets adds the group's partition of `__consumer_offsets` (KIP-447).
"""

from collections.abc import Iterable

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import AddPartitions, PartitionVerified, VerifyPartitions
from ottla.core.transactions.errors import check_producer, concurrent_transactions
from ottla.core.transactions.metadata import with_partitions
from ottla.core.transactions.states import PREPARED, TransactionState
from ottla.core.transactions.store import TransactionDecision, TransactionStore
from ottla.core.transactions.timers import start_timeout
from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition


def add_partitions(
    store: TransactionStore,
    command: AddPartitions,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    metadata = store.get(command.transactional_id)
    if metadata.state in PREPARED:
        # Before check_producer: when this transaction completes, the producer may get a new id.
        raise concurrent_transactions(command.transactional_id)
    check_producer(command, metadata)
    added = tuple(dict.fromkeys(each for each in command.partitions if each not in metadata.partitions))
    begins = metadata.state is not TransactionState.ONGOING
    if begins or added:
        record = metadata.record
        metadata = store.transition(
            command.transactional_id,
            TransactionState.ONGOING,
            metadata.last_producer_epoch,
            decision,
            now_ms,
            transaction_partitions=with_partitions(record.transaction_partitions, added),
            transaction_start_timestamp_ms=now_ms if begins else record.transaction_start_timestamp_ms,
            client_transaction_version=command.transaction_version,
        )
        if begins:
            start_timeout(command.transactional_id, metadata, decision, now_ms)
    decision.reply(waiter, None)


def verify_partitions(
    store: TransactionStore,
    command: VerifyPartitions,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    metadata = store.get(command.transactional_id)
    check_producer(command, metadata)
    if metadata.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    decision.reply(
        waiter,
        tuple(
            PartitionVerified(
                partition,
                ErrorCode.none if partition in metadata.partitions else ErrorCode.transaction_abortable,
            )
            for partition in command.partitions
        ),
    )


def has_partitions(
    store: TransactionStore,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Iterable[TopicPartition],
) -> bool:
    """Whether `verify_partitions` would accept all partitions, for callers on the coordinator's own broker."""
    metadata = store.by_id.get(transactional_id)
    return (
        metadata is not None
        and metadata.state is TransactionState.ONGOING
        and metadata.record.producer_id == producer_id
        and metadata.is_current_epoch(producer_epoch)
        and metadata.partitions.keys() >= set(partitions)
    )
