"""A timer for each ongoing transaction, so that one that is open for too long is aborted to the millisecond."""

from dataclasses import dataclass

from ottla.core.coordination import Command
from ottla.core.transactions.metadata import NO_TIMEOUT_MS, TransactionMetadata
from ottla.core.transactions.store import TransactionDecision


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionTimedOut(Command[None]):
    transactional_id: str


def start_timeout(
    transactional_id: str, metadata: TransactionMetadata, decision: TransactionDecision, now_ms: int
) -> None:
    """Counts from the start of the transaction, whoever coordinated it then."""
    if metadata.record.transaction_timeout_ms != NO_TIMEOUT_MS:
        decision.start_timer(
            _key(transactional_id),
            max(remaining_ms(metadata, now_ms), 0),
            TransactionTimedOut(transactional_id=transactional_id),
        )


def cancel_timeout(transactional_id: str, decision: TransactionDecision) -> None:
    decision.cancel_timer(_key(transactional_id))


def remaining_ms(metadata: TransactionMetadata, now_ms: int) -> int:
    record = metadata.record
    return record.transaction_start_timestamp_ms + record.transaction_timeout_ms - now_ms


def _key(transactional_id: str) -> tuple[str, str]:
    return ("timeout", transactional_id)
