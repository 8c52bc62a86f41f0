"""A transactional producer as Kafka's: it starts under its id, sends, sends again, commits and aborts."""

import asyncio
from collections.abc import Awaitable, Callable

from ottla.model.errors import ErrorCode
from ottla.records.records import Record, build_batch
from ottla.sim.env import World
from ottla.sim.group_client import Identity, Topic
from ottla.sim.history import Value, Violation
from ottla.sim.transaction_client import Producer, TransactionClient
from ottla.sim.transaction_history import Outcome, Place, Transaction, TransactionHistory
from ottla.sim.workload import RETRIABLE, RETRY_PAUSE_S

TRANSACTION_TIMEOUT_S = 8.0
AGAIN = RETRIABLE | {ErrorCode.not_coordinator, ErrorCode.concurrent_transactions}
FENCED = frozenset(
    {
        ErrorCode.producer_fenced,
        ErrorCode.invalid_producer_epoch,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.invalid_txn_state,
    }
)
# Of offsets: the group has moved on (KIP-447).
REFUSED_BY_GROUP = frozenset(
    {
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.fenced_instance_id,
    }
)


class Fenced(Exception):
    """Another has taken the transactional id, or the coordinator has ended the transaction: this producer is done."""


class Abortable(Exception):
    """The transaction cannot be committed, but the producer can go on after an abort."""


class TransactionalProducer:
    def __init__(self, world: World, client: TransactionClient, history: TransactionHistory) -> None:
        self._client = client
        self._history = history
        self._acknowledged = world.acknowledged
        self._now_ms = world.clock.now_ms
        self._now_s = asyncio.get_running_loop().time
        self._who = Producer()
        self._sequences: dict[Place, int] = {}
        self._added: set[Place] = set()
        self._transaction: Transaction | None = None

    async def init(self) -> None:
        await self._until_done(self._client.find_coordinator)
        while True:
            self._history.fence_sent(self._client.transactional_id)
            error, self._who = await self._client.init(TRANSACTION_TIMEOUT_S)
            if error != ErrorCode.request_timed_out:
                self._history.fence_answered(self._client.transactional_id)
            if error == ErrorCode.none:
                self._sequences.clear()
                return
            self._judge(error)
            await asyncio.sleep(RETRY_PAUSE_S)

    def begin(self) -> Transaction:
        self._transaction = self._history.begin(self._client.transactional_id)
        self._transaction.expires_s = self._now_s() + TRANSACTION_TIMEOUT_S - 0.01
        self._added.clear()
        return self._transaction

    async def send(self, topic: Topic, partition: int, values: list[Value]) -> None:
        assert self._transaction is not None
        place = Place(topic.name, partition)
        if place not in self._added and not self._client.adds_itself:
            await self._until_done(lambda: self._client.add_partition(self._who, topic, partition))
        self._added.add(place)
        sequence = self._sequences.get(place, 0)
        now_ms = self._now_ms()
        batch = build_batch(
            [Record(index, now_ms, value.encode(), None) for index, value in enumerate(values)],
            producer_id=self._who.producer_id,
            producer_epoch=self._who.producer_epoch,
            base_sequence=sequence,
            transactional=True,
        )
        offset = -1

        async def produce() -> ErrorCode:
            nonlocal offset
            error, offset = await self._client.produce(topic, partition, batch)
            return error

        await self._until_done(produce)
        self._sequences[place] = sequence + len(values)
        self._transaction.first_offsets.setdefault(place, offset)

    async def commit_offset(
        self, group_id: str, member: Identity, topic: Topic, partition: int, offset: int
    ) -> None:
        if not self._client.adds_itself:
            await self._until_done(lambda: self._client.add_offsets(self._who, group_id))
        await self._until_done(
            lambda: self._client.commit_offset(self._who, group_id, member, topic, partition, offset)
        )

    async def end(self, *, commit: bool) -> None:
        """Raises Fenced, also where the outcome is not known."""
        transaction = self._transaction
        assert transaction is not None
        self._history.end(self._client.transactional_id)
        if commit:
            transaction.outcome = Outcome.UNKNOWN
        was_lost = False
        while True:
            error, who = await self._client.end(self._who, commit=commit)
            if error == ErrorCode.none:
                break
            try:
                self._judge(error)
            except Fenced:
                if commit and not was_lost:
                    transaction.outcome = Outcome.ABORTED
                raise
            was_lost = was_lost or error != ErrorCode.concurrent_transactions
            await asyncio.sleep(RETRY_PAUSE_S)
        if commit:
            transaction.outcome = Outcome.COMMITTED
            self._acknowledged.set()
        if who != self._who:
            self._sequences.clear()
        self._who = who

    async def _until_done(self, ask: Callable[[], Awaitable[ErrorCode]]) -> None:
        while (error := await ask()) != ErrorCode.none:
            self._judge(error)
            await asyncio.sleep(RETRY_PAUSE_S)

    def _judge(self, error: ErrorCode) -> None:
        """Returns where it is to be tried again."""
        if error in FENCED:
            raise Fenced(f"{self._client.transactional_id} as {self._who}: {error.name}")
        if error == ErrorCode.transaction_abortable or error in REFUSED_BY_GROUP:
            raise Abortable
        if error not in AGAIN:
            raise Violation(f"{self._client.transactional_id} as {self._who} was told {error.name}")
