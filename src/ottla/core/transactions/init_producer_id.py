"""InitProducerId: a producer starts under its transactional id, and whoever had it before is fenced (KIP-98).

A producer that starts over after an error says who it was (KIP-360). It is given another epoch only where nobody has
taken the id meanwhile, and the same again where it did not hear the first answer.
"""

from ottla.core.coordination import Waiter
from ottla.core.transactions.commands import InitProducerId, ProducerIdAndEpoch
from ottla.core.transactions.ending import fence_and_abort
from ottla.core.transactions.metadata import MAX_PRODUCER_EPOCH, NO_TIMEOUT_MS, TransactionMetadata
from ottla.core.transactions.refusals import being_ended, fenced
from ottla.core.transactions.states import PREPARED, TransactionState
from ottla.core.transactions.store import (
    TransactionDecision,
    TransactionStore,
    check_producer_id_is_given,
    refuse_empty_id,
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
        raise being_ended(command.transactional_id)
    _check_expected(command, metadata)
    if metadata.state is TransactionState.ONGOING:
        # The epoch that fences is given to nobody: the producer asks again, and gets one of its own.
        fence_and_abort(store, command.transactional_id, decision, now_ms)
        decision.reply(waiter, being_ended(command.transactional_id))
        return
    decision.reply(waiter, _next(store, command, metadata, timeout_ms, decision, now_ms))


def _checked_timeout_ms(store: TransactionStore, command: InitProducerId) -> int:
    refuse_empty_id(command.transactional_id)
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
    """Also for a producer that says who it was: its id had expired."""
    check_producer_id_is_given(command.new_producer_id)
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
    """Raises PRODUCER_FENCED where the producer is not the one that had the id last.

    Kafka looks at the epoch only where no transaction is ongoing; a late request of a fenced producer aborts the
    transaction of the one that fenced it. Here it changes nothing.
    """
    expected = command.expected
    if expected is None:
        return
    known = expected == metadata.producer
    if metadata.state is not TransactionState.ONGOING and not known:
        # Asked again; the answer had another id where the epochs of the previous one were exhausted.
        known = expected.producer_epoch == metadata.last_producer_epoch != NO_PRODUCER_EPOCH and (
            expected.producer_id in (metadata.record.producer_id, metadata.record.previous_producer_id)
        )
    if not known:
        raise fenced(command.transactional_id, *expected, metadata)


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
        # Asked again: the same answer, and it would be the same once more.
        previous_producer_id, epoch = record.previous_producer_id, record.producer_epoch
    elif metadata.is_epoch_exhausted:
        check_producer_id_is_given(command.new_producer_id)
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
