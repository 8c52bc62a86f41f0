"""Transactional ids that nobody has used for long are forgotten (`transactional.id.expiration.ms`)."""

from dataclasses import dataclass

from ottla.core.coordination import Command, Waiter
from ottla.core.transactions.states import IDLE
from ottla.core.transactions.store import TransactionDecision, TransactionStore
from ottla.protocol.transaction_records.records import TransactionLogKey


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireTransactionalIds(Command[None]):
    """A timer's: now and then all ids are looked at."""


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
    unused_since_ms = now_ms - store.settings.transactional_id_expiration_ms
    expired = [
        transactional_id
        for transactional_id, metadata in store.by_id.items()
        if metadata.state in IDLE and metadata.record.transaction_last_update_timestamp_ms <= unused_since_ms
    ]
    for transactional_id in expired:
        decision.write(TransactionLogKey(transactional_id=transactional_id), None)
    start_expiry(store, decision)
