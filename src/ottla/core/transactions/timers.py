"""The timers of the coordinator: one per ongoing transaction, and one that expires unused transactional ids."""

from dataclasses import dataclass

from ottla.core.coordination import Command, Waiter
from ottla.core.transactions.metadata import NO_TIMEOUT_MS, TransactionMetadata
from ottla.core.transactions.states import IDLE
from ottla.core.transactions.store import TransactionDecision, TransactionStore
from ottla.protocol.transaction_records.records import TransactionLogKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTimedOut(Command[None]):
    """`start_ms` tells the transaction from a later one of the same transactional id."""

    transactional_id: str
    start_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTransactionalIds(Command[None]):
    """Runs every `transaction.remove.expired.transaction.cleanup.interval.ms`."""


def start_timeout(
    transactional_id: str, metadata: TransactionMetadata, decision: TransactionDecision, now_ms: int
) -> None:
    """The timeout counts from the start of the transaction, even if another coordinator started it.

    The timer runs on a monotonic clock. If the wall clock was set back since the start, the transaction still ends
    after its timeout at the latest; otherwise it would hold up read-committed consumers for as long as the clock was
    ahead.
    """
    record = metadata.record
    if record.transaction_timeout_ms != NO_TIMEOUT_MS:
        start_ms, timeout_ms = record.transaction_start_timestamp_ms, record.transaction_timeout_ms
        decision.start_timer(
            _timeout_key(transactional_id),
            min(max(start_ms + timeout_ms - now_ms, 0), timeout_ms),
            TransactionTimedOut(transactional_id=transactional_id, start_ms=start_ms),
        )


def cancel_timeout(transactional_id: str, decision: TransactionDecision) -> None:
    decision.cancel_timer(_timeout_key(transactional_id))


def _timeout_key(transactional_id: str) -> tuple[str, str]:
    return ("timeout", transactional_id)


def start_expiry(store: TransactionStore, decision: TransactionDecision) -> None:
    decision.start_timer(
        ("expire-transactional-ids",), store.settings.remove_expired_interval_ms, ExpireTransactionalIds()
    )


def expire_transactional_ids(
    store: TransactionStore,
    command: ExpireTransactionalIds,
    waiter: Waiter,
    decision: TransactionDecision,
    now_ms: int,
) -> None:
    """Removes transactional ids that were not used for `transactional.id.expiration.ms`."""
    unused_since_ms = now_ms - store.settings.transactional_id_expiration_ms
    expired = [
        transactional_id
        for transactional_id, metadata in store.by_id.items()
        if metadata.state in IDLE and metadata.record.transaction_last_update_timestamp_ms <= unused_since_ms
    ]
    for transactional_id in expired:
        decision.write(TransactionLogKey(transactional_id=transactional_id), None)
    start_expiry(store, decision)
