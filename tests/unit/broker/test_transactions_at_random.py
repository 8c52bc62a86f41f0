"""Random producers against a broker that is killed: every transaction is visible whole or not at all.

Each producer records the responses that it got. At the end they are compared with what a read-committed consumer saw.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from random import Random
from uuid import UUID

import pytest
from tests.examples import scaled
from tests.unit.broker.broker_bench import Bench
from tests.unit.broker.transaction_bench import (
    CommittedReader,
    TransactionalProducer,
    committed_offset,
    on_small_broker,
)

from ottla.model.errors import ErrorCode
from ottla.sim.client import SimClient

PARTITIONS = 2
TRANSACTIONS = 12
TIMEOUT = timedelta(seconds=3)
KILLS = 2

TRY_AGAIN = frozenset(
    {
        ErrorCode.concurrent_transactions,
        ErrorCode.not_enough_replicas,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


class TransactionOver(Exception):
    """It was aborted by another producer, or by its timeout."""


@dataclass
class Transaction:
    """`outcome`: True if committed, False if not, None if the response was lost."""

    values: list[tuple[int, bytes]] = field(default_factory=list)
    offset: int | None = None
    outcome: bool | None = False


class RandomProducer:
    def __init__(self, bench: Bench, name: str, random: Random, *, version_2: bool) -> None:
        self.name = name
        self.transactions: list[Transaction] = []
        self._bench = bench
        self._random = random
        self._version_2 = version_2
        self._numbers = count()
        self._client = bench.new_client(name)
        self._producer: TransactionalProducer | None = None

    async def run(self) -> None:
        while len(self.transactions) < TRANSACTIONS:
            transaction = Transaction()
            self.transactions.append(transaction)
            try:
                await self._one(transaction)
            except TransactionOver:
                self._producer = None
            except OSError:  # the broker was killed: the outcome is unknown
                self._producer = None
                await asyncio.sleep(0.1)

    async def _one(self, transaction: Transaction) -> None:
        random = self._random
        producer = self._producer = self._producer or await self._started()
        for _ in range(random.randint(1, 4)):
            await self._send(producer, transaction)
            if random.random() < 0.1:
                await asyncio.sleep(random.choice([0.1, 1, 4]))
        if random.random() < 0.5:
            await self._send_offset(producer, transaction)
        if random.random() < 0.15:
            self._producer = await self._started()  # a new instance fences this one
        commit = random.random() < 0.7
        if commit:
            transaction.outcome = None  # until the response is there
        code = await self._patiently(lambda: producer.end(commit))
        transaction.outcome = commit and code is ErrorCode.none
        assert producer is self._producer or code is not ErrorCode.none, "a zombie ended a transaction"
        if code is not ErrorCode.none:
            raise TransactionOver

    async def _started(self) -> TransactionalProducer:
        producer = TransactionalProducer(
            self._bench, self.name, version_2=self._version_2, client=self._client
        )
        code = await self._patiently(lambda: producer.init(TIMEOUT))
        assert code is ErrorCode.none
        return producer

    async def _send(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        partition = self._random.randrange(PARTITIONS)
        value = f"{self.name}-{next(self._numbers)}".encode()
        transaction.values.append((partition, value))
        if not self._version_2:
            self._check(await self._patiently(lambda: producer.add("journal", partition)))

        async def produce() -> ErrorCode:
            code: ErrorCode = (await producer.produce("journal", value, partition=partition)).error_code
            return code

        self._check(await self._patiently(produce))

    async def _send_offset(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        offset = len(self.transactions)
        await producer.find(0, self.name)
        if not self._version_2:
            self._check(await self._patiently(lambda: producer.add_offsets(self.name)))
        self._check(await self._patiently(lambda: producer.commit_offset(self.name, "journal", offset)))
        transaction.offset = offset

    def _check(self, code: ErrorCode) -> None:
        if code is not ErrorCode.none:
            raise TransactionOver

    async def _patiently(self, ask: Callable[[], Awaitable[ErrorCode]]) -> ErrorCode:
        while True:
            code = await ask()
            if code not in TRY_AGAIN:
                return code
            await asyncio.sleep(0.05)


class Follower:
    """Reads from the beginning, and must never see a record disappear."""

    def __init__(self, bench: Bench, topic_id: UUID, partition: int) -> None:
        client: SimClient = bench.new_client(f"reader-{partition}")
        self.reader = CommittedReader(bench, topic_id, partition, client=client)
        self.is_over = False

    async def run(self) -> None:
        while not self.is_over:
            try:
                await self.reader.poll(max_wait=timedelta(seconds=1), partition_max_bytes=200)
            except OSError:
                await asyncio.sleep(0.1)


async def kill_now_and_then(bench: Bench, random: Random) -> None:
    for _ in range(KILLS):
        await asyncio.sleep(random.uniform(0.2, 3))
        await bench.kill()
        await asyncio.sleep(random.uniform(0, 1))
        await bench.start()


def check_values(producers: list[RandomProducer], followers: list[Follower]) -> None:
    seen = Counter(
        (partition, value) for partition, each in enumerate(followers) for value in each.reader.values
    )
    assert set(seen.values()) <= {1}, "a record is seen twice"
    known = {item for producer in producers for each in producer.transactions for item in each.values}
    assert seen.keys() <= known
    for producer in producers:
        for transaction in producer.transactions:
            visible = {item in seen for item in transaction.values}
            assert len(visible) <= 1, f"half of a transaction is seen: {transaction}"
            if transaction.outcome is not None and transaction.values:
                assert visible == {transaction.outcome}, transaction
        for partition, each in enumerate(followers):
            written = [
                value
                for transaction in producer.transactions
                for at, value in transaction.values
                if at == partition
            ]
            mine = [value for value in each.reader.values if value in set(written)]
            assert mine == [value for value in written if value in set(mine)], "records are out of order"


async def check_offsets(bench: Bench, producer: RandomProducer, seen: set[tuple[int, bytes]]) -> None:
    """The group's offset is that of the last visible transaction that committed one."""
    visible = [
        transaction
        for transaction in producer.transactions
        if transaction.offset is not None and transaction.values[0] in seen
    ]
    expected = visible[-1].offset if visible else -1
    assert await committed_offset(bench, producer.name, "journal", require_stable=True) == expected


