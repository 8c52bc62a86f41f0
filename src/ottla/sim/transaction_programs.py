"""Programs that use transactions: writers, and copiers that copy from topic to topic exactly once.

One program after the other uses each transactional id, sometimes two at once. Programs die during a transaction, or
leave it open for too long.
"""

import asyncio
from collections.abc import Awaitable, Callable
from itertools import count
from random import Random

from ottla.model.errors import ErrorCode
from ottla.sim.classic_members import ClassicMember
from ottla.sim.client import SimClient
from ottla.sim.cluster_client import new_client
from ottla.sim.consumer_member import ConsumerMember
from ottla.sim.env import World
from ottla.sim.group_client import GroupClient, Identity, Topic
from ottla.sim.group_history import GroupHistory
from ottla.sim.group_members import OFFSET_FETCH_RETRIABLE, GroupMember, SimGroup
from ottla.sim.group_work import COPIED_AT_ONCE_MAX, CopyWork
from ottla.sim.history import Value, Violation
from ottla.sim.partition_clients import RETRY_PAUSE_S, records_of
from ottla.sim.transaction_client import TransactionClient
from ottla.sim.transaction_history import TransactionHistory
from ottla.sim.transactional_producer import Abortable, Fenced, TransactionalProducer

HOSTS = [f"program-{index}" for index in range(3)]
COPIERS = "copies"  # the group id of copiers with a fixed partition each
COPYING_GROUP = "sharing"  # the group whose members share the partitions
_CLIENT_TIMEOUT_S = 5.0


class ProgramContext:
    """What all programs of a run share."""

    def __init__(self, world: World, topics: dict[str, Topic]) -> None:
        self.world = world
        self.random: Random = world.derive()
        self.history = TransactionHistory()
        self.topics = topics

    def client(self) -> SimClient:
        return self._client(resets_on_timeout=False)

    def producer(self, transactional_id: str) -> TransactionalProducer:
        """In version 0 a delayed request of one transaction may count for the next, so the client resets connections.

        Version 2 was made to prevent that.
        """
        is_v2 = self.random.random() < 0.6
        client = self._client(resets_on_timeout=not is_v2)
        return TransactionalProducer(
            self.world, TransactionClient(client, transactional_id, is_v2=is_v2), self.history
        )

    def _client(self, *, resets_on_timeout: bool) -> SimClient:
        host = self.random.choice(HOSTS)
        return new_client(self.world, host, host, _CLIENT_TIMEOUT_S, resets_on_timeout=resets_on_timeout)


async def run_writer(context: ProgramContext, transactional_id: str) -> None:
    """Writes one transaction after the other, until it is fenced."""
    random, ledger = context.random, context.topics["ledger"]
    producer = context.producer(transactional_id)
    await producer.init()
    while True:
        transaction = producer.begin()
        try:
            for _ in range(random.randint(1, 4)):
                values = [transaction.next_value() for _ in range(random.randint(1, 3))]
                await producer.send(ledger, random.randrange(ledger.partitions), values)
                await asyncio.sleep(random.random() * (10.0 if random.random() < 0.1 else 0.5))
            await producer.end(commit=random.random() < 0.7)
        except Abortable:
            await producer.end(commit=False)
        await asyncio.sleep(random.random())


async def run_copier(context: ProgramContext, transactional_id: str, index: int) -> None:
    """Copies one partition of the input to the output, exactly once, until it is fenced."""
    random, source, target = context.random, context.topics["input"], context.topics["output"]
    client = context.client()
    group = GroupClient(client, COPIERS, source)
    producer = context.producer(transactional_id)
    await producer.init()
    while True:
        position = await _committed_offset(group, index)
        values = await _fetch_values(client, source, index, position)
        if not values:
            continue
        transaction = producer.begin()
        try:
            copied = values[: random.randint(1, COPIED_AT_ONCE_MAX)]
            for partition in range(target.partitions):
                part = [value for value in copied if value.number % target.partitions == partition]
                if part:
                    await producer.send(target, partition, [transaction.next_value(value) for value in part])
            await producer.commit_offset(COPIERS, Identity(), source, index, position + len(copied))
            await producer.end(commit=random.random() < 0.8)
        except Abortable:
            await producer.end(commit=False)


async def _committed_offset(group: GroupClient, partition: int) -> int:
    """The committed offset. While a transaction may still change it, the coordinator returns an error (KIP-447)."""
    await group.find_coordinator()
    while True:
        error, found = await group.committed([partition])
        if error == ErrorCode.none and found[0].error_code == ErrorCode.none:
            return max(found[0].offset, 0)
        if error not in OFFSET_FETCH_RETRIABLE and error != ErrorCode.none:
            raise Violation(f"OffsetFetch got {error.name}")
        await asyncio.sleep(RETRY_PAUSE_S)


async def _fetch_values(client: SimClient, topic: Topic, partition: int, offset: int) -> list[Value]:
    try:
        response = await client.fetch(topic.topic_id, partition, offset)
    except OSError:
        await asyncio.sleep(RETRY_PAUSE_S)
        return []
    return [Value.decode(record.key or b"") for record in records_of(response) if record.offset >= offset]


def copying_group(context: ProgramContext) -> SimGroup:
    """A group of one protocol, or of both, that copies the input. Each member has its own transactional id."""
    source, target = context.topics["input"], context.topics["shared"]
    history = GroupHistory(COPYING_GROUP, source.partitions)
    random = context.world.derive()
    kinds = random.choice(((ClassicMember,), (ConsumerMember,), (ClassicMember, ConsumerMember)))
    ids = (f"member-{number}" for number in count())

    def new_member(instance_id: str | None) -> GroupMember:
        work = CopyWork(context.producer(next(ids)), source, target, random)
        return random.choice(kinds)(context.world, history, source, random.choice(HOSTS), work, instance_id)

    return SimGroup(history, random, new_member)


class ProgramSupervisor:
    """Runs the programs of one transactional id."""

    def __init__(self, context: ProgramContext, run: Callable[[], Awaitable[None]]) -> None:
        self._context = context
        self._run = run
        self.is_calm = False  # no more kills, and no second program
        self._running: list[asyncio.Task[None]] = []

    async def supervise(self, tasks: asyncio.TaskGroup) -> None:
        """Starts a program if none runs; unless `is_calm`, also kills programs, and starts some while another runs."""
        random = self._context.random
        while True:
            self._running = [task for task in self._running if not task.done()]
            if not self._running or (random.random() < 0.1 and not self.is_calm):
                self._running.append(tasks.create_task(self._run_until_fenced()))
            elif random.random() < 0.15 and not self.is_calm:
                random.choice(self._running).cancel()
            await asyncio.sleep(random.uniform(0.5, 5.0))

    def stop(self) -> None:
        for task in self._running:
            task.cancel()

    async def _run_until_fenced(self) -> None:
        try:
            await self._run()
        except Fenced as fenced:
            self._context.world.trace.note(f"fenced: {fenced}")
