"""InitProducerId: a producer starts with its transactional id and fences the producer that had it before (KIP-98).

A producer that starts again after an error sends its previous id and epoch (KIP-360). It gets a new epoch only if no
other producer has taken over the id meanwhile, and the same epoch again if it retries.
"""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import InitProducerId, ProducerIdAndEpoch
from ottla.core.transactions.end_transaction import fence_and_abort
from ottla.core.transactions.errors import concurrent_transactions, producer_fenced
from ottla.core.transactions.metadata import MAX_PRODUCER_EPOCH, NO_TIMEOUT_MS, TransactionMetadata
from ottla.core.transactions.states import PREPARED, TransactionState
from ottla.core.transactions.store import (
    TransactionDecision,
    TransactionStore,
    check_has_producer_id,
    check_transactional_id,
)
from ottla.model.errors import ErrorCode, KafkaError
from ottla.model.ids import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP
from ottla.protocol.transaction_records.records import TransactionLogValue


def init_producer_id(
    store: TransactionStore,
    command: InitProducerId,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    timeout_ms = _checked_timeout_ms(store, command)
    metadata = store.by_id.get(command.transactional_id)
    if metadata is None:
        decision.reply(waiter, _first(store, command, timeout_ms, decision, now_ms))
        return
    if metadata.state in PREPARED:
        raise concurrent_transactions(command.transactional_id)
    _check_expected(command, metadata)
    if metadata.state is TransactionState.ONGOING:
        # No producer gets the epoch that fences: this one retries, and gets the epoch after it.
        fence_and_abort(store, command.transactional_id, decision, now_ms)
        decision.reply(waiter, concurrent_transactions(command.transactional_id))
        return
    decision.reply(waiter, _next(store, command, metadata, timeout_ms, decision, now_ms))


def _checked_timeout_ms(store: TransactionStore, command: InitProducerId) -> int:
    check_transactional_id(command.transactional_id)
    settings = store.settings
    name = f"the transactional id {command.transactional_id!r}"
    if command.enable_two_phase_commit and not settings.two_phase_commit_enabled:
        raise KafkaError(
            ErrorCode.transactional_id_authorization_failed,
            f"{name} asks for two-phase commit, which transaction.two.phase.commit.enable=false forbids",
        )
    if command.keep_prepared:
        raise KafkaError(
            ErrorCode.unsupported_version,
            f"{name} asks to keep a prepared transaction (KIP-939), which is not supported",
        )
    if command.enable_two_phase_commit:
        return NO_TIMEOUT_MS
    if not 0 < command.timeout_ms <= settings.max_timeout_ms:
        raise KafkaError(
            ErrorCode.invalid_transaction_timeout,
            f"{name} asks for a transaction timeout of {command.timeout_ms} ms; it has to be above 0 and at most "
            f"transaction.max.timeout.ms={settings.max_timeout_ms}",
        )
    return command.timeout_ms


def _first(
    store: TransactionStore,
    command: InitProducerId,
    timeout_ms: int,
    decision: TransactionDecision,
    now_ms: int,
) -> ProducerIdAndEpoch:
    """Creates the transactional id. Also used if `expected` is set: then the id has expired."""
    check_has_producer_id(command.new_producer_id)
    record = TransactionLogValue(
        producer_id=command.new_producer_id,
        previous_producer_id=command.new_producer_id,
        producer_epoch=0,
        transaction_timeout_ms=timeout_ms,
        transaction_status=int(TransactionState.EMPTY),
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=now_ms,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
    )
    return store.write(command.transactional_id, record, NO_PRODUCER_EPOCH, decision).producer


def _check_expected(command: InitProducerId, metadata: TransactionMetadata) -> None:
    """Raises PRODUCER_FENCED if `expected` is not the last producer of the id.

    Kafka checks the epoch only if no transaction is ongoing, so that a late request of a fenced producer aborts the
    transaction of the producer that fenced it. Here such a request changes nothing.
    """
    expected = command.expected
    if expected is None:
        return
    known = expected == metadata.producer
    if metadata.state is not TransactionState.ONGOING and not known:
        # A retry. The lost response contained a new id if the epochs of the previous one were exhausted.
        known = expected.producer_epoch == metadata.last_producer_epoch != NO_PRODUCER_EPOCH and (
            expected.producer_id in (metadata.record.producer_id, metadata.record.previous_producer_id)
        )
    if not known:
        raise producer_fenced(command.transactional_id, *expected, metadata)


def _next(
    store: TransactionStore,
    command: InitProducerId,
    metadata: TransactionMetadata,
    timeout_ms: int,
    decision: TransactionDecision,
    now_ms: int,
) -> ProducerIdAndEpoch:
    record, expected = metadata.record, command.expected
    last_epoch = NO_PRODUCER_EPOCH if expected is None else expected.producer_epoch
    previous_producer_id = record.producer_id
    producer_id, epoch = record.producer_id, record.producer_epoch + 1
    if expected is not None and expected != metadata.producer and epoch <= MAX_PRODUCER_EPOCH:
        # A retry gets the same response, however often it comes.
        previous_producer_id, epoch = record.previous_producer_id, record.producer_epoch
    elif metadata.is_epoch_exhausted:
        check_has_producer_id(command.new_producer_id)
        producer_id, epoch = command.new_producer_id, 0
    return store.transition(
        command.transactional_id,
        TransactionState.EMPTY,
        last_epoch,
        decision,
        now_ms,
        previous_producer_id=previous_producer_id,
        producer_id=producer_id,
        producer_epoch=epoch,
        next_producer_id=NO_PRODUCER_ID,
        transaction_timeout_ms=timeout_ms,
        transaction_partitions=None,
        transaction_start_timestamp_ms=NO_TIMESTAMP,
    ).producer
