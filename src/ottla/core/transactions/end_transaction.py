"""EndTxn: a producer commits or aborts its transaction.

With version 0 a request carries the epoch that all transactions of the producer have: one that is delayed, or sent
twice, ends the transaction that is open when it arrives, which may be a later one. Nothing on this side can tell. With
version 2 the epoch is another for each transaction (KIP-890), and tells:

                     abort                    commit
                     once more   the next     once more   the next
    Empty            fenced      accepted     fenced      refused
    CompleteAbort    repeated    accepted     refused     refused
    CompleteCommit   refused     accepted     repeated    refused

"Once more" has the epoch that the ended transaction had, "the next" the epoch that its end gave.
"""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import EndTransaction
from ottla.core.transactions.ending import prepare
from ottla.core.transactions.metadata import MAX_PRODUCER_EPOCH, TransactionMetadata
from ottla.core.transactions.refusals import being_ended, check_producer
from ottla.core.transactions.states import COMPLETE, PREPARED, STATE_NAMES, TransactionState
from ottla.core.transactions.store import (
    TransactionDecision,
    TransactionStore,
    check_producer_id_is_given,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_ID


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
        raise being_ended(command.transactional_id)
    if metadata.state is TransactionState.ONGOING:
        response = prepare(store, command.transactional_id, command.commit, 0, decision, now_ms)
    elif metadata.state is _completed(command.commit):
        response = metadata.producer
    else:
        raise _wrong_state(command, metadata)
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
        raise being_ended(command.transactional_id)
    once_more = _is_once_more(command, metadata)
    if not once_more:
        check_producer(command, metadata)
    repeated = once_more and metadata.state is _completed(command.commit)
    accepted = metadata.state is TransactionState.ONGOING or (not command.commit and not once_more)
    if repeated and metadata.record.producer_epoch != MAX_PRODUCER_EPOCH:
        response = metadata.producer
    elif repeated or accepted:
        # Repeated: it was the coordinator that aborted, with the last epoch there is. The producer gets another id.
        next_producer_id = NO_PRODUCER_ID
        if metadata.is_epoch_exhausted:
            check_producer_id_is_given(command.new_producer_id)
            next_producer_id = command.new_producer_id
        version = command.transaction_version
        response = prepare(
            store, command.transactional_id, command.commit, version, decision, now_ms, next_producer_id
        )
    else:
        raise _wrong_state(command, metadata)
    decision.reply(waiter, response)


def _is_once_more(command: EndTransaction, metadata: TransactionMetadata) -> bool:
    """Whether the transaction that it ends is the last one, complete by now.

    Kafka takes any transaction for such that is complete one epoch later. Of version 2 it has to be: an epoch later may
    also be another producer, which speaks version 0 and fenced this one, and whose epoch the answer would give away.
    """
    record = metadata.record
    if metadata.state not in COMPLETE or record.client_transaction_version < 2:
        return False
    if command.producer_epoch != metadata.last_producer_epoch:
        return False
    if record.producer_epoch == 0:
        return command.producer_id == record.previous_producer_id
    return command.producer_id == record.producer_id


def _completed(commit: bool) -> TransactionState:
    return TransactionState.COMPLETE_COMMIT if commit else TransactionState.COMPLETE_ABORT


def _wrong_state(command: EndTransaction, metadata: TransactionMetadata) -> KafkaError:
    wanted = "commit" if command.commit else "abort"
    return KafkaError(
        ErrorCode.invalid_txn_state,
        f"the transactional id {command.transactional_id!r} has no transaction to {wanted}: its state is "
        f"{STATE_NAMES[metadata.state]}; begin a transaction first",
    )
