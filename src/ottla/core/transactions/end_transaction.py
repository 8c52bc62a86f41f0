"""The end of a transaction: EndTxn, fencing, timeouts, and the markers that follow.

The coordinator first writes the outcome to its log (PrepareCommit, PrepareAbort), then has a marker written to every
partition of the transaction, then completes it. Once the outcome is in the log it is final: after a failover the next
coordinator continues from there.

With version 0, EndTxn carries an epoch that all transactions of the producer share. A delayed or duplicate request
therefore ends the transaction that is open when it arrives, which may be a later one; the coordinator cannot tell.
With version 2 each transaction has its own epoch (KIP-890), so a retry can be told from a request for the next one:

                     abort                    commit
                     retry       next         retry       next
    Empty            fenced      accepted     fenced      rejected
    CompleteAbort    repeated    accepted     rejected    rejected
    CompleteCommit   rejected    accepted     repeated    rejected

A retry has the epoch of the transaction that has ended, "next" the epoch that its end returned.
"""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import EndTransaction, MarkersWritten, ProducerIdAndEpoch, WriteMarkers
from ottla.core.transactions.errors import check_producer, concurrent_transactions
from ottla.core.transactions.metadata import MAX_PRODUCER_EPOCH, TransactionMetadata, next_epoch
from ottla.core.transactions.states import COMPLETE, PREPARED, STATE_NAMES, TransactionState
from ottla.core.transactions.store import TransactionDecision, TransactionStore, check_has_producer_id
from ottla.core.transactions.timers import (
    TransactionTimedOut,
    cancel_timeout,
    start_timeout,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def end_transaction(
    store: TransactionStore,
    command: EndTransaction,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    if command.transaction_version >= 2:
        _end_version_2(store, command, waiter, decision, now_ms)
    else:
        _end_version_0(store, command, waiter, decision, now_ms)


def _end_version_0(
    store: TransactionStore,
    command: EndTransaction,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    metadata = store.get(command.transactional_id)
    check_producer(command, metadata)
    if metadata.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    if metadata.state is TransactionState.ONGOING:
        response = prepare(store, command.transactional_id, command.commit, 0, decision, now_ms)
    elif metadata.state is _complete_state(command.commit):
        response = metadata.producer
    else:
        raise _invalid_state(command, metadata)
    decision.reply(waiter, response)


def _end_version_2(
    store: TransactionStore,
    command: EndTransaction,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    metadata = store.get(command.transactional_id)
    if metadata.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    is_retry = _is_retry(command, metadata)
    if not is_retry:
        check_producer(command, metadata)
    repeated = is_retry and metadata.state is _complete_state(command.commit)
    accepted = metadata.state is TransactionState.ONGOING or (not command.commit and not is_retry)
    if repeated and metadata.record.producer_epoch != MAX_PRODUCER_EPOCH:
        response = metadata.producer
    elif repeated or accepted:
        # Repeated: the coordinator has aborted it with the last possible epoch. The producer gets a new id.
        next_producer_id = NO_PRODUCER_ID
        if metadata.is_epoch_exhausted:
            check_has_producer_id(command.new_producer_id)
            next_producer_id = command.new_producer_id
        version = command.transaction_version
        response = prepare(
            store, command.transactional_id, command.commit, version, decision, now_ms, next_producer_id
        )
    else:
        raise _invalid_state(command, metadata)
    decision.reply(waiter, response)


def _is_retry(command: EndTransaction, metadata: TransactionMetadata) -> bool:
    """Whether the request ends the last transaction, which is already complete.

    Kafka only checks that the epoch is one older. Here the last transaction must also be of version 2: the newer epoch
    may belong to another producer, of version 0, that has fenced this one, and the response would leak its epoch.
    """
    record = metadata.record
    if metadata.state not in COMPLETE or record.client_transaction_version < 2:
        return False
    if command.producer_epoch != metadata.last_producer_epoch:
        return False
    if record.producer_epoch == 0:
        return command.producer_id == record.previous_producer_id
    return command.producer_id == record.producer_id


def _complete_state(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _invalid_state(command: EndTransaction, metadata: TransactionMetadata) -> KafkaError:
    wanted = "commit" if command.commit else "abort"
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"the transactional id {command.transactional_id!r} has no transaction to {wanted}: its state is "
        f"{STATE_NAMES[metadata.state]}; begin a transaction first",
    )


# -- preparing, writing markers, completing


def prepare(
    store: TransactionStore,
    transactional_id: str,
    commit: bool,
    transaction_version: int,
    decision: TransactionDecision,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> ProducerIdAndEpoch:
    """Writes the outcome; returns the producer's id and epoch for the next transaction.

    From version 2 on each transaction has its own epoch (KIP-890), which fences late requests of the previous one. If
    the epochs are exhausted, `next_producer_id` replaces the id when the transaction completes.
    """
    metadata = store.by_id[transactional_id]
    ongoing = metadata.state is TransactionState.ONGOING
    epoch = metadata.record.producer_epoch
    bumps = transaction_version >= 2
    if ongoing:
        cancel_timeout(transactional_id, decision)
    metadata = store.transition(
        transactional_id,
        TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        min(epoch, MAX_PRODUCER_EPOCH - 1) if bumps else metadata.last_producer_epoch,
        decision,
        now_ms,
        producer_epoch=next_epoch(epoch) if bumps else epoch,
        next_producer_id=next_producer_id,
        client_transaction_version=transaction_version,
        # An abort without a transaction has no start time, but the record needs one.
        transaction_start_timestamp_ms=metadata.record.transaction_start_timestamp_ms if ongoing else now_ms,
        transaction_partitions=metadata.record.transaction_partitions or (),
    )
    _write_markers(store, transactional_id, decision, now_ms)
    if next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(next_producer_id, 0)
    return metadata.producer


def fence_and_abort(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """Aborts the ongoing transaction with a higher epoch, which fences its producer.

    This is Kafka's PrepareEpochFence followed at once by PrepareAbort. With version 2 it is the same as an abort by the
    producer, so that a producer that was only too slow can continue (KIP-588).
    """
    metadata = store.by_id[transactional_id]
    if store.settings.transaction_version >= 2:
        prepare(store, transactional_id, False, store.settings.transaction_version, decision, now_ms)
        return
    cancel_timeout(transactional_id, decision)
    store.transition(
        transactional_id,
        TransactionState.PREPARE_ABORT,
        NO_PRODUCER_EPOCH,
        decision,
        now_ms,
        producer_epoch=next_epoch(metadata.record.producer_epoch),
        client_transaction_version=0,
    )
    _write_markers(store, transactional_id, decision, now_ms)


def _write_markers(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """Has markers written to the partitions of a prepared transaction. Without partitions it is complete."""
    metadata = store.by_id[transactional_id]
    if not metadata.partitions:
        _complete(store, transactional_id, metadata, decision, now_ms)
        return
    metadata.markers = WriteMarkers(
        transactional_id,
        metadata.record.producer_id,
        metadata.record.producer_epoch,
        metadata.state is TransactionState.PREPARE_COMMIT,
        tuple(metadata.partitions),
        metadata.record.client_transaction_version,
    )
    metadata.unmarked = metadata.partitions.copy()
    decision.perform(metadata.markers)


def markers_written(
    store: TransactionStore,
    command: MarkersWritten,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    transactional_id = command.markers.transactional_id
    metadata = store.by_id.get(transactional_id)
    if metadata is not None and metadata.markers is command.markers:
        for partition in command.partitions:
            metadata.unmarked.pop(partition, None)
        if not metadata.unmarked:
            _complete(store, transactional_id, metadata, decision, now_ms)
    decision.reply(waiter, None)


def _complete(
    store: TransactionStore,
    transactional_id: str,
    metadata: TransactionMetadata,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    record = metadata.record
    rotates = record.next_producer_id != NO_PRODUCER_ID
    store.transition(
        transactional_id,
        TransactionState.COMPLETE_COMMIT
        if metadata.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT,
        metadata.last_producer_epoch,
        decision,
        now_ms,
        producer_id=record.next_producer_id if rotates else record.producer_id,
        producer_epoch=0 if rotates else record.producer_epoch,
        next_producer_id=NO_PRODUCER_ID,
        transaction_partitions=(),
    )


def abort_timed_out(
    store: TransactionStore,
    command: TransactionTimedOut,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    metadata = store.by_id.get(command.transactional_id)
    if metadata is None or metadata.state is not TransactionState.ONGOING:
        return
    if metadata.record.transaction_start_timestamp_ms != command.start_ms:
        return  # the timer of an earlier transaction
    fence_and_abort(store, command.transactional_id, decision, now_ms)


def resume(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """Continues the id's transaction after the shard was loaded."""
    metadata = store.by_id[transactional_id]
    if metadata.state is TransactionState.ONGOING:
        start_timeout(transactional_id, metadata, decision, now_ms)
    elif metadata.state in PREPARED:
        _write_markers(store, transactional_id, decision, now_ms)
