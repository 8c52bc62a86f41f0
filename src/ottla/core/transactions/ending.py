"""How a transaction ends, whoever ends it: the outcome is written down, then into every partition, then it is complete.

Once the outcome is in the log (PrepareCommit, PrepareAbort) it stands: a coordinator that dies then goes on from there.
"""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import MarkersWritten, ProducerIdAndEpoch, WriteMarkers
from ottla.core.transactions.metadata import MAX_PRODUCER_EPOCH, TransactionMetadata, bumped
from ottla.core.transactions.states import PREPARED, TransactionState
from ottla.core.transactions.store import TransactionDecision, TransactionStore
from ottla.core.transactions.timeouts import (
    TransactionTimedOut,
    cancel_timeout,
    remaining_ms,
    start_timeout,
)
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID


def prepare(
    store: TransactionStore,
    transactional_id: str,
    commit: bool,
    transaction_version: int,
    decision: TransactionDecision,
    now_ms: int,
    next_producer_id: int = NO_PRODUCER_ID,
) -> ProducerIdAndEpoch:
    """Decides the outcome; returns as whom the producer goes on.

    From version 2 on the epoch is another for each transaction (KIP-890): what is left of this one, in whatever queue,
    is fenced when the next begins. `next_producer_id` is taken with completion, where the epochs are exhausted.
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
        producer_epoch=bumped(epoch) if bumps else epoch,
        next_producer_id=next_producer_id,
        client_transaction_version=transaction_version,
        # An abort without a transaction never began; it needs a start all the same.
        transaction_start_timestamp_ms=metadata.record.transaction_start_timestamp_ms if ongoing else now_ms,
        transaction_partitions=metadata.record.transaction_partitions or (),
    )
    write_markers(store, transactional_id, decision, now_ms)
    if next_producer_id != NO_PRODUCER_ID:
        return ProducerIdAndEpoch(next_producer_id, 0)
    return metadata.producer


def fence_and_abort(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """Aborts the ongoing transaction under an epoch that its producer does not have.

    That is PrepareEpochFence, left at once for PrepareAbort. Under transactions of version 2 it is as if the producer
    had aborted itself: it may go on where it was merely too slow (KIP-588).
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
        producer_epoch=bumped(metadata.record.producer_epoch),
        client_transaction_version=0,
    )
    write_markers(store, transactional_id, decision, now_ms)


def write_markers(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """Has the outcome written into the partitions of a prepared transaction; without any it is complete."""
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
    if remaining_ms(metadata, now_ms) > 0:  # the timer of an earlier transaction, or the clock was set back
        start_timeout(command.transactional_id, metadata, decision, now_ms)
        return
    fence_and_abort(store, command.transactional_id, decision, now_ms)


def resume(
    store: TransactionStore, transactional_id: str, decision: TransactionDecision, now_ms: int
) -> None:
    """After a reload: what was going on with this id goes on."""
    metadata = store.by_id[transactional_id]
    if metadata.state is TransactionState.ONGOING:
        start_timeout(transactional_id, metadata, decision, now_ms)
    elif metadata.state in PREPARED:
        write_markers(store, transactional_id, decision, now_ms)
