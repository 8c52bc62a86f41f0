"""A transactional producer that behaves as Kafka's: it initializes its id, sends with retries, commits and aborts."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.model.errors import ErrorCode
from ottla.model.ids import TopicPartition
from ottla.records.records import Record, build_batch
from ottla.sim.env import World
from ottla.sim.group_client import Identity, Topic
from ottla.sim.history import Value, Violation
from ottla.sim.partition_clients import PRODUCER_RETRIABLE, RETRY_PAUSE_S
from ottla.sim.transaction_client import ProducerIdentity, TransactionClient
from ottla.sim.transaction_history import Outcome, Transaction, TransactionHistory

_TRANSACTION_TIMEOUT_S = 8.0
_TXN_RETRIABLE = PRODUCER_RETRIABLE | {ErrorCode.not_coordinator, ErrorCode.concurrent_transactions}
_FENCED_ERRORS = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
# Errors of TxnOffsetCommit after the group has rebalanced (KIP-447).
_STALE_MEMBER_ERRORS = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
    }
)


class Fenced(Exception):
    """Another producer uses the transactional id, or the coordinator aborted the transaction. This producer ends."""


class Abortable(Exception):
    """The transaction cannot be committed, but the producer can continue after an abort."""


class TransactionalProducer:
    def __init__(self, world: World, client: TransactionClient, history: TransactionHistory) -> None:
        self._client = client
        self._history = history
        self._acknowledged = world.acknowledged
        self._now_ms = world.clock.now_ms
        self._now_s = asyncio.get_running_loop().time
        self._identity = ProducerIdentity()
        self._sequences: dict[TopicPartition, int] = {}
        self._added: set[TopicPartition] = set()
        self._transaction: Transaction | None = None

    async def init(self) -> None:
        await self._retry(self._client.find_coordinator)
        while True:
            self._history.fence_sent(self._client.transactional_id)
            error, self._identity = await self._client.init(_TRANSACTION_TIMEOUT_S)
            if error != ErrorCode.request_timed_out:
                self._history.fence_acknowledged(self._client.transactional_id)
            if error == ErrorCode.none:
                self._sequences.clear()
                return
            self._check_error(error)
            await asyncio.sleep(RETRY_PAUSE_S)

    def begin(self) -> Transaction:
        self._transaction = self._history.begin(self._client.transactional_id)
        self._transaction.expires_s = self._now_s() + _TRANSACTION_TIMEOUT_S - 0.01
        self._added.clear()
        return self._transaction

    async def send(self, topic: Topic, partition: int, values: list[Value]) -> None:
        assert self._transaction is not None
        topic_partition = TopicPartition(topic.name, partition)
        if topic_partition not in self._added and not self._client.is_v2:
            await self._retry(lambda: self._client.add_partition(self._identity, topic, partition))
        self._added.add(topic_partition)
        sequence = self._sequences.get(topic_partition, 0)
        now_ms = self._now_ms()
        batch = build_batch(
            [Record(index, now_ms, value.encode(), None) for index, value in enumerate(values)],
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = -1

        async def produce() -> ErrorCode:
            nonlocal offset
            error, offset = await self._client.produce(topic, partition, batch)
            return error

        await self._retry(produce)
        self._sequences[topic_partition] = sequence + len(values)
        self._transaction.first_offsets.setdefault(topic_partition, offset)

    async def commit_offset(
        self, group_id: str, member: Identity, topic: Topic, partition: int, offset: int
    ) -> None:
        if not self._client.is_v2:
            await self._retry(lambda: self._client.add_offsets(self._identity, group_id))

        async def commit() -> ErrorCode:
            error = await self._client.commit_offset(
                self._identity, group_id, member, topic, partition, offset
            )
            if error == ErrorCode.invalid_txn_state:
                # A producer takes it for fatal. Its transaction is open: if the coordinator has aborted it, the epoch
                # is another.
                raise Violation(f"{self._client.transactional_id} got {error.name} for TxnOffsetCommit")
            return error

        await self._retry(commit)

    async def end(self, *, commit: bool) -> None:
        """Raises Fenced, also if the outcome is not known."""
        transaction = self._transaction
        assert transaction is not None
        self._history.end(self._client.transactional_id)
        if commit:
            transaction.outcome = Outcome.UNKNOWN
        may_have_ended = False
        while True:
            error, identity = await self._client.end(self._identity, commit=commit)
            if error == ErrorCode.none:
                break
            try:
                self._check_error(error)
            except Fenced:
                if commit and not may_have_ended:
                    transaction.outcome = Outcome.ABORTED
                raise
            may_have_ended = may_have_ended or error != ErrorCode.concurrent_transactions
            await asyncio.sleep(RETRY_PAUSE_S)
        if commit:
            transaction.outcome = Outcome.COMMITTED
            self._acknowledged.set()
        if identity != self._identity:
            self._sequences.clear()
        self._identity = identity

    async def _retry(self, request: Callable[[], Awaitable[ErrorCode]]) -> None:
        while (error := await request()) != ErrorCode.none:
            self._check_error(error)
            await asyncio.sleep(RETRY_PAUSE_S)

    def _check_error(self, error: ErrorCode) -> None:
        """Returns if the request is to be retried; raises otherwise."""
        if error in _FENCED_ERRORS:
            raise Fenced(f"{self._client.transactional_id} as {self._identity}: {error.name}")
        if error == ErrorCode.transaction_abortable or error in _STALE_MEMBER_ERRORS:
            raise Abortable
        if error not in _TXN_RETRIABLE:
            raise Violation(f"{self._client.transactional_id} as {self._identity} got {error.name}")