@pytest.mark.parametrize("seed", range(scaled(8)))
def test_transactions_are_all_or_nothing_through_crashes(seed: int) -> None:
    @on_small_broker(started=False)
    async def run(bench: Bench) -> None:
        random = Random(seed)
        await bench.start()
        topic_id = await bench.create("journal", PARTITIONS)
        producers = [
            RandomProducer(bench, f"tx{number}", Random(random.random()), version_2=number % 2 == 0)
            for number in range(4)
        ]
        followers = [Follower(bench, topic_id, partition) for partition in range(PARTITIONS)]
        reading = [asyncio.create_task(each.run()) for each in followers]
        killing = asyncio.create_task(kill_now_and_then(bench, random))
        await asyncio.gather(*(each.run() for each in producers), killing)
        await asyncio.sleep(30)  # open transactions time out and are aborted
        bench.client = bench.new_client("afterwards")
        for partition, each in enumerate(followers):
            hosted = bench.services.partitions.find_replica("journal", None, partition)
            assert hosted.leader.last_stable_offset == hosted.log.log_end_offset, "a transaction hangs"
            while each.reader.position < hosted.log.log_end_offset:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
            each.is_over = True
        await asyncio.gather(*reading)
        check_values(producers, followers)
        seen = {
            (partition, value) for partition, each in enumerate(followers) for value in each.reader.values
        }
        assert seen
        for producer in producers:
            await check_offsets(bench, producer, seen)  # type: ignore[arg-type]
        await bench.stop()

    run()
