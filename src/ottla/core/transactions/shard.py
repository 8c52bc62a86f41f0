"""One shard of the transaction coordinator: the transactional ids that hash to one partition of `__transaction_state`.

It only dispatches commands: each request has a module with its rules, and `states` has the state transitions.
"""

from collections.abc import Callable, Iterable
from typing import Any

from ottla.core.coordination import Command, Decision, Waiter
from ottla.core.transactions.commands import (
    AddPartitions,
    DescribeTransaction,
    EndTransaction,
    InitProducerId,
    ListTransactions,
    MarkersWritten,
    VerifyPartitions,
)
from ottla.core.transactions.end_transaction import abort_timed_out, end_transaction, markers_written, resume
from ottla.core.transactions.init_producer_id import init_producer_id
from ottla.core.transactions.listing import describe_transaction, list_transactions
from ottla.core.transactions.partitions import add_partitions, has_partitions, verify_partitions
from ottla.core.transactions.settings import TransactionSettings
from ottla.core.transactions.states import TransactionState
from ottla.core.transactions.store import TransactionDecision, TransactionStore
from ottla.core.transactions.timers import (
    ExpireTransactionalIds,
    TransactionTimedOut,
    expire_transactional_ids,
    start_expiry,
)
from ottla.model.ids import NO_PRODUCER_ID, TopicPartition
from ottla.protocol.transaction_records.records import TransactionLogKey, TransactionLogValue

Decide = Callable[[TransactionStore, Any, Waiter, TransactionDecision, int], None]

_DECIDE: dict[type[Command[Any]], Decide] = {
    InitProducerId: init_producer_id,
    AddPartitions: add_partitions,
    VerifyPartitions: verify_partitions,
    EndTransaction: end_transaction,
    MarkersWritten: markers_written,
    TransactionTimedOut: abort_timed_out,
    ExpireTransactionalIds: expire_transactional_ids,
    DescribeTransaction: describe_transaction,
    ListTransactions: list_transactions,
}


class TransactionShard:
    def __init__(self, settings: TransactionSettings) -> None:
        self._store = TransactionStore(settings)

    @property
    def settings(self) -> TransactionSettings:
        return self._store.settings

    @settings.setter
    def settings(self, settings: TransactionSettings) -> None:
        self._store.settings = settings

    def decide(self, command: Command[Any], waiter: Waiter, now_ms: int) -> TransactionDecision:
        decision: TransactionDecision = Decision(self.replay)
        _DECIDE[type(command)](self._store, command, waiter, decision, now_ms)
        return decision

    def needs_producer_id(self, command: InitProducerId | EndTransaction) -> bool:
        """Whether `new_producer_id` would be used: the id is new, or its producer's epochs are exhausted."""
        metadata = self._store.by_id.get(command.transactional_id)
        return isinstance(command, InitProducerId) if metadata is None else metadata.is_epoch_exhausted

    def has_partitions(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
    ) -> bool:
        return has_partitions(self._store, transactional_id, producer_id, producer_epoch, partitions)

    def replay(
        self, key: TransactionLogKey, value: TransactionLogValue | None, producer_id: int = NO_PRODUCER_ID
    ) -> None:
        self._store.replay(key, value)

    def replay_marker(self, producer_id: int, committed: bool) -> None:
        """`__transaction_state` has no transactional records."""

    def on_loaded(self, now_ms: int) -> TransactionDecision:
        decision: TransactionDecision = Decision(self.replay)
        for transactional_id in tuple(self._store.by_id):
            resume(self._store, transactional_id, decision, now_ms)
        start_expiry(self._store, decision)
        return decision

    def state_counts(self) -> dict[TransactionState, int]:
        """How many transactional ids are in each state. States without one are left out."""
        return {state: count for state in TransactionState if (count := self._store.state_counts[state])}

    def durable_state(self) -> dict[str, TransactionLogValue]:
        """The state that a shard rebuilt from the log must have too, in comparable form."""
        return {transactional_id: metadata.record for transactional_id, metadata in self._store.by_id.items()}

    def validate(self) -> None:
        self._store.validate()
